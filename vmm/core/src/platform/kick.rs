//! Makes a vCPU leave the guest at any time.

use super::Error;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
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
    signal: i32,
    immediate_exit: NonNull<u8>,
}

// SAFETY: the pointer is to memory shared with the kernel, used as an atomic, and
// valid while the target is registered.
unsafe impl Send for Target {}

/// The signal that interrupts `KVM_RUN`: the first real-time signal without a handler when the first VM starts. In
/// the commands and in jails it is `SIGRTMIN`. Its own handler, which stays, does nothing.
///
/// # Errors
/// All real-time signals have handlers.
pub(crate) fn kick_signal() -> Result<i32, Error> {
    static SIGNAL: OnceLock<Result<i32, i32>> = OnceLock::new();
    let signal = SIGNAL.get_or_init(|| {
        let mut signals = SIGRTMIN()..=libc::SIGRTMAX();
        let signal = signals.find(|&signal| !has_handler(signal));
        let signal = signal.ok_or(libc::EBUSY)?;
        match register_signal_handler(signal, ignore) {
            Ok(()) => Ok(signal),
            Err(error) => Err(error.errno()),
        }
    });
    signal.map_err(|errno| Error::Request {
        request: "handler of the kick signal",
        source: io::Error::from_raw_os_error(errno),
    })
}

/// Whether a signal has a handler. An ignored one has none: the handler that does nothing is the same.
fn has_handler(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is passed, so nothing changes. The kernel writes the present one to the local
    // structure, which is a valid one before: zeros are no flags and an empty mask.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0
            || ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.assume_init().sa_sigaction)
    }
}

extern "C" fn ignore(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

impl Kicker {
    /// Makes the calling thread the target; `immediate_exit` is the byte in its
    /// vCPU's `kvm_run`, which must stay mapped until [`Kicker::unregister`].
    pub(super) fn register(&self, immediate_exit: NonNull<u8>) -> Result<(), Error> {
        let signal = kick_signal()?;
        // SAFETY: the calling thread was made by the C library, which knows it.
        let thread = unsafe { libc::pthread_self() };
        *self.lock() = Some(Target {
            thread,
            signal,
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
            unsafe { libc::pthread_kill(target.thread, target.signal) };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Target>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
