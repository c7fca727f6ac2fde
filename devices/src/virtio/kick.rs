//! The kick of a device's thread: an eventfd that wakes it, and a flag that ends it.

use crate::event::Event;
use crate::poll;
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An eventfd that wakes a device's thread, and a flag that ends the thread.
#[derive(Debug)]
pub(crate) struct Kick {
    event: Event,
    stop: AtomicBool,
}

impl Kick {
    /// A kick that was not used yet.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: Event::new()?,
            stop: AtomicBool::new(false),
        })
    }

    /// Wakes the thread.
    pub fn notify(&self) {
        self.event.signal();
    }

    /// Sets whether the thread is to end, and wakes it.
    pub fn set_stop(&self, stop: bool) {
        self.stop.store(stop, Ordering::SeqCst);
        self.notify();
    }

    /// Whether the thread is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Sleeps until the thread is kicked, for at most `time` if one is given.
    pub fn wait(&self, time: Option<Duration>) {
        if poll::wait(self.as_fd(), PollFlags::IN, time) {
            self.clear();
        }
    }

    /// Resets the eventfd. The thread calls this before it looks at the rings: a later kick then
    /// wakes it again.
    pub fn clear(&self) {
        self.event.take();
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
