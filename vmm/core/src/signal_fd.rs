//! Signals that are read from a descriptor (signalfd(2)) and not handled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use vmm_sys_util::signal::create_sigset;

/// Length of the kernel's `struct signalfd_siginfo`, which begins with the signal's number.
const INFO: usize = size_of::<libc::signalfd_siginfo>();

/// Signals that are blocked, and readable from a descriptor.
#[derive(Debug)]
pub struct SignalFd {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl SignalFd {
    /// Blocks signals in the calling thread, and in threads that it starts from now on.
    ///
    /// # Errors
    /// A number is not a signal number, or the host has no free descriptor.
    pub fn block(signals: &[libc::c_int]) -> io::Result<Self> {
        let set = sigset(signals)?;
        let before = change_mask(libc::SIG_BLOCK, &set)?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the kernel only reads the set, which outlives the call.
        let fd = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has made the descriptor, which has no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { descriptor, before })
    }

    /// The number of the next pending signal; `None` if none is pending.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        let mut info = [0; INFO];
        match rustix::io::read(&self.descriptor, &mut info) {
            Ok(INFO) => {}
            _ => return None,
        }
        let (number, _) = info.split_first_chunk()?;
        i32::try_from(u32::from_ne_bytes(*number)).ok()
    }

    /// Gives the calling thread the signal mask that it had when the signals were blocked. The signals `kept`
    /// stay blocked.
    pub(crate) fn restore(&self, kept: &[libc::c_int]) {
        let mut mask = self.before;
        for &signal in kept {
            // SAFETY: the set is initialised. An unknown number is refused.
            unsafe { libc::sigaddset(&raw mut mask, signal) };
        }
        // The set is one that the C library made, so the call cannot fail.
        let _ = change_mask(libc::SIG_SETMASK, &mask);
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A set of signals.
pub(crate) fn sigset(signals: &[libc::c_int]) -> io::Result<libc::sigset_t> {
    Ok(create_sigset(signals)?)
}

/// Changes the signal mask of the calling thread. Result: the mask before.
pub(crate) fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = sigset(&[])?;
    // SAFETY: both sets are initialised and outlive the call, which writes the second one. A mask
    // changes when handlers run, not what they may access.
    let error = unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), &raw mut before) };
    match error {
        0 => Ok(before),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
