//! Resets of VMs whose guests have destroyed everything that they can reach.

#[path = "reset/code.rs"]
mod code;
mod guest;

use guest::{Guest, kvm_available, run_guest};
use hartline_abi::exports::MAX_DATA;
use hartline_vmm::exports::{CallError, Exports, ResetError};
use std::thread;
use std::time::{Duration, Instant};

/// The time that a guest has for its work.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until the guest has ended. Result: how.
fn end_of(exports: &Exports) -> String {
    let start = Instant::now();
    loop {
        match exports.call("nothing", b"", Some(Duration::from_millis(20))) {
            Err(CallError::Ended(end)) => return end,
            Err(CallError::Late | CallError::Poisoned) => {
                assert!(start.elapsed() < PATIENCE, "the guest does not end");
                thread::sleep(Duration::from_millis(5));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Lets a guest destroy something, and resets the VM, several times. The guest spins if `spins`; otherwise it ends.
fn destroy(name: &str, spins: bool) {
    if !kvm_available(name) {
        return;
    }
    let exports = Exports::new();
    let given = exports.clone();
    let guest = Guest {
        exports: Some(given),
        timeout: None,
        ..code::guest(name)
    };
    let vm = thread::spawn(move || run_guest(&guest));
    match exports.wait_until_ready(Some(PATIENCE)) {
        // It may have come further already.
        Ok(()) | Err(CallError::Ended(_)) => {}
        Err(error) => panic!("{name}: {error}"),
    }
    for round in 0..3 {
        if spins {
            // The guest needs a moment for it. A reset before that would show less, but is right too.
            thread::sleep(Duration::from_millis(100));
        } else {
            let end = end_of(&exports);
            assert!(!end.starts_with("it has ended"), "{name}, {round}: {end}");
        }
        let (reset, difference) = exports.reset_and_compare().unwrap();
        assert_eq!(difference, None, "{name}, {round}: RAM differs");
        assert_eq!(
            end_of(&exports),
            "it has ended with code 1",
            "{name}, {round}: {reset:?}"
        );
        exports.reset().unwrap();
    }
    exports.end();
    vm.join().unwrap();
    let error = exports.reset().unwrap_err();
    assert!(matches!(error, ResetError::Ended(_)), "{error}");
}

#[test]
fn page_tables_are_put_back() {
    destroy("tables", true);
}

#[test]
fn all_of_ram_is_put_back() {
    destroy("memory", false);
    destroy("upwards", false);
}

/// Later checkpoints do not change what a reset puts back.
#[test]
fn only_the_first_checkpoint_counts() {
    destroy("again", true);
}

#[test]
fn registers_are_put_back() {
    destroy("registers", false);
}

#[test]
fn a_guest_that_has_seized_cpl_0_is_reset() {
    destroy("cpl0", true);
}

/// A guest that writes anything to the channel of calls at any time.
#[test]
fn a_guest_that_lies_in_the_channel_is_reset() {
    let name = "channel";
    if !kvm_available(name) {
        return;
    }
    let exports = Exports::new();
    let guest = Guest {
        exports: Some(exports.clone()),
        timeout: None,
        ..code::guest(name)
    };
    let vm = thread::spawn(move || run_guest(&guest));
    exports.wait_until_ready(Some(PATIENCE)).unwrap();
    let (mut replies, mut errors) = (0, 0);
    let longest = [b'x'; MAX_DATA];
    for round in 0..100 {
        let input = [&longest[..], b"", b"input"][round % 3];
        match exports.call("anything", input, Some(Duration::from_millis(20))) {
            Ok(output) => {
                assert!(output.len() <= MAX_DATA, "{round}");
                replies += 1;
            }
            Err(CallError::Function(_)) => errors += 1,
            Err(CallError::Late) => {}
            Err(error) => panic!("{round}: {error}"),
        }
        let (_, difference) = exports.reset_and_compare().unwrap();
        assert_eq!(difference, None, "{round}: RAM differs");
        // The generation is right again, whatever the guest has written there.
        assert_eq!(end_of(&exports), "it has ended with code 1", "{round}");
        exports.reset().unwrap();
    }
    assert!(replies > 0 && errors > 0, "{replies}, {errors}");
    exports.end();
    vm.join().unwrap();
}
