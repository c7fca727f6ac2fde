//! Makes a vCPU leave the guest at any time.

use super::Error;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler};

/// Forces `KVM_RUN` of one vCPU thread to return, even if the thread is just about to call it.
///
/// The kicker stores `immediate_exit` and then sends a signal. If the signal arrives before
/// `KVM_RUN`, the stored byte makes `KVM_RUN` return at once. The thread clears the byte before it
/// checks for requests ([`super::Vcpu::run`]).
#[derive(Debug, Default)]
pub struct Kicker {
    target: Mutex<Option<Target>>,
}

#[derive(Debug)]
struct Target {
    thread: libc::pthread_t,
    immediate_exit: NonNull<u8>,
}

// SAFETY: the pointer is to memory shared with the kernel, used as an atomic, and
// valid while the target is registered.
unsafe impl Send for Target {}

/// The signal that interrupts `KVM_RUN`. Its handler does nothing.
fn kick_signal() -> i32 {
    SIGRTMIN()
}

extern "C" fn ignore(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

impl Kicker {
    /// Makes the calling thread the target; `immediate_exit` is the byte in its
    /// vCPU's `kvm_run`, which must stay mapped until [`Kicker::unregister`].
    pub(super) fn register(&self, immediate_exit: NonNull<u8>) -> Result<(), Error> {
        static HANDLER: Once = Once::new();
        let mut result = Ok(());
        HANDLER.call_once(|| result = register_signal_handler(kick_signal(), ignore));
        result.map_err(|e| Error::Request {
            request: "handler of the kick signal",
            source: io::Error::from_raw_os_error(e.errno()),
        })?;
        // SAFETY: the calling thread was made by the C library, which knows it.
        let thread = unsafe { libc::pthread_self() };
        *self.lock() = Some(Target {
            thread,
            immediate_exit,
        });
        Ok(())
    }

    /// Ends the registration: later kicks have no effect.
    pub(super) fn unregister(&self) {
        *self.lock() = None;
    }

    /// Makes the vCPU leave the guest.
    pub fn kick(&self) {
        if let Some(target) = &*self.lock() {
            // SAFETY: the vCPU's `kvm_run` stays mapped while the target is registered, which the lock
            // ensures here. The kernel and this process access the byte only as an atomic one.
            let byte = unsafe { AtomicU8::from_ptr(target.immediate_exit.as_ptr()) };
            byte.store(1, Ordering::SeqCst);
            // SAFETY: the thread unregisters before it ends, so the handle is valid.
            unsafe { libc::pthread_kill(target.thread, kick_signal()) };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Target>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
