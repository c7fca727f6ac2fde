//! Ports of the host that lead to the guest.

use std::io;
use std::net::SocketAddr;

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

impl Forward {
    /// An error of its port.
    pub(super) fn failed(&self) -> impl Fn(io::Error) -> ForwardError + Copy {
        let address = self.host;
        move |source| ForwardError::Port { address, source }
    }
}
