//! Waiting for one descriptor by `poll`.
//!
//! The seccomp filter of the console's thread allows `poll` and not `ppoll`, which `rustix` calls.

use rustix::event::PollFlags;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until a descriptor has one of these events or an error, for at most `time` if one is
/// given. Returns whether it has; a signal ends the wait early.
pub(crate) fn wait(descriptor: BorrowedFd<'_>, events: PollFlags, time: Option<Duration>) -> bool {
    let mut entry = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: events.bits().cast_signed(),
        revents: 0,
    };
    // Rounded up: the caller must not wake too early again and again.
    let timeout = time.map_or(-1, |time| {
        i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the pointer is to one initialised entry, which outlives the call, and the count is 1.
    unsafe { libc::poll(&raw mut entry, 1, timeout) };
    entry.revents != 0
}
