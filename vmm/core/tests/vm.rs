//! The VM with small guests in place of the runtime: boot at CPL 3, host calls, exceptions, and
//! every way a guest can break itself.

#[path = "vm/code.rs"]
mod code;
mod guest;

use guest::{Guest, run_guest};
use hartline_abi::report::ExitKind;
use hartline_vmm::platform::{Kvm, VmFailure};
use hartline_vmm::{End, Stop};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler};

/// Runs the test body only if KVM is available; otherwise the test is reported as skipped.
macro_rules! kvm_test {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        $(#[$meta])*
        #[test]
        fn $name() {
            if guest::kvm_available(stringify!($name)) $body
        }
    };
}

/// One of the guests.
fn named(name: &str) -> Guest {
    Guest::new(code::machine_code(), code::entry(name))
}

fn exit_code(end: &End) -> Option<u32> {
    match end {
        End::Report(report) if report.kind == ExitKind::Exited as u32 => Some(report.code),
        _ => None,
    }
}

fn failure(end: &End) -> Option<VmFailure> {
    match end {
        End::Failed(failure) => Some(*failure),
        _ => None,
    }
}

kvm_test! {
    fn boots_at_cpl_3_and_reports_its_end() {
        assert_eq!(exit_code(&run_guest(&named("exit")).end), Some(42));
    }
}

kvm_test! {
    /// #UD goes through the stub to the handler at CPL 3, which checks vector and
    /// rip in the frame and continues after the instruction by its own `iretq`.
    fn exceptions_reach_cpl_3_and_resume() {
        assert_eq!(exit_code(&run_guest(&named("exception")).end), Some(6));
    }
}

kvm_test! {
    /// #PF: vector, error code and address.
    fn page_faults_tell_their_address() {
        assert_eq!(exit_code(&run_guest(&named("page_fault")).end), Some(14));
    }
}

kvm_test! {
    fn tlb_flush_gate_returns() {
        assert_eq!(exit_code(&run_guest(&named("flush")).end), Some(3));
    }
}

kvm_test! {
    fn ports_outside_ours_fault() {
        assert_eq!(exit_code(&run_guest(&named("port")).end), Some(13));
    }
}

kvm_test! {
    fn tsc_is_the_one_that_was_told() {
        assert_eq!(exit_code(&run_guest(&named("tsc")).end), Some(1));
    }
}

kvm_test! {
    fn fxsave_area_and_avx_work_if_offered() {
        assert_eq!(exit_code(&run_guest(&named("avx")).end), Some(1));
    }
}

kvm_test! {
    fn unknown_host_calls_are_answered() {
        assert_eq!(exit_code(&run_guest(&named("bad_call")).end), Some(38));
    }
}

kvm_test! {
    fn write_to_the_supervisor_slot_ends_the_vm() {
        let end = run_guest(&named("write_supervisor")).end;
        assert!(
            matches!(failure(&end), Some(VmFailure::ProtectedWrite(_))),
            "{end:?}"
        );
    }
}

kvm_test! {
    fn broken_gs_ends_the_vm() {
        let end = run_guest(&named("broken_gs")).end;
        assert!(
            matches!(failure(&end), Some(VmFailure::TripleFault | VmFailure::Internal(_))),
            "{end:?}"
        );
    }
}

kvm_test! {
    fn reading_a_port_ends_the_vm() {
        assert_eq!(failure(&run_guest(&named("port_read")).end), Some(VmFailure::PortRead(0x510)));
    }
}

kvm_test! {
    fn a_spinning_guest_is_ended_in_time() {
        let start = Instant::now();
        let guest = Guest { timeout: Some(Duration::from_millis(100)), ..named("spin") };
        let end = run_guest(&guest).end;
        assert!(matches!(end, End::Stopped(Stop::Timeout)), "{end:?}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

kvm_test! {
    fn a_waiting_guest_is_ended_in_time() {
        let start = Instant::now();
        let guest = Guest { timeout: Some(Duration::from_millis(100)), ..named("wait") };
        let end = run_guest(&guest).end;
        assert!(matches!(end, End::Stopped(Stop::Timeout)), "{end:?}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

kvm_test! {
    fn counters_count() {
        let outcome = run_guest(&named("flush"));
        let [vcpu, _] = outcome.counters.as_ref().expect("asked for");
        assert!(vcpu.get("exits") > 0, "{vcpu:?}");
    }
}

extern "C" fn ignore(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

kvm_test! {
    /// Linux interrupts KVM_CREATE_VM if a signal is pending.
    fn a_vm_is_created_while_signals_come() {
        let signal = SIGRTMIN() + 1;
        register_signal_handler(signal, ignore).expect("a handler");
        let kvm = Kvm::open(Path::new(Kvm::DEVICE)).expect("KVM");
        let ends = AtomicBool::new(false);
        // SAFETY: the calling thread was made by the C library, which knows it.
        let thread = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    // SAFETY: the thread waits for the end of this scope.
                    unsafe { libc::pthread_kill(thread, signal) };
                    // Lets the thread do its own work between two signals.
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            let created: Result<Vec<_>, _> = (0..200).map(|_| kvm.create_vm().map(drop)).collect();
            ends.store(true, Ordering::Relaxed);
            created.map(drop).expect("a VM");
        });
    }
}
