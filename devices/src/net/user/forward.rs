//! Ports of the host that lead to the guest.

use super::{Events, Source};
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

/// Protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

/// A port of the host that leads to one of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Its protocol.
    pub protocol: Protocol,
    /// Where the host listens.
    pub host: SocketAddr,
    /// The guest's port.
    pub guest: u16,
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The host does not give the port.
    #[error("cannot listen at {address}: {source}")]
    Port {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The host has no descriptors left.
    #[error("epoll: {source}")]
    Host {
        /// Why not.
        source: io::Error,
    },
}

/// A socket at a port of the host that leads to the guest.
#[derive(Debug)]
pub(super) struct Listener<S> {
    pub socket: S,
    /// The guest's port.
    pub guest: u16,
}

impl Forward {
    /// Listens at the port of the host, with a socket that `bind` makes and whose calls do not
    /// wait. What comes there is told as `source`.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) fn listen<S: AsFd>(
        &self,
        bind: fn(SocketAddr) -> io::Result<S>,
        source: Source,
        events: &Events,
    ) -> Result<Listener<S>, ForwardError> {
        let address = self.host;
        let failed = |source| ForwardError::Port { address, source };
        let socket = bind(address).map_err(failed)?;
        SockRef::from(&socket)
            .set_nonblocking(true)
            .map_err(failed)?;
        let watched = events.watch(socket.as_fd().as_raw_fd(), source);
        watched.map_err(failed)?;
        let guest = self.guest;
        Ok(Listener { socket, guest })
    }
}
