//! The socket device (virtio 1.3, section 5.10): streams between the guest and programs of the
//! host, which use Unix sockets ([`Host`]), and one thread that moves the bytes. Ports of the guest
//! and of the host are separate. CID 2 is the host, and there are no other peers.

mod backend;
mod connection;
mod connections;
mod device;
mod rx;
mod stats;
#[cfg(test)]
mod tests;
mod tx;
mod worker;

pub use backend::{Host, HostError};
pub use device::Vsock;
pub use stats::{Counters, Statistics};
