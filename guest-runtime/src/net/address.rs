//! Socket addresses: the forms that programs pass, and the form that is compared.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use hartline_abi::vsock::CID_ANY;
use hartline_linux::errno::Errno;
use hartline_linux::in_::SockaddrIn;
use hartline_linux::in6::{SIN6_LEN_RFC2133, SockaddrIn6};
use hartline_linux::netlink::SockaddrNl;
use hartline_linux::socket::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_VSOCK};
use hartline_linux::un::{SockaddrUn, UNIX_PATH_MAX};
use hartline_linux::vm_sockets::{SockaddrVm, VMADDR_FLAG_TO_HOST, VMADDR_PORT_ANY};
use zerocopy::{FromBytes, IntoBytes};

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
            Family::Unix => parse_unix(&bytes[offset_of!(SockaddrUn, sun_path)..]),
            Family::Inet => {
                let address: SockaddrIn = start(bytes)?;
                check_family(number, family, Errno::EAFNOSUPPORT)?;
                let ip = Ipv4Addr::from(address.sin_addr);
                Ok(Address::inet(ip.into(), address.sin_port.get()))
            }
            Family::Inet6 => {
                let address = inet6(bytes)?;
                check_family(number, family, Errno::EAFNOSUPPORT)?;
                let (ip, port) = (Ipv6Addr::from(address.sin6_addr), address.sin6_port.get());
                Ok(match ip.to_ipv4_mapped() {
                    Some(ip) => Address::inet(ip.into(), port),
                    None => {
                        let scope = address.sin6_scope_id;
                        Address::Inet(SocketAddrV6::new(ip, port, 0, scope).into())
                    }
                })
            }
            Family::Netlink => {
                let address: SockaddrNl = start(bytes)?;
                check_family(number, family, Errno::EINVAL)?;
                Ok(Address::Netlink(address.nl_pid, address.nl_groups))
            }
            Family::Vsock => {
                let address: SockaddrVm = start(bytes)?;
                check_family(number, family, Errno::EINVAL)?;
                match address.svm_flags & !VMADDR_FLAG_TO_HOST {
                    0 => Ok(Address::Vsock(address.svm_cid, address.svm_port)),
                    _ => Err(Errno::EINVAL),
                }
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
        let number = family.number();
        match (self, family) {
            (Address::Path(path), _) => [number.as_bytes(), path, &[0]].concat(),
            (Address::Abstract(name), _) => [number.as_bytes(), &[0], name].concat(),
            (Address::Inet(address), Family::Inet6) => {
                let (ip, scope) = match address {
                    SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
                    SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
                };
                let address = SockaddrIn6 {
                    sin6_family: number,
                    sin6_port: address.port().into(),
                    sin6_flowinfo: 0,
                    sin6_addr: ip.octets(),
                    sin6_scope_id: scope,
                };
                address.as_bytes().to_vec()
            }
            (Address::Inet(address), _) => {
                let ip = match address.ip() {
                    IpAddr::V4(ip) => ip,
                    IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
                };
                sockaddr_in(ip, address.port()).as_bytes().to_vec()
            }
            (Address::Netlink(port, groups), _) => {
                let address = SockaddrNl {
                    nl_family: number,
                    nl_pad: 0,
                    nl_pid: *port,
                    nl_groups: *groups,
                };
                address.as_bytes().to_vec()
            }
            (Address::Vsock(cid, port), _) => {
                let address = SockaddrVm {
                    svm_family: number,
                    svm_reserved1: 0,
                    svm_port: *port,
                    svm_cid: *cid,
                    svm_flags: 0,
                    svm_zero: [0; 3],
                };
                address.as_bytes().to_vec()
            }
            (Address::Unnamed, Family::Unix) => number.as_bytes().to_vec(),
            (Address::Unnamed, _) => Address::unbound(family).encode(family),
        }
    }
}

/// Returns the structure of an IPv4 address.
#[must_use]
pub fn sockaddr_in(ip: Ipv4Addr, port: u16) -> SockaddrIn {
    SockaddrIn {
        sin_family: AF_INET,
        sin_port: port.into(),
        sin_addr: ip.octets(),
        sin_zero: [0; 8],
    }
}

/// Reads the structure that `bytes` start with.
fn start<T: FromBytes>(bytes: &[u8]) -> Result<T, Errno> {
    match T::read_from_prefix(bytes) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(Errno::EINVAL),
    }
}

/// Reads an IPv6 address, which may lack its scope.
fn inet6(bytes: &[u8]) -> Result<SockaddrIn6, Errno> {
    if bytes.len() < SIN6_LEN_RFC2133 {
        return Err(Errno::EINVAL);
    }
    start(bytes).or_else(|_| start(&[&bytes[..SIN6_LEN_RFC2133], &[0; 4]].concat()))
}

fn check_family(number: u16, family: Family, error: Errno) -> Result<(), Errno> {
    match number == family.number() {
        true => Ok(()),
        false => Err(error),
    }
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
        for length in 0..size_of::<SockaddrIn>() {
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
        assert_eq!(vsock.len(), size_of::<SockaddrVm>());
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
