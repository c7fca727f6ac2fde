//! Readiness of the host's sockets, by the purpose of each socket.

use crate::epoll::{Buffer, Epoll};
use rustix::event::epoll::{Event, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The purpose of a host socket, with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A connection.
    Stream(u64),
    /// Datagrams between one port of the guest and one host.
    Datagrams(u64),
    /// Connections to a forwarded port.
    Listener(u64),
    /// Datagrams to a forwarded port.
    Forward(u64),
    /// The gate.
    Gate,
}

impl Source {
    fn to_data(self) -> u64 {
        match self {
            Self::Stream(id) => id << 3,
            Self::Datagrams(id) => id << 3 | 1,
            Self::Listener(id) => id << 3 | 2,
            Self::Forward(id) => id << 3 | 3,
            Self::Gate => 4,
        }
    }

    fn from_data(data: u64) -> Self {
        let id = data >> 3;
        match data & 7 {
            0 => Self::Stream(id),
            1 => Self::Datagrams(id),
            2 => Self::Listener(id),
            3 => Self::Forward(id),
            _ => Self::Gate,
        }
    }
}

/// The readiness of the host sockets, edge-triggered: after an event the receiver reads until the
/// socket would block.
#[derive(Debug)]
pub(super) struct Events(Epoll);

impl Events {
    /// No sockets.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new()?))
    }

    /// Adds a socket, until it is closed.
    ///
    /// # Errors
    /// The host's.
    pub fn add(&self, socket: impl AsFd, source: Source) -> io::Result<()> {
        self.0.add(socket, source.to_data())
    }

    /// Waits for events, for at most `limit`.
    ///
    /// # Errors
    /// The host's.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = limit.try_into().map_err(io::Error::other)?;
        let mut entries = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut entries, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The events since the last call.
    ///
    /// # Errors
    /// The host's.
    pub fn take<'a>(
        &self,
        buffer: &'a mut Buffer,
    ) -> io::Result<impl Iterator<Item = (Source, EventFlags)> + use<'a>> {
        let events = self.0.wait(Duration::ZERO, buffer)?;
        let parts = |event: &Event| (Source::from_data(event.data.u64()), event.flags);
        Ok(events.iter().map(parts))
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
