//! Socket addresses: the forms that programs pass, and the form that is compared.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use hartline_abi::vsock::CID_ANY;
use hartline_linux::errno::Errno;
use hartline_linux::socket::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_VSOCK};
use hartline_linux::un::UNIX_PATH_MAX;
use hartline_linux::vm_sockets::{VMADDR_FLAG_TO_HOST, VMADDR_PORT_ANY};

/// Size of `struct sockaddr_in`, bytes.
const INET: usize = 16;
/// Size of `struct sockaddr_in6` without and with its scope, bytes.
const INET6: (usize, usize) = (24, 28);
/// Size of `struct sockaddr_nl`, bytes.
const NETLINK: usize = 12;
/// Size of `struct sockaddr_vm`, bytes.
const VSOCK: usize = 16;

/// The address family of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Within the VM, by path or abstract name.
    Unix,
    /// IPv4.
    Inet,
    /// IPv6, and IPv4 by mapped addresses.
    Inet6,
    /// Requests to the kernel about the network (`AF_NETLINK`).
    Netlink,
    /// Between the VM and its host.
    Vsock,
}

impl Family {
    /// Returns the number of the family (`AF_*`).
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Family::Unix => AF_UNIX,
            Family::Inet => AF_INET,
            Family::Inet6 => AF_INET6,
            Family::Netlink => AF_NETLINK,
            Family::Vsock => AF_VSOCK,
        }
    }
}

/// A socket address. An IPv4-mapped address of an IPv6 socket is stored as an IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// No address yet, or the name of an unbound Unix socket.
    Unnamed,
    /// A socket file.
    Path(Box<[u8]>),
    /// A name outside the file system.
    Abstract(Box<[u8]>),
    /// Internet address and port.
    Inet(SocketAddr),
    /// Port of a netlink socket (0: the kernel), and a set of multicast groups.
    Netlink(u32, u32),
    /// CID and port.
    Vsock(u32, u32),
}

impl Address {
    /// Returns the family in the first bytes of an address.
    ///
    /// # Errors
    /// `EINVAL` if `bytes` is too short.
    pub fn family_of(bytes: &[u8]) -> Result<u16, Errno> {
        let family = bytes.first_chunk().ok_or(Errno::EINVAL)?;
        Ok(u16::from_le_bytes(*family))
    }

    /// Parses the address in `bytes`, for a socket of `family`.
    ///
    /// # Errors
    /// `EINVAL` for a wrong length, `EAFNOSUPPORT` for another family.
    pub fn parse(bytes: &[u8], family: Family) -> Result<Address, Errno> {
        let number = Address::family_of(bytes)?;
        match family {
            Family::Unix if number != AF_UNIX => Err(Errno::EINVAL),
            Family::Unix => parse_unix(&bytes[2..]),
            Family::Inet if bytes.len() < INET => Err(Errno::EINVAL),
            Family::Inet6 if bytes.len() < INET6.0 => Err(Errno::EINVAL),
            Family::Netlink if bytes.len() < NETLINK || number != AF_NETLINK => Err(Errno::EINVAL),
            Family::Vsock if bytes.len() < VSOCK || number != AF_VSOCK => Err(Errno::EINVAL),
            Family::Vsock if bytes[12] & !VMADDR_FLAG_TO_HOST != 0 => Err(Errno::EINVAL),
            _ if number != family.number() => Err(Errno::EAFNOSUPPORT),
            Family::Netlink => {
                let field = |at| u32::from_le_bytes(array(bytes, at));
                Ok(Address::Netlink(field(4), field(8)))
            }
            Family::Vsock => {
                let field = |at| u32::from_le_bytes(array(bytes, at));
                Ok(Address::Vsock(field(8), field(4)))
            }
            Family::Inet => {
                let address = array::<4>(bytes, 4);
                Ok(Address::inet(Ipv4Addr::from(address).into(), port(bytes)))
            }
            Family::Inet6 => {
                let address = Ipv6Addr::from(array::<16>(bytes, 8));
                let scope = match bytes.len() < INET6.1 {
                    true => 0,
                    false => u32::from_le_bytes(array(bytes, 24)),
                };
                Ok(match address.to_ipv4_mapped() {
                    Some(address) => Address::inet(address.into(), port(bytes)),
                    None => Address::Inet(SocketAddrV6::new(address, port(bytes), 0, scope).into()),
                })
            }
        }
    }

    /// Returns an internet address.
    #[must_use]
    pub fn inet(ip: IpAddr, port: u16) -> Address {
        Address::Inet(SocketAddr::new(ip, port))
    }

    /// Returns the unbound address of a family: the wildcard, or no name.
    #[must_use]
    pub fn unbound(family: Family) -> Address {
        match family {
            Family::Unix => Address::Unnamed,
            Family::Inet => Address::inet(Ipv4Addr::UNSPECIFIED.into(), 0),
            Family::Inet6 => Address::inet(Ipv6Addr::UNSPECIFIED.into(), 0),
            Family::Netlink => Address::Netlink(0, 0),
            Family::Vsock => Address::Vsock(CID_ANY, VMADDR_PORT_ANY),
        }
    }

    /// Returns the internet address, if it is one.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Address::Inet(address) => Some(*address),
            _ => None,
        }
    }

    /// Encodes the address for a socket of `family`.
    #[must_use]
    pub fn encode(&self, family: Family) -> Vec<u8> {
        let mut bytes = family.number().to_le_bytes().to_vec();
        match (self, family) {
            (Address::Path(path), _) => {
                bytes.extend_from_slice(path);
                bytes.push(0);
            }
            (Address::Abstract(name), _) => {
                bytes.push(0);
                bytes.extend_from_slice(name);
            }
            (Address::Inet(address), Family::Inet6) => {
                let (ip, scope) = match address {
                    SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
                    SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
                };
                bytes.extend_from_slice(&address.port().to_be_bytes());
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(&ip.octets());
                bytes.extend_from_slice(&scope.to_le_bytes());
            }
            (Address::Inet(address), _) => {
                let ip = match address.ip() {
                    IpAddr::V4(ip) => ip,
                    IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
                };
                bytes.extend_from_slice(&address.port().to_be_bytes());
                bytes.extend_from_slice(&ip.octets());
                bytes.extend_from_slice(&[0; 8]);
            }
            (Address::Netlink(port, groups), _) => {
                bytes.extend_from_slice(&[0; 2]);
                bytes.extend_from_slice(&port.to_le_bytes());
                bytes.extend_from_slice(&groups.to_le_bytes());
            }
            (Address::Vsock(cid, port), _) => {
                bytes.extend_from_slice(&[0; 2]);
                bytes.extend_from_slice(&port.to_le_bytes());
                bytes.extend_from_slice(&cid.to_le_bytes());
                bytes.extend_from_slice(&[0; 4]);
            }
            (Address::Unnamed, Family::Unix) => {}
            (Address::Unnamed, _) => return Address::unbound(family).encode(family),
        }
        bytes
    }
}

/// Returns the `N` bytes at `at`, which must be within `bytes`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn port(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(array(bytes, 2))
}

/// Parses the part of a `struct sockaddr_un` that follows the family.
fn parse_unix(rest: &[u8]) -> Result<Address, Errno> {
    match rest {
        [] => Ok(Address::Unnamed),
        _ if rest.len() > UNIX_PATH_MAX => Err(Errno::EINVAL),
        [0, name @ ..] => Ok(Address::Abstract(name.into())),
        path => {
            let path = path.split(|&byte| byte == 0).next().unwrap_or(path);
            Ok(Address::Path(path.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_out_and_back() {
        let mapped: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
        for (address, family) in [
            (Address::Unnamed, Family::Unix),
            (Address::Path(b"/run/x".as_slice().into()), Family::Unix),
            (Address::Abstract(b"a\0b".as_slice().into()), Family::Unix),
            (Address::inet(Ipv4Addr::LOCALHOST.into(), 80), Family::Inet),
            (
                Address::inet(Ipv6Addr::LOCALHOST.into(), 443),
                Family::Inet6,
            ),
            (Address::inet(Ipv4Addr::LOCALHOST.into(), 80), Family::Inet6),
            (Address::Netlink(7, 1 << 31), Family::Netlink),
            (Address::Vsock(2, 1 << 31), Family::Vsock),
        ] {
            let bytes = address.encode(family);
            assert_eq!(Address::parse(&bytes, family), Ok(address));
        }
        let bytes = Address::inet(Ipv4Addr::LOCALHOST.into(), 1).encode(Family::Inet6);
        assert_eq!(bytes[8..24], mapped.octets());
    }

    #[test]
    fn wrong_addresses_are_refused() {
        let inet = Address::inet(Ipv4Addr::LOCALHOST.into(), 80).encode(Family::Inet);
        for length in 0..INET {
            assert_eq!(
                Address::parse(&inet[..length], Family::Inet),
                Err(Errno::EINVAL)
            );
        }
        assert_eq!(Address::parse(&inet, Family::Unix), Err(Errno::EINVAL));
        let long = [inet.as_slice(), &[0; 20]].concat();
        assert_eq!(
            Address::parse(&long, Family::Inet6),
            Err(Errno::EAFNOSUPPORT)
        );
        let mut vsock = Address::Vsock(2, 3).encode(Family::Vsock);
        assert_eq!(vsock.len(), VSOCK);
        assert_eq!(
            Address::parse(&vsock[..15], Family::Vsock),
            Err(Errno::EINVAL)
        );
        vsock[12] = 2;
        assert_eq!(Address::parse(&vsock, Family::Vsock), Err(Errno::EINVAL));
        let path = [&[1, 0][..], &[b'x'; 109]].concat();
        assert_eq!(Address::parse(&path, Family::Unix), Err(Errno::EINVAL));
    }
}
