//! An event of the host that threads wait for: an eventfd.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An eventfd. Its descriptor is readable from a [`signal`](Self::signal) to the next
/// [`take`](Self::take).
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// An event without signals.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Signals the event.
    pub fn signal(&self) {
        // Fails only if the counter is at its limit: then the event is signalled already.
        let _: Result<usize, _> = write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes all signals since the last call. Result: their number.
    pub fn take(&self) -> u64 {
        let mut count = [0; size_of::<u64>()];
        match read(&self.0, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            // There are none.
            Err(_) => 0,
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
