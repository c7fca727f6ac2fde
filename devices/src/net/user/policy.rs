//! The destinations that the guest may send to.

use super::network::{GATEWAY, NAME_SERVER, PREFIX};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// Maps a destination of the guest to an address of the host's network. `None` if the guest may not
/// send there.
pub type Policy = fn(SocketAddrV4) -> Option<SocketAddr>;

/// Port of name servers.
const DOMAIN: u16 = 53;
/// The configuration of the host's resolver (resolv.conf(5)).
const RESOLVER: &str = "/etc/resolv.conf";

/// The default [`Policy`]. It allows all destinations but the guest's own network, the host's
/// loopback interface, link-local addresses (where clouds serve credentials), and multicast groups.
pub(super) fn destination(to: SocketAddrV4) -> Option<SocketAddr> {
    let ip = *to.ip();
    if ip == NAME_SERVER {
        return (to.port() == DOMAIN).then(name_server);
    }
    let mask = u32::MAX << (32 - PREFIX);
    let is_inside = ip.to_bits() & mask == GATEWAY.to_bits() & mask;
    // 0.0.0.0/8 is this host, and 240.0.0.0/4 is reserved.
    let is_special = ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.octets()[0] == 0
        || ip.octets()[0] >= 240;
    (!is_inside && !is_special && to.port() != 0).then_some(to.into())
}

/// The host's first name server at this time.
fn name_server() -> SocketAddr {
    let text = fs::read_to_string(RESOLVER).unwrap_or_default();
    // The default of resolver(3).
    let ip = first_server(&text).unwrap_or(Ipv4Addr::LOCALHOST.into());
    SocketAddr::new(ip, DOMAIN)
}

/// The first name server of a resolv.conf whose address has no zone.
fn first_server(text: &str) -> Option<IpAddr> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        is_server.then(|| words.next()?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations() {
        let at = |text: &str| destination(text.parse().unwrap());
        for good in ["192.0.2.1:80", "10.0.3.2:53", "100.64.0.1:65535"] {
            assert_eq!(at(good), Some(good.parse().unwrap()));
        }
        for bad in [
            "127.0.0.1:22",
            "10.0.2.2:22",
            "10.0.2.3:80",
            "10.0.2.77:1",
            "169.254.169.254:80",
            "0.0.0.0:22",
            "224.0.0.1:9",
            "255.255.255.255:67",
            "192.0.2.1:0",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
        assert_eq!(at("10.0.2.3:53").map(|to| to.port()), Some(53));
    }

    #[test]
    fn name_servers() {
        let text = "# nameserver 1.1.1.1\nsearch x\nnameserver fe80::1%eth0\nnameserver ::1\n";
        assert_eq!(first_server(text), Some("::1".parse().unwrap()));
        assert_eq!(first_server(""), None);
    }
}
