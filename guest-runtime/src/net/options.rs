//! Socket options: their levels, names, ranges and default values.

use super::address::Family;
use super::socket::Type;
use super::wire::{Patience, Probes};
use crate::convert::{low_u8, low_u16, sign_extended};
use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv4Addr};
use hartline_linux::errno::Errno;
use hartline_linux::in_::{
    IP_BIND_ADDRESS_NO_PORT, IP_FREEBIND, IP_MTU_DISCOVER, IP_MULTICAST_ALL, IP_MULTICAST_LOOP,
    IP_MULTICAST_TTL, IP_PKTINFO, IP_RECVERR, IP_RECVTOS, IP_RECVTTL, IP_RETOPTS, IP_TOS, IP_TTL,
    IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP, TCP_CORK, TCP_DEFER_ACCEPT, TCP_FASTOPEN,
    TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY,
    TCP_NOTSENT_LOWAT, TCP_QUICKACK, TCP_SYNCNT, TCP_USER_TIMEOUT, TCP_WINDOW_CLAMP, UDP_CORK,
    UDP_GRO, UDP_SEGMENT,
};
use hartline_linux::in6::{
    IPV6_MTU_DISCOVER, IPV6_MULTICAST_ALL, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP, IPV6_RECVERR,
    IPV6_RECVHOPLIMIT, IPV6_RECVPKTINFO, IPV6_RECVTCLASS, IPV6_TCLASS, IPV6_UNICAST_HOPS,
    IPV6_V6ONLY,
};
use hartline_linux::netlink::{
    NETLINK_BROADCAST_ERROR, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK,
    NETLINK_NO_ENOBUFS, NETLINK_PKTINFO,
};
use hartline_linux::socket::{
    SO_BROADCAST, SO_DEBUG, SO_DONTROUTE, SO_INCOMING_CPU, SO_KEEPALIVE, SO_OOBINLINE, SO_PASSCRED,
    SO_PRIORITY, SO_RCVLOWAT, SO_REUSEADDR, SO_REUSEPORT, SO_SNDLOWAT, SO_TIMESTAMP_OLD,
    SO_TIMESTAMPNS_OLD, SOL_NETLINK, SOL_SOCKET,
};

/// What time limit `connect` of an `AF_VSOCK` socket has at first, ns.
pub const VSOCK_TIMEOUT: u64 = 2_000_000_000;
/// Sizes of the buffer of an `AF_VSOCK` socket at first, and the smallest and largest, bytes.
const VSOCK_SIZES: [u64; 3] = [256 << 10, 128, 256 << 10];
/// No buffer of an `AF_VSOCK` socket is larger, whatever the program asks for, bytes.
const VSOCK_LARGEST: u64 = 8 << 20;

/// Default size of a buffer (`rmem_default`), bytes.
pub const BUFFER: i32 = 212_992;
/// Largest size that a program may ask for (`rmem_max`), bytes; the buffer is twice as large.
const BUFFER_MAX: i32 = 4 << 20;
/// Smallest size of a send and of a receive buffer, bytes.
const BUFFER_MIN: (i32, i32) = (4608, 2304);

/// The values that an option may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    /// 0, or 1 for any other value.
    Flag,
    /// A value within these bounds, inclusive.
    Of(i32, i32),
    /// Read-only.
    Fixed,
}
use Range::{Fixed, Flag, Of};

/// Integer options that the VM stores and returns: level, name, default value, range. They have no
/// effect between sockets of one VM, except those that [`Options`] has methods for.
const NUMBERS: &[(i32, i32, i32, Range)] = &[
    (SOL_SOCKET, SO_DEBUG, 0, Flag),
    (SOL_SOCKET, SO_REUSEADDR, 0, Flag),
    (SOL_SOCKET, SO_DONTROUTE, 0, Flag),
    (SOL_SOCKET, SO_BROADCAST, 0, Flag),
    (SOL_SOCKET, SO_KEEPALIVE, 0, Flag),
    (SOL_SOCKET, SO_OOBINLINE, 0, Flag),
    (SOL_SOCKET, SO_PRIORITY, 0, Of(0, 6)),
    (SOL_SOCKET, SO_REUSEPORT, 0, Flag),
    (SOL_SOCKET, SO_PASSCRED, 0, Flag),
    (SOL_SOCKET, SO_RCVLOWAT, 1, Of(0, i32::MAX)),
    (SOL_SOCKET, SO_SNDLOWAT, 1, Fixed),
    (SOL_SOCKET, SO_TIMESTAMP_OLD, 0, Flag),
    (SOL_SOCKET, SO_TIMESTAMPNS_OLD, 0, Flag),
    (SOL_SOCKET, SO_INCOMING_CPU, -1, Of(i32::MIN, i32::MAX)),
    (IPPROTO_IP, IP_TOS, 0, Of(i32::MIN, i32::MAX)),
    (IPPROTO_IP, IP_TTL, 64, Of(-1, 255)),
    (IPPROTO_IP, IP_RETOPTS, 0, Flag),
    (IPPROTO_IP, IP_PKTINFO, 0, Flag),
    (IPPROTO_IP, IP_MTU_DISCOVER, 1, Of(0, 5)),
    (IPPROTO_IP, IP_RECVERR, 0, Flag),
    (IPPROTO_IP, IP_RECVTTL, 0, Flag),
    (IPPROTO_IP, IP_RECVTOS, 0, Flag),
    (IPPROTO_IP, IP_FREEBIND, 0, Flag),
    (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0, Flag),
    (IPPROTO_IP, IP_MULTICAST_TTL, 1, Of(-1, 255)),
    (IPPROTO_IP, IP_MULTICAST_LOOP, 1, Flag),
    (IPPROTO_IP, IP_MULTICAST_ALL, 1, Of(0, 1)),
    (IPPROTO_TCP, TCP_NODELAY, 0, Flag),
    (IPPROTO_TCP, TCP_MAXSEG, 32_768, Fixed),
    (IPPROTO_TCP, TCP_CORK, 0, Flag),
    (IPPROTO_TCP, TCP_KEEPIDLE, 7200, Of(1, 32_767)),
    (IPPROTO_TCP, TCP_KEEPINTVL, 75, Of(1, 32_767)),
    (IPPROTO_TCP, TCP_KEEPCNT, 9, Of(1, 127)),
    (IPPROTO_TCP, TCP_SYNCNT, 6, Of(1, 127)),
    (IPPROTO_TCP, TCP_LINGER2, 60, Of(-1, 120)),
    (IPPROTO_TCP, TCP_DEFER_ACCEPT, 0, Of(0, i32::MAX)),
    (IPPROTO_TCP, TCP_WINDOW_CLAMP, 0, Of(0, i32::MAX)),
    (IPPROTO_TCP, TCP_QUICKACK, 1, Flag),
    (IPPROTO_TCP, TCP_USER_TIMEOUT, 0, Of(0, i32::MAX)),
    (IPPROTO_TCP, TCP_FASTOPEN, 0, Of(0, i32::MAX)),
    (IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0, Of(0, i32::MAX)),
    (IPPROTO_UDP, UDP_CORK, 0, Flag),
    (IPPROTO_UDP, UDP_SEGMENT, 0, Of(0, 65_535)),
    (IPPROTO_UDP, UDP_GRO, 0, Flag),
    (IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64, Of(-1, 255)),
    (IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1, Of(-1, 255)),
    (IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1, Of(0, 1)),
    (IPPROTO_IPV6, IPV6_MULTICAST_ALL, 1, Flag),
    (IPPROTO_IPV6, IPV6_MTU_DISCOVER, 1, Of(0, 5)),
    (IPPROTO_IPV6, IPV6_RECVERR, 0, Flag),
    (IPPROTO_IPV6, IPV6_V6ONLY, 0, Flag),
    (IPPROTO_IPV6, IPV6_RECVPKTINFO, 0, Flag),
    (IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 0, Flag),
    (IPPROTO_IPV6, IPV6_RECVTCLASS, 0, Flag),
    (IPPROTO_IPV6, IPV6_TCLASS, 0, Of(-1, 255)),
    (SOL_NETLINK, NETLINK_PKTINFO, 0, Flag),
    (SOL_NETLINK, NETLINK_BROADCAST_ERROR, 0, Flag),
    (SOL_NETLINK, NETLINK_NO_ENOBUFS, 0, Flag),
    (SOL_NETLINK, NETLINK_CAP_ACK, 0, Flag),
    (SOL_NETLINK, NETLINK_EXT_ACK, 0, Flag),
    (SOL_NETLINK, NETLINK_GET_STRICT_CHK, 0, Flag),
];

/// The options of one socket.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Values of [`NUMBERS`] that were set.
    set: BTreeMap<(i32, i32), i32>,
    /// `SO_LINGER`: whether it is on, and seconds.
    pub linger: (bool, i32),
    /// Time limits of receiving and sending, ns; none: no limit.
    pub timeouts: [Option<u64>; 2],
    /// Sizes of the receive and send buffers that the program set, bytes.
    buffers: [Option<i32>; 2],
    /// The options of `AF_VSOCK` sockets.
    pub vsock: VsockOptions,
    /// Index of the interface that the socket is bound to (`SO_BINDTODEVICE`); 0: none.
    pub device: u32,
    /// Indices of the interfaces of packets to groups of IPv4 and IPv6; 0: by route.
    multicast: [u32; 2],
    /// The address of the one for IPv4, if it was set by its address.
    pub multicast_address: Option<Ipv4Addr>,
    /// Types of ICMP messages that a raw socket does not receive, as a bit set (`ICMP_FILTER`,
    /// `ICMPV6_FILTER`).
    pub icmp_filter: [u32; 8],
}

/// Options of an `AF_VSOCK` socket.
#[derive(Debug, Clone, Copy)]
pub struct VsockOptions {
    /// Size of the buffer, and its bounds, bytes, by their names: [`SO_VM_SOCKETS_BUFFER_SIZE`] and the next two.
    sizes: [u64; 3],
    /// Time limit of `connect`, ns.
    pub timeout: u64,
}

impl Default for VsockOptions {
    fn default() -> Self {
        Self {
            sizes: VSOCK_SIZES,
            timeout: VSOCK_TIMEOUT,
        }
    }
}

impl VsockOptions {
    /// Returns the size of the buffer, bytes.
    #[must_use]
    pub fn buffer(&self) -> u32 {
        self.sizes[0].min(VSOCK_LARGEST) as u32
    }

    /// A size, by its name.
    #[must_use]
    pub fn size(&self, name: i32) -> Option<u64> {
        self.sizes.get(usize::try_from(name).ok()?).copied()
    }

    /// Sets a size by its option (`SO_VM_SOCKETS_BUFFER_…`). The buffer size is clamped to its bounds.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an unknown name.
    pub fn set_size(&mut self, name: i32, bytes: u64) -> Result<(), Errno> {
        let index = usize::try_from(name).map_err(|_| Errno::ENOPROTOOPT)?;
        *self.sizes.get_mut(index).ok_or(Errno::ENOPROTOOPT)? = bytes;
        let [size, least, most] = self.sizes;
        self.sizes[0] = size.min(most).max(least);
        Ok(())
    }
}

/// The bits of a type of service or traffic class for congestion notification.
const INET_ECN_MASK: i32 = 3;

/// Whether sockets of this family and type have options of `level`.
fn has_level(level: i32, family: Family, kind: Type) -> bool {
    match level {
        SOL_SOCKET => true,
        _ if matches!(family, Family::Unix | Family::Vsock) => false,
        _ if family == Family::Netlink => level == SOL_NETLINK,
        IPPROTO_IP => true,
        IPPROTO_IPV6 => family == Family::Inet6,
        IPPROTO_TCP => kind == Type::Stream,
        IPPROTO_UDP => kind == Type::Datagram,
        _ => false,
    }
}

fn find(level: i32, name: i32, family: Family, kind: Type) -> Result<(i32, Range), Errno> {
    if !has_level(level, family, kind) {
        return Err(match family {
            Family::Vsock => Errno::ENOPROTOOPT,
            _ => Errno::EOPNOTSUPP,
        });
    }
    let row = NUMBERS.iter().find(|row| (row.0, row.1) == (level, name));
    row.map(|row| (row.2, row.3)).ok_or(Errno::ENOPROTOOPT)
}

impl Options {
    /// Returns the value of an integer option.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EOPNOTSUPP`.
    pub fn number(&self, level: i32, name: i32, family: Family, kind: Type) -> Result<i32, Errno> {
        let (first, _) = find(level, name, family, kind)?;
        Ok(self.set.get(&(level, name)).copied().unwrap_or(first))
    }

    /// Sets an integer option.
    ///
    /// # Errors
    /// As [`number`](Self::number); `EINVAL` for a value out of range.
    pub fn set_number(
        &mut self,
        (level, name): (i32, i32),
        value: i32,
        family: Family,
        kind: Type,
    ) -> Result<(), Errno> {
        let found = find(level, name, family, kind).map_err(|error| match (error, family) {
            (Errno::EOPNOTSUPP, Family::Inet | Family::Inet6 | Family::Netlink) => {
                Errno::ENOPROTOOPT
            }
            (error, _) => error,
        });
        let value = match found?.1 {
            Flag => i32::from(value != 0),
            Of(first, last) if (first..=last).contains(&value) => value,
            Of(..) => return Err(Errno::EINVAL),
            Fixed => return Err(Errno::ENOPROTOOPT),
        };
        let value = match (level, name) {
            (IPPROTO_IP, IP_TTL) if value == 0 => return Err(Errno::EINVAL),
            // -1 stands for the default. TCP sets the bits of congestion notification itself.
            (IPPROTO_IPV6, IPV6_TCLASS) if value == -1 => 0,
            (IPPROTO_IP, IP_MULTICAST_TTL) if kind == Type::Stream => return Err(Errno::EINVAL),
            (IPPROTO_IPV6, IPV6_MULTICAST_HOPS) if kind == Type::Stream => {
                return Err(Errno::ENOPROTOOPT);
            }
            (IPPROTO_IP, IP_MULTICAST_TTL) | (IPPROTO_IPV6, IPV6_MULTICAST_HOPS) if value == -1 => {
                1
            }
            (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => match kind {
                Type::Stream => value & 0xff & !INET_ECN_MASK,
                _ => value & 0xff,
            },
            // A socket has time stamps of one format.
            (SOL_SOCKET, SO_TIMESTAMP_OLD | SO_TIMESTAMPNS_OLD) => {
                self.set.remove(&(level, SO_TIMESTAMP_OLD));
                self.set.remove(&(level, SO_TIMESTAMPNS_OLD));
                value
            }
            _ => value,
        };
        self.set.insert((level, name), value);
        Ok(())
    }

    /// Whether a flag of [`SOL_SOCKET`] is on.
    #[must_use]
    pub fn is_on(&self, name: i32) -> bool {
        self.set.get(&(SOL_SOCKET, name)) == Some(&1)
    }

    /// Whether a flag of the protocol `level` is on.
    #[must_use]
    pub fn has_flag(&self, level: i32, name: i32) -> bool {
        self.set.get(&(level, name)) == Some(&1)
    }

    /// Whether a flag that is on at first was not turned off.
    #[must_use]
    pub fn is_not_off(&self, option: (i32, i32)) -> bool {
        self.set.get(&option) != Some(&0)
    }

    /// Whether packets from an interface reach the socket.
    #[must_use]
    pub fn receives_at(&self, interface: u32) -> bool {
        self.device == 0 || self.device == interface
    }

    /// Sets the interface of packets to groups; 0: by route.
    pub fn set_multicast_interface(&mut self, is_ipv4: bool, index: u32) {
        self.multicast[usize::from(is_ipv4)] = index;
    }

    /// Returns the index of the interface of packets to groups, 0 if a route decides; and the
    /// source address, if it is set.
    #[must_use]
    pub fn multicast_interface(&self, is_ipv4: bool) -> (u32, Option<IpAddr>) {
        let address = self.multicast_address.filter(|_| is_ipv4);
        (
            self.multicast[usize::from(is_ipv4)],
            address.map(IpAddr::from),
        )
    }

    /// Whether an IPv6 socket is for IPv6 only (`IPV6_V6ONLY`).
    #[must_use]
    pub fn is_v6_only(&self) -> bool {
        self.set.get(&(IPPROTO_IPV6, IPV6_V6ONLY)) == Some(&1)
    }

    /// Whether a UDP socket collects what it is given to send into one datagram (`UDP_CORK`).
    #[must_use]
    pub fn is_corked(&self) -> bool {
        self.set.get(&(IPPROTO_UDP, UDP_CORK)) == Some(&1)
    }

    /// Returns the length of the datagrams that a UDP socket cuts one send into, bytes; 0: it does
    /// not cut.
    #[must_use]
    pub fn udp_segment(&self) -> u16 {
        let size = self.set.get(&(IPPROTO_UDP, UDP_SEGMENT));
        size.map_or(0, |&size| low_u16(sign_extended(size)))
    }

    /// Whether a UDP socket receives several datagrams as one message (`UDP_GRO`).
    #[must_use]
    pub fn takes_several(&self) -> bool {
        self.set.get(&(IPPROTO_UDP, UDP_GRO)) == Some(&1)
    }

    /// Whether a raw socket receives ICMP messages of a type.
    #[must_use]
    pub fn takes_icmp(&self, kind: u8) -> bool {
        let [word, bit] = [usize::from(kind / 32), usize::from(kind % 32)];
        self.icmp_filter[word] >> bit & 1 == 0
    }

    /// Returns the hop limit of packets to `to`.
    #[must_use]
    pub fn hops(&self, to: IpAddr) -> u8 {
        let (option, default) = match (to.is_ipv4(), to.is_multicast()) {
            (true, false) => ((IPPROTO_IP, IP_TTL), 64),
            (false, false) => ((IPPROTO_IPV6, IPV6_UNICAST_HOPS), 64),
            (true, true) => ((IPPROTO_IP, IP_MULTICAST_TTL), 1),
            (false, true) => ((IPPROTO_IPV6, IPV6_MULTICAST_HOPS), 1),
        };
        let set = self.set.get(&option).copied();
        // -1 stands for the default.
        set.and_then(|hops| u8::try_from(hops).ok())
            .unwrap_or(default)
    }

    /// Returns the type of service or traffic class of sent packets.
    #[must_use]
    pub fn class(&self, is_ipv4: bool) -> u8 {
        let option = match is_ipv4 {
            true => (IPPROTO_IP, IP_TOS),
            false => (IPPROTO_IPV6, IPV6_TCLASS),
        };
        let set = self.set.get(&option).copied();
        set.map_or(0, |class| low_u8(sign_extended(class)))
    }

    /// Whether received packets come with their type of service or traffic class (`IP_RECVTOS`,
    /// `IPV6_RECVTCLASS`).
    #[must_use]
    pub fn wants_class(&self, is_ipv4: bool) -> bool {
        let option = match is_ipv4 {
            true => (IPPROTO_IP, IP_RECVTOS),
            false => (IPPROTO_IPV6, IPV6_RECVTCLASS),
        };
        self.set.get(&option) == Some(&1)
    }

    /// Whether received packets come with their hop limit (`IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    #[must_use]
    pub fn wants_hops(&self, is_ipv4: bool) -> bool {
        let option = match is_ipv4 {
            true => (IPPROTO_IP, IP_RECVTTL),
            false => (IPPROTO_IPV6, IPV6_RECVHOPLIMIT),
        };
        self.set.get(&option) == Some(&1)
    }

    /// Whether errors of an unconnected socket are reported (`IP_RECVERR`, `IPV6_RECVERR`).
    #[must_use]
    pub fn wants_errors(&self, is_ipv4: bool) -> bool {
        let option = match is_ipv4 {
            true => (IPPROTO_IP, IP_RECVERR),
            false => (IPPROTO_IPV6, IPV6_RECVERR),
        };
        self.set.get(&option) == Some(&1)
    }

    /// Returns the limits for a silent peer on another host.
    #[must_use]
    pub fn patience(&self) -> Patience {
        let value = |name| {
            let first = || {
                NUMBERS
                    .iter()
                    .find(|row| (row.0, row.1) == (IPPROTO_TCP, name))
            };
            let set = self.set.get(&(IPPROTO_TCP, name)).copied();
            set.unwrap_or_else(|| first().map_or(0, |row| row.2)).into()
        };
        let seconds = |name| value(name) * 1_000_000;
        let limit = value(TCP_USER_TIMEOUT) * 1000;
        Patience {
            probes: self.is_on(SO_KEEPALIVE).then(|| Probes {
                idle: seconds(TCP_KEEPIDLE),
                interval: seconds(TCP_KEEPINTVL),
                count: value(TCP_KEEPCNT),
            }),
            limit: (limit > 0).then_some(limit),
        }
    }

    /// Sets the size of the receive (0) or send (1) buffer. As on Linux, the buffer is twice as
    /// large as the program asks for.
    pub fn set_buffer(&mut self, which: usize, bytes: i32) {
        let least = [BUFFER_MIN.1, BUFFER_MIN.0][which];
        let bytes = bytes.clamp(0, BUFFER_MAX).saturating_mul(2);
        self.buffers[which] = Some(bytes.max(least));
    }

    /// Returns the size of the receive (0) or send (1) buffer, bytes; `default` applies if the
    /// program set none.
    #[must_use]
    pub fn buffer(&self, which: usize, default: i32) -> i32 {
        self.buffers[which].unwrap_or(default)
    }
}
