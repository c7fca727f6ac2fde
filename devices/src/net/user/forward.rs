//! Ports of the host that are forwarded to the guest.

use super::events::{Events, Source};
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Protocol of a forwarded port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of the host that is forwarded to a port of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Protocol of both ports.
    pub protocol: Protocol,
    /// Address and port at which the host listens.
    pub host: SocketAddr,
    /// The guest's port.
    pub guest: u16,
}

/// Why a network cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The host refuses the port.
    #[error("cannot listen at {address}: {source}")]
    Port {
        /// Address and port.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The host has no descriptors left.
    #[error("cannot create an epoll set: {source}")]
    Host {
        /// The reason.
        source: io::Error,
    },
}

/// A socket at a forwarded port of the host.
#[derive(Debug)]
pub(super) struct Listener<S> {
    pub socket: S,
    /// The guest's port.
    pub guest: u16,
}

impl Forward {
    /// Listens at the port of the host with a non-blocking socket that `bind` creates. Its events
    /// have the source `source`.
    ///
    /// # Errors
    /// The port is not available.
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
        events.add(&socket, source).map_err(failed)?;
        let guest = self.guest;
        Ok(Listener { socket, guest })
    }
}
