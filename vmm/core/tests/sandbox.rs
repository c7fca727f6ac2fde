//! The example `sandbox`, with a C program that exports functions.

// It is compiled as a module, so that this test is about the file that is there.
#[path = "../examples/sandbox.rs"]
#[expect(dead_code, reason = "the example's own start")]
mod sandbox;

use hartline_vmm::exports::{CallError, ResetError};
use hartline_vmm::platform::Kvm;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// The longest time of a call, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this test can run. If not, it is reported as skipped, or fails where KVM is required.
fn has_kvm(test: &str) -> bool {
    let Err(error) = Kvm::open(Path::new(Kvm::DEVICE)) else {
        return true;
    };
    let is_required = std::env::var_os("HARTLINE_REQUIRE_KVM").is_some();
    assert!(!is_required, "{error}");
    eprintln!("skipped: {test}: {error}");
    false
}

/// Compiles the program with functions.
fn compile(directory: &Path) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = directory.join("calls");
    let compiled = Command::new("riscv64-linux-gnu-gcc")
        .args(["-std=gnu17", "-O2", "-static", "-I"])
        .arg(repository.join("guest-runtime/sdk"))
        .arg(repository.join("tests/programs/alone/calls.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(compiled.is_ok_and(|status| status.success()));
    program.to_str().unwrap().to_owned()
}

#[test]
fn functions_are_called_and_leave_nothing() {
    if !has_kvm("functions_are_called_and_leave_nothing") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let name = &compile(directory.path());
    let call = |function: &str, inputs: &[&str]| {
        let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
        sandbox::call_each(name, function, &inputs)
    };
    let outputs = call("echo", &["one", "", "three"]).unwrap();
    assert_eq!(outputs, [&b"one"[..], b"", b"three"]);
    // Each call is the first one.
    let one = 1u64.to_le_bytes();
    assert_eq!(call("count", &["", "", ""]).unwrap(), [one; 3]);
    let error = call("fail", &[""]).unwrap_err();
    assert!(error.to_string().contains("the function failed"), "{error}");
    let error = call("least", &[""]).unwrap_err();
    assert!(error.to_string().contains("the function failed"), "{error}");
    let error = sandbox::call_each("/dev/null", "echo", &[]).unwrap_err();
    assert!(!error.to_string().is_empty());
}

/// A program that never waits for a call.
#[test]
fn programs_without_functions_are_no_sandboxes() {
    let busybox =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    if !has_kvm("programs_without_functions_are_no_sandboxes") {
        return;
    }
    let error = sandbox::call_each(busybox.to_str().unwrap(), "echo", &[]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the program cannot be called: it has ended"),
        "{text}"
    );
}

/// A function of this process that calls the program, or resets the VM, would wait for itself.
#[test]
fn functions_of_the_host_cannot_call_back() {
    if !has_kvm("functions_of_the_host_cannot_call_back") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox::start(&compile(directory.path())).unwrap();
    let exports = sandbox.exports().clone();
    sandbox.exports().register("twice", move |_| {
        let called = exports.call("echo", b"", None);
        let reset = exports.reset();
        match (called, reset) {
            (Err(CallError::Nested), Err(ResetError::Nested)) => Ok(b"refused".to_vec()),
            other => panic!("{other:?}"),
        }
    });
    let output = sandbox.call("host", b"", Some(PATIENCE)).unwrap();
    assert_eq!(output, b"refused");
    assert_eq!(sandbox.call("echo", b"on", Some(PATIENCE)).unwrap(), b"on");
}

/// The program waits for a function of this process, which takes long. A reset waits too, but not for ever.
#[test]
fn functions_of_the_host_that_do_not_return() {
    if !has_kvm("functions_of_the_host_that_do_not_return") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox::start(&compile(directory.path())).unwrap();
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    sandbox.exports().register("twice", move |input| {
        // Until the test lets it go on.
        let _ = receiver.lock().unwrap().recv();
        Ok(input.to_vec())
    });
    let soon = Some(Duration::from_millis(200));
    for round in 0..2 {
        let error = sandbox.call("host", b"", soon).unwrap_err();
        assert!(matches!(error, CallError::Late), "{round}: {error}");
        let error = sandbox.call("echo", b"", soon).unwrap_err();
        assert!(matches!(error, CallError::Poisoned), "{round}: {error}");
        let error = sandbox.reset().unwrap_err();
        assert!(matches!(error, ResetError::Waiting), "{round}: {error}");
        sender.send(()).unwrap();
        // The reset that was given up is made now, or another one.
        sandbox.reset().unwrap();
        let output = sandbox.call("echo", b"on", Some(PATIENCE)).unwrap();
        assert_eq!(output, b"on", "{round}");
    }
}
