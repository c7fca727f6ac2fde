//! The network interfaces and routes that programs see.

use super::Network;
use crate::convert::low_u32;
use crate::ids::INTERFACES;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use hartline_linux::if_::{IFF_BROADCAST, IFF_LOOPBACK, IFF_LOWER_UP, IFF_RUNNING, IFF_UP};
use hartline_linux::rtnetlink::{RTN_BROADCAST, RTN_LOCAL, RTN_MULTICAST, RTN_UNICAST};

/// Index of the loopback interface.
pub const LOOPBACK: u32 = 1;
/// Index of the interface that leads out of the VM.
pub const ETHERNET: u32 = 2;

/// Largest IP packet over the loopback interface, bytes.
pub const LOOPBACK_MTU: usize = 65_536;

/// Packets and bytes that went through an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of the packets, with Ethernet headers.
    pub bytes: u64,
    /// Number of damaged packets among them.
    pub errors: u64,
}

impl Traffic {
    /// Counts a packet of `length` bytes.
    pub fn add(&mut self, length: usize) {
        self.packets += 1;
        self.bytes += length as u64;
    }
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Index of the interface, from 1.
    pub index: u32,
    /// Name of the interface.
    pub name: &'static str,
    /// Set of `IFF_` flags.
    pub flags: u32,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Addresses of the interface, each with its prefix length, bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Packets received and sent. Data within the VM is not counted.
    pub traffic: [Traffic; 2],
}

/// A route to a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteEntry {
    /// Address and prefix length of the network.
    pub network: (IpAddr, u8),
    /// The gateway; none if the network is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address of packets, for routes without a gateway.
    pub source: Option<IpAddr>,
    /// Index of the interface.
    pub interface: u32,
    /// `RTN_…`; only routes of the type `RTN_UNICAST` are in the main table.
    pub kind: u8,
}

impl Interface {
    /// Returns the loopback interface.
    fn loopback() -> Interface {
        Interface {
            index: LOOPBACK,
            name: INTERFACES[0],
            flags: IFF_UP | IFF_LOOPBACK | IFF_RUNNING | IFF_LOWER_UP,
            mac: [0; 6],
            mtu: low_u32(LOOPBACK_MTU as u64),
            addresses: vec![
                (Ipv4Addr::LOCALHOST.into(), 8),
                (Ipv6Addr::LOCALHOST.into(), 128),
            ],
            traffic: [Traffic::default(); 2],
        }
    }

    /// Whether this is the loopback interface.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.flags & IFF_LOOPBACK != 0
    }

    /// Returns the IPv4 address and its prefix length.
    #[must_use]
    pub fn ipv4(&self) -> Option<(Ipv4Addr, u8)> {
        let mut addresses = self.addresses.iter();
        addresses.find_map(|&(address, length)| match address {
            IpAddr::V4(address) => Some((address, length)),
            IpAddr::V6(_) => None,
        })
    }

    /// Returns the broadcast address of the IPv4 network, if there is one.
    #[must_use]
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        let (address, length) = self.ipv4()?;
        let has = self.flags & IFF_BROADCAST != 0 && length < 31;
        has.then(|| Ipv4Addr::from_bits(address.to_bits() | !netmask(length).to_bits()))
    }
}

/// Returns the mask of an IPv4 prefix.
#[must_use]
pub fn netmask(length: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32)));
    Ipv4Addr::from_bits(mask.unwrap_or(0))
}

/// Returns the network of an address with this prefix length.
#[must_use]
pub fn network_of(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            Ipv4Addr::from_bits(address.to_bits() & netmask(length).to_bits()).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128)));
            Ipv6Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
        }
    }
}

impl Network {
    /// Returns all interfaces, ordered by index.
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        let mut interfaces = vec![Interface::loopback()];
        interfaces.extend(self.wire.as_ref().map(|wire| wire.interface()));
        interfaces
    }

    /// Returns the routes out of the VM: default gateways first, then networks on the link.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteEntry> {
        let Some(wire) = &self.wire else {
            return Vec::new();
        };
        let gateways = wire.gateways().into_iter().map(|gateway| RouteEntry {
            network: match gateway {
                IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), 0),
                IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), 0),
            },
            gateway: Some(gateway),
            source: None,
            interface: ETHERNET,
            kind: RTN_UNICAST,
        });
        let addresses = wire.interface().addresses;
        let near = addresses.into_iter().map(|(address, length)| RouteEntry {
            network: (network_of(address, length), length),
            gateway: None,
            source: Some(address),
            interface: ETHERNET,
            kind: RTN_UNICAST,
        });
        gateways.chain(near).collect()
    }

    /// Returns the routes to addresses of the VM itself (`RT_TABLE_LOCAL`).
    #[must_use]
    pub fn local_routes(&self) -> Vec<RouteEntry> {
        let mut routes = Vec::new();
        for interface in self.interfaces() {
            let mut add = |kind, network, source| {
                routes.push(RouteEntry {
                    network,
                    gateway: None,
                    source: Some(source),
                    interface: interface.index,
                    kind,
                });
            };
            for &(address, length) in &interface.addresses {
                let whole = if address.is_ipv4() { 32 } else { 128 };
                if interface.is_loopback() && length < whole {
                    add(RTN_LOCAL, (network_of(address, length), length), address);
                }
                add(RTN_LOCAL, (address, whole), address);
                if let IpAddr::V4(ip) = address
                    && length < 31
                {
                    let last = ip.to_bits() | !netmask(length).to_bits();
                    add(
                        RTN_BROADCAST,
                        (Ipv4Addr::from_bits(last).into(), 32),
                        address,
                    );
                }
            }
            let ipv6 = interface
                .addresses
                .iter()
                .find(|(address, _)| address.is_ipv6());
            if let Some(&(address, _)) = ipv6.filter(|_| !interface.is_loopback()) {
                let groups = Ipv6Addr::from_bits(0xff << 120);
                add(RTN_MULTICAST, (groups.into(), 8), address);
            }
        }
        routes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_become_masks_networks_and_broadcast_addresses() {
        assert_eq!(netmask(0), Ipv4Addr::UNSPECIFIED);
        assert_eq!(netmask(20), Ipv4Addr::new(255, 255, 240, 0));
        assert_eq!(netmask(32), Ipv4Addr::BROADCAST);
        let network = |text: &str, length| network_of(text.parse().unwrap(), length).to_string();
        assert_eq!(network("10.1.2.3", 8), "10.0.0.0");
        assert_eq!(network("10.1.2.3", 0), "0.0.0.0");
        assert_eq!(network("fd00:1:2:3:4::1", 48), "fd00:1:2::");
        assert_eq!(network("fd00::1", 0), "::");
        let mut interface = Interface {
            flags: IFF_BROADCAST,
            addresses: vec![("192.0.2.77".parse().unwrap(), 26)],
            ..Interface::loopback()
        };
        assert_eq!(interface.broadcast(), Some(Ipv4Addr::new(192, 0, 2, 127)));
        interface.addresses[0].1 = 31;
        assert_eq!(interface.broadcast(), None);
        assert_eq!(Interface::loopback().broadcast(), None);
    }

    #[test]
    fn without_a_wire_there_is_loopback_only() {
        let net = Network::default();
        assert_eq!(net.routes(), []);
        let local = net.local_routes();
        let local = local
            .iter()
            .map(|route| (route.kind, route.network.0.to_string()));
        let expected = [
            (RTN_LOCAL, "127.0.0.0"),
            (RTN_LOCAL, "127.0.0.1"),
            (RTN_BROADCAST, "127.255.255.255"),
            (RTN_LOCAL, "::1"),
        ];
        assert!(local.eq(expected.map(|(kind, network)| (kind, network.into()))));
        let interfaces = net.interfaces();
        assert_eq!(interfaces.len(), 1);
        assert!(
            interfaces[0].is_loopback() && interfaces[0].ipv4() == Some((Ipv4Addr::LOCALHOST, 8))
        );
    }
}
