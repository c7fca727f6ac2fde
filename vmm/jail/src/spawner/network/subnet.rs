//! Addresses of tenants' networks.

use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Length of the prefix of a tenant's network, bits.
pub const PREFIX: u8 = 24;
/// Length of the prefix of a tenant's IPv6 network, bits.
pub const PREFIX6: u8 = 64;

/// The addresses of a tenant's network. IPv6 addresses end with the host part of the IPv4
/// addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    /// IPv4.
    pub v4: Ipv4Net,
    /// IPv6, if the network has it.
    pub v6: Option<Ipv6Net>,
}

impl Subnet {
    /// The subnet of a number in the ranges of all tenants; `None` if the ranges are too small.
    pub fn of(v4: Ipv4Net, v6: Option<Ipv6Net>, number: u32) -> Option<Self> {
        let v4 = v4.subnets(PREFIX).ok()?.nth(number as usize)?;
        let v6 = match v6 {
            Some(range) => Some(part(range, number)?),
            None => None,
        };
        Some(Self { v4, v6 })
    }

    /// The host's address.
    pub fn gateway(&self) -> Ipv4Addr {
        self.v4.hosts().next().unwrap_or(self.v4.addr())
    }

    /// The IPv6 address of the machine with an IPv4 address.
    pub fn second(&self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        let host = u128::from(address.to_bits() & self.v4.hostmask().to_bits());
        let v6 = self.v6?;
        Some(Ipv6Addr::from_bits(v6.network().to_bits() | host))
    }
}

/// The network of a number. (A range may have too many networks to iterate over.)
fn part(range: Ipv6Net, number: u32) -> Option<Ipv6Net> {
    let bits = u32::from(PREFIX6.checked_sub(range.prefix_len())?);
    if u128::from(number) >> bits.min(127) != 0 {
        return None;
    }
    let shift = 128 - u32::from(PREFIX6);
    let address = range.network().to_bits() | u128::from(number) << shift;
    Ipv6Net::new(Ipv6Addr::from_bits(address), PREFIX6).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parts_of_the_range() {
        let of = |range: &str, number| {
            let subnet = Subnet::of(range.parse().unwrap(), None, number);
            subnet.map(|subnet| subnet.v4.to_string())
        };
        assert_eq!(of("10.213.0.0/16", 7).as_deref(), Some("10.213.7.0/24"));
        assert_eq!(of("10.213.0.0/16", 256), None);
        assert_eq!(of("10.1.2.0/24", 0).as_deref(), Some("10.1.2.0/24"));
        assert_eq!(of("10.1.2.0/24", 1), None);
    }

    #[test]
    fn both_addresses_end_alike() {
        let v4 = "10.213.0.0/16".parse().unwrap();
        let range = |text: &str| Some(text.parse().unwrap());
        let subnet = Subnet::of(v4, range("fd12:3456::/32"), 258);
        assert_eq!(subnet, None, "no IPv4");
        let subnet = Subnet::of(v4, range("fd12:3456::/32"), 7).unwrap();
        assert_eq!(subnet.v6, range("fd12:3456:0:7::/64"));
        assert_eq!(subnet.gateway(), Ipv4Addr::new(10, 213, 7, 1));
        let gateway = subnet.second(subnet.gateway());
        assert_eq!(gateway, "fd12:3456:0:7::1".parse().ok());
        let last = subnet.second(Ipv4Addr::new(10, 213, 7, 254));
        assert_eq!(last, "fd12:3456:0:7::fe".parse().ok());
        assert_eq!(Subnet::of(v4, range("fd00::/64"), 1), None);
        assert!(Subnet::of(v4, range("fd00::/64"), 0).is_some());
        assert_eq!(Subnet::of(v4, range("fd00::/63"), 2), None);
    }
}
