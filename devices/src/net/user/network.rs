//! The addresses of the network.

use std::net::Ipv4Addr;

/// Address of the VM.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Address of the gateway, from which forwarded connections come.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Address of the name server, which stands for the host's.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// Length of the network's prefix, bits.
pub const PREFIX: u8 = 24;
/// MAC address of the VM's interface. The VM is alone in its network.
pub const GUEST_MAC: [u8; 6] = [0x02, 0, 0, 0, 2, 15];

/// Largest IP packet, bytes.
pub(super) const MTU: u16 = u16::MAX;
