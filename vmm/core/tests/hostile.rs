//! Guests that attack interrupts and rings: each harms only itself, and ends with a reason that
//! names the attack.

#[path = "hostile/code.rs"]
mod code;
#[path = "hostile/error_code.rs"]
mod error_code;
mod guest;

use guest::{Guest, run_guest};
use hartline_abi::interrupt::{FIRST_VECTOR, stub_of};
use hartline_abi::layout::{PAGE_SIZE, SUPERVISOR_BASE};
use hartline_abi::report::ExitKind;
use hartline_devices::virtio::DeviceError;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::platform::VmFailure;
use hartline_vmm::probe::KvmKind;
use hartline_vmm::snapshot::{self, Request, Then, Trigger};
use hartline_vmm::{End, GateError, Stop};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Defines tests that need KVM and a network interface.
macro_rules! kvm_tests {
    ($($(#[$meta:meta])* fn $name:ident() $body:block)*) => {$(
        $(#[$meta])*
        #[test]
        fn $name() {
            let name = stringify!($name);
            if guest::kvm_available(name) && network_available(name) $body
        }
    )*};
}

/// A guest whose network device interrupts it by a vector.
fn with_vectors(name: &str) -> Guest {
    Guest {
        mode: Mode::Injected,
        has_network: true,
        ..code::guest(name)
    }
}

/// Whether tests may make network interfaces. If not, the test is reported as skipped.
fn network_available(test: &str) -> bool {
    let available = rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    if !available {
        eprintln!("skipped: {test}: needs root and /dev/net/tun");
    }
    available
}

fn end_of(name: &str) -> End {
    run_guest(&with_vectors(name)).end
}

fn exit_code(end: &End) -> Option<u32> {
    match end {
        End::Report(report) if report.kind == ExitKind::Exited as u32 => Some(report.code),
        _ => None,
    }
}

#[track_caller]
fn expect_failure(name: &str, failure: VmFailure) {
    let end = end_of(name);
    assert!(
        matches!(end, End::Failed(found) if found == failure),
        "{end:?}"
    );
}

#[track_caller]
fn expect_stop(name: &str, stop: Stop) {
    let end = end_of(name);
    assert!(
        matches!(end, End::Stopped(found) if found == stop),
        "{end:?}"
    );
}

kvm_tests! {
    fn a_device_interrupts_by_its_vector() {
        let outcome = run_guest(&with_vectors("delivered"));
        assert_eq!(exit_code(&outcome.end), Some(1), "{:?}", outcome.end);
    }

    fn the_table_cannot_be_written() {
        expect_failure("write_idt", VmFailure::ProtectedWrite("the interrupt descriptor table"));
    }

    fn gates_lead_to_stubs_of_interrupts_only() {
        let (vector, handler) = (FIRST_VECTOR, SUPERVISOR_BASE + 2 * PAGE_SIZE);
        assert_ne!(handler, stub_of(0));
        expect_stop("gate_to_stubs", Stop::Gate(GateError::Gate { vector, handler }));
    }

    fn vectors_of_others_are_refused() {
        expect_stop("gate_of_another", Stop::Gate(GateError::Vector(FIRST_VECTOR + 1)));
        expect_stop("gate_of_exception", Stop::Gate(GateError::Vector(14)));
    }

    fn the_wanted_table_is_in_ram() {
        expect_stop("table_elsewhere", Stop::Gate(GateError::Place));
    }

    fn without_vectors_there_are_no_gates() {
        let guest = Guest { has_network: true, ..code::guest("no_vectors") };
        assert_eq!(guest.mode, Mode::Safepoint);
        let end = run_guest(&guest).end;
        assert_eq!(exit_code(&end), Some(libc::EOPNOTSUPP.unsigned_abs()), "{end:?}");
    }

    fn a_vector_of_nobody_ends_the_vm() {
        expect_failure("nobody", VmFailure::Nobody(error_code::told(code::NOBODY)));
    }

    fn a_device_without_a_gate_ends_the_vm() {
        expect_failure("no_gate", VmFailure::Nobody(error_code::told(FIRST_VECTOR)));
    }

    /// Interrupts still arrive after an EOI without a pending interrupt.
    fn acknowledging_nothing_does_nothing() {
        let end = end_of("acknowledge");
        assert_eq!(exit_code(&end), Some(3), "{end:?}");
    }

    /// The host's timer interrupts a guest that masks interrupts.
    fn masked_interrupts_do_not_keep_the_processor() {
        let start = Instant::now();
        let guest = Guest {
            timeout: Some(Duration::from_millis(200)),
            ..with_vectors("mask")
        };
        let end = run_guest(&guest).end;
        assert!(matches!(end, End::Stopped(Stop::Timeout)), "{end:?}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    /// The time limit of a snapshot counts also if the guest never comes to a checkpoint.
    fn masked_interrupts_do_not_delay_the_end_of_a_snapshot() {
        for (then, expected) in [
            (Then::End, Stop::Snapshot { is_written: false }),
            (Then::Continue, Stop::Timeout),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let late = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&late);
            let snapshot = Request {
                directory: folder.path().join("snapshot"),
                trigger: Trigger::Signal,
                within: Some(Duration::from_millis(100)),
                then,
                report: Arc::new(move |written| {
                    assert!(matches!(written, Err(snapshot::Error::Late { .. })), "{written:?}");
                    counted.fetch_add(1, Ordering::Relaxed);
                }),
            };
            let start = Instant::now();
            let guest = Guest {
                timeout: Some(Duration::from_secs(if then == Then::End { 100 } else { 1 })),
                snapshot: Some(snapshot),
                has_network: false,
                ..with_vectors("mask")
            };
            let end = run_guest(&guest).end;
            assert!(matches!(end, End::Stopped(found) if found == expected), "{end:?}");
            assert!(start.elapsed() < Duration::from_secs(60));
            assert_eq!(late.load(Ordering::Relaxed), 1);
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        }
    }

    fn all_kicks_are_allowed() {
        let end = end_of("kicks");
        assert_eq!(exit_code(&end), Some(11), "{end:?}");
    }

    fn a_corrupt_ring_ends_the_vm() {
        expect_stop("ring", Stop::Device(DeviceError::Ring));
    }

    fn a_corrupt_descriptor_ends_the_vm() {
        expect_stop("descriptor", Stop::Device(DeviceError::Buffer));
    }

    /// MSR accesses end the VM, regardless of how the processor and KVM would handle them.
    fn msrs_end_the_vm() {
        use VmFailure::{MsrRead, MsrWrite};
        for (guest, failure) in [
            ("read_vmx_basic", MsrRead(0x480)),
            ("read_efer", MsrRead(0xc000_0080)),
            ("read_nothing", MsrRead(0x1234_5678)),
            ("write_hsave", MsrWrite(0xc001_0117)),
            ("write_counter", MsrWrite(0xc1)),
            ("write_debugctl", MsrWrite(0x1d9)),
            ("write_system_time", MsrWrite(0x4b56_4d01)),
            ("write_efer", MsrWrite(0xc000_0080)),
        ] {
            expect_failure(guest, failure);
        }
    }

    /// An exception, or the end of the VM if KVM cannot emulate the instruction.
    fn instructions_of_hypervisors_and_counters_fault() {
        for guest in ["rdpmc", "set_vmxe", "vmxon", "vmrun"] {
            let end = end_of(guest);
            let faulted = exit_code(&end) == Some(code::FAULT);
            let ended = matches!(end, End::Failed(VmFailure::Internal(_)));
            assert!(faulted || ended, "{guest}: {end:?}");
        }
    }

    /// Paravirtual KVM also adds some of the processor's own bits (AES, RDRAND) at CPL 0.
    fn cpuid_says_what_guests_may_have_and_no_more() {
        if KvmKind::detect() == KvmKind::Pvm {
            eprintln!("skipped: cpuid: paravirtual KVM adds bits of the processor");
            return;
        }
        let end = end_of("cpuid");
        assert_eq!(exit_code(&end), Some(0), "a leaf: {end:x?}");
    }

    /// A VM that masks interrupts and one that kicks devices take no more than their share of a
    /// processor.
    fn another_vm_keeps_its_throughput() {
        pin();
        let victim = || {
            let start = Instant::now();
            let end = run_guest(&code::guest("victim")).end;
            assert_eq!(exit_code(&end), Some(7), "{end:?}");
            start.elapsed()
        };
        // Other load on the host varies.
        let slower = (0..5).map(|_| {
            let alone = victim();
            let attackers = ["mask", "kicks"].map(|name| {
                thread::spawn(move || {
                    let timeout = Some(Duration::from_secs(3));
                    run_guest(&Guest { timeout, ..with_vectors(name) });
                })
            });
            let attacked = victim();
            for attacker in attackers {
                attacker.join().expect("no panic");
            }
            attacked.as_secs_f64() / alone.as_secs_f64()
        });
        // Three VMs and the device threads of one of them share one processor.
        let best = slower.take_while(|&slower| slower > 5.0).count();
        assert!(best < 5, "more than five times slower, each time");
    }
}

/// Pins this thread, and all threads that it starts, to one processor.
fn pin() {
    hartline_vmm::affinity::run_on(&[0]).expect("processor 0");
}
