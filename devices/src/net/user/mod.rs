//! A network that needs no privileges: the VM is alone in 10.0.2.0/24, its packets end in this
//! process, and sockets of this process carry the contents on.
//!
//! A TCP connection of the guest ends at a smoltcp socket here, and a socket of the host carries
//! its bytes on. So no packet of the guest reaches the host's network, and the host's stack handles
//! loss, congestion and routes. The ring loses no packets and allows the largest IP packet, so
//! segments have the maximum length and are never cut. smoltcp searches all sockets for each packet,
//! so each connection has its own socket set, as in the guest.

mod backend;
mod datagrams;
mod events;
mod forward;
mod gate;
mod link;
mod network;
mod policy;
mod streams;
#[cfg(test)]
mod tests;

pub use backend::User;
pub use forward::{Forward, ForwardError, Protocol};
pub use gate::{Gate, Visit};
pub use network::{GATEWAY, GUEST, GUEST_MAC, NAME_SERVER, PREFIX};
pub use policy::Policy;
