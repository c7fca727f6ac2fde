//! Readiness of the host's sockets, edge-triggered.

use rustix::event::epoll::{CreateFlags, Event, EventData, EventFlags, add, create, wait};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Largest number of events that one call returns.
const EVENTS: usize = 64;

/// Room for the events of one call.
pub(crate) type Buffer = [MaybeUninit<Event>; EVENTS];

/// An empty [`Buffer`].
pub(crate) const fn buffer() -> Buffer {
    [const { MaybeUninit::uninit() }; EVENTS]
}

/// A set of sockets and their readiness. All are edge-triggered: after an event, the caller reads
/// or writes until the socket would block.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a socket, which stays in the set until it is closed. Its events have `number`.
    ///
    /// # Errors
    /// The host's.
    pub fn add(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(add(&self.0, socket, EventData::new_u64(number), events)?)
    }

    /// The events since the last call, or within `timeout`: the number of the socket in `data` and
    /// its readiness in `flags`.
    ///
    /// # Errors
    /// The host's. A signal is no error: there are no events then.
    pub fn wait<'a>(&self, timeout: Duration, buffer: &'a mut Buffer) -> io::Result<&'a [Event]> {
        let timeout = timeout.try_into().map_err(io::Error::other)?;
        match wait(&self.0, &mut buffer[..], Some(&timeout)) {
            Ok((events, _)) => Ok(events),
            Err(Errno::INTR) => Ok(&[]),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
