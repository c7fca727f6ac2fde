//! The addresses that are not public.

use ipnet::IpNet;
use std::net::IpAddr;

/// IPv4 addresses that are not public (RFC 6890), multicast, and reserved ones.
pub(super) const NOT_PUBLIC: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, \
    172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3";
/// The IPv6 addresses that are not public: all that are not global unicast (2000::/3), and of those
/// the ranges for IETF protocols, documentation, and 6to4, which leads to any IPv4 address.
pub(super) const NOT_PUBLIC6: &str =
    "::/3, 4000::/2, 8000::/1, 2001::/23, 2001:db8::/32, 2002::/16, 3fff::/20";

/// Whether an address is public: it is outside of all networks that are not reached from everywhere.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    let ranges = match address {
        IpAddr::V4(_) => NOT_PUBLIC,
        IpAddr::V6(_) => NOT_PUBLIC6,
    };
    // A range that could not be read would be one that nothing leaves.
    ranges.split(", ").all(|range| {
        range
            .parse::<IpNet>()
            .is_ok_and(|range| !range.contains(&address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses() {
        let is = |text: &str| is_public(text.parse().unwrap());
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "172.15.0.1",
            "172.32.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
        ] {
            assert!(is(public), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "fd00::1",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2002:a00:1::1",
        ] {
            assert!(!is(private), "{private}");
        }
    }
}
