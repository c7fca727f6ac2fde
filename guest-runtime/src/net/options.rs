//! Socket options: their levels, names, ranges and default values.

use super::address::Family;
use super::socket::Type;
use super::wire::{Patience, Probes};
use crate::errno::Errno;
use alloc::collections::BTreeMap;

/// `SOL_SOCKET` (asm-generic)
pub const SOL_SOCKET: i32 = 1;
/// `IPPROTO_IP`
pub const IPPROTO_IP: i32 = 0;
/// `IPPROTO_TCP`
pub const IPPROTO_TCP: i32 = 6;
/// `IPPROTO_UDP`
pub const IPPROTO_UDP: i32 = 17;
/// `IPPROTO_IPV6`
pub const IPPROTO_IPV6: i32 = 41;

/// `SOL_NETLINK`
pub const SOL_NETLINK: i32 = 270;

/// Level and names of the options of `AF_VSOCK` sockets (linux/vm_sockets.h), and their limits.
#[allow(missing_docs, reason = "the names are those of vsock(7)")]
pub mod vm {
    pub const LEVEL: i32 = 40;
    pub const BUFFER_SIZE: i32 = 0;
    pub const BUFFER_MIN_SIZE: i32 = 1;
    pub const BUFFER_MAX_SIZE: i32 = 2;
    pub const CONNECT_TIMEOUT_OLD: i32 = 6;
    pub const CONNECT_TIMEOUT: i32 = 8;
    /// Default time limit of `connect`, ns.
    pub const TIMEOUT: u64 = 2_000_000_000;
    /// Default, smallest and largest size of a buffer, bytes.
    pub(super) const SIZES: [u64; 3] = [256 << 10, 128, 256 << 10];
    /// Upper limit of a buffer, whatever the program asks for, bytes.
    pub(super) const LARGEST: u64 = 8 << 20;
}

/// Names of options of [`SOL_SOCKET`].
#[allow(missing_docs, reason = "the names are those of socket(7)")]
pub mod so {
    pub const REUSEADDR: i32 = 2;
    pub const TYPE: i32 = 3;
    pub const ERROR: i32 = 4;
    pub const BROADCAST: i32 = 6;
    pub const KEEPALIVE: i32 = 9;
    pub const SNDBUF: i32 = 7;
    pub const RCVBUF: i32 = 8;
    pub const LINGER: i32 = 13;
    pub const REUSEPORT: i32 = 15;
    pub const PASSCRED: i32 = 16;
    pub const PEERCRED: i32 = 17;
    pub const RCVTIMEO: i32 = 20;
    pub const SNDTIMEO: i32 = 21;
    pub const ACCEPTCONN: i32 = 30;
    pub const SNDBUFFORCE: i32 = 32;
    pub const RCVBUFFORCE: i32 = 33;
    pub const PROTOCOL: i32 = 38;
    pub const DOMAIN: i32 = 39;
}

/// Names of options of [`IPPROTO_TCP`].
mod tcp {
    pub const KEEPIDLE: i32 = 4;
    pub const KEEPINTVL: i32 = 5;
    pub const KEEPCNT: i32 = 6;
    pub const USER_TIMEOUT: i32 = 18;
}

/// Names of options of [`IPPROTO_UDP`], which are also types of control messages.
#[allow(missing_docs, reason = "the names are those of udp(7)")]
pub mod udp {
    pub const SEGMENT: i32 = 103;
    pub const GRO: i32 = 104;
}

/// `IPV6_V6ONLY`
pub const IPV6_V6ONLY: i32 = 26;

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
    (SOL_SOCKET, 1, 0, Flag), // SO_DEBUG
    (SOL_SOCKET, so::REUSEADDR, 0, Flag),
    (SOL_SOCKET, 5, 0, Flag), // SO_DONTROUTE
    (SOL_SOCKET, so::BROADCAST, 0, Flag),
    (SOL_SOCKET, so::KEEPALIVE, 0, Flag),
    (SOL_SOCKET, 10, 0, Flag),     // SO_OOBINLINE
    (SOL_SOCKET, 12, 0, Of(0, 6)), // SO_PRIORITY
    (SOL_SOCKET, so::REUSEPORT, 0, Flag),
    (SOL_SOCKET, so::PASSCRED, 0, Flag),
    (SOL_SOCKET, 18, 1, Of(0, i32::MAX)),         // SO_RCVLOWAT
    (SOL_SOCKET, 19, 1, Fixed),                   // SO_SNDLOWAT
    (SOL_SOCKET, 29, 0, Flag),                    // SO_TIMESTAMP_OLD
    (SOL_SOCKET, 35, 0, Flag),                    // SO_TIMESTAMPNS_OLD
    (SOL_SOCKET, 49, -1, Of(i32::MIN, i32::MAX)), // SO_INCOMING_CPU
    (IPPROTO_IP, 1, 0, Of(0, 255)),               // IP_TOS
    (IPPROTO_IP, 2, 64, Of(-1, 255)),             // IP_TTL
    (IPPROTO_IP, 8, 0, Flag),                     // IP_PKTINFO
    (IPPROTO_IP, 10, 1, Of(0, 5)),                // IP_MTU_DISCOVER
    (IPPROTO_IP, 11, 0, Flag),                    // IP_RECVERR
    (IPPROTO_IP, 12, 0, Flag),                    // IP_RECVTTL
    (IPPROTO_IP, 13, 0, Flag),                    // IP_RECVTOS
    (IPPROTO_IP, 15, 0, Flag),                    // IP_FREEBIND
    (IPPROTO_IP, 24, 0, Flag),                    // IP_BIND_ADDRESS_NO_PORT
    (IPPROTO_IP, 33, 1, Of(-1, 255)),             // IP_MULTICAST_TTL
    (IPPROTO_IP, 34, 1, Flag),                    // IP_MULTICAST_LOOP
    (IPPROTO_TCP, 1, 0, Flag),                    // TCP_NODELAY
    (IPPROTO_TCP, 2, 32_768, Fixed),              // TCP_MAXSEG
    (IPPROTO_TCP, 3, 0, Flag),                    // TCP_CORK
    (IPPROTO_TCP, tcp::KEEPIDLE, 7200, Of(1, 32_767)),
    (IPPROTO_TCP, tcp::KEEPINTVL, 75, Of(1, 32_767)),
    (IPPROTO_TCP, tcp::KEEPCNT, 9, Of(1, 127)),
    (IPPROTO_TCP, 7, 6, Of(1, 127)),       // TCP_SYNCNT
    (IPPROTO_TCP, 8, 60, Of(-1, 120)),     // TCP_LINGER2
    (IPPROTO_TCP, 9, 0, Of(0, i32::MAX)),  // TCP_DEFER_ACCEPT
    (IPPROTO_TCP, 10, 0, Of(0, i32::MAX)), // TCP_WINDOW_CLAMP
    (IPPROTO_TCP, 12, 1, Flag),            // TCP_QUICKACK
    (IPPROTO_TCP, tcp::USER_TIMEOUT, 0, Of(0, i32::MAX)),
    (IPPROTO_TCP, 23, 0, Of(0, i32::MAX)), // TCP_FASTOPEN
    (IPPROTO_TCP, 25, 0, Of(0, i32::MAX)), // TCP_NOTSENT_LOWAT
    (IPPROTO_UDP, 1, 0, Flag),             // UDP_CORK
    (IPPROTO_UDP, udp::SEGMENT, 0, Of(0, 65_535)),
    (IPPROTO_UDP, udp::GRO, 0, Flag),
    (IPPROTO_IPV6, 16, 64, Of(-1, 255)), // IPV6_UNICAST_HOPS
    (IPPROTO_IPV6, 18, 1, Of(-1, 255)),  // IPV6_MULTICAST_HOPS
    (IPPROTO_IPV6, 19, 1, Flag),         // IPV6_MULTICAST_LOOP
    (IPPROTO_IPV6, 23, 1, Of(0, 5)),     // IPV6_MTU_DISCOVER
    (IPPROTO_IPV6, 25, 0, Flag),         // IPV6_RECVERR
    (IPPROTO_IPV6, IPV6_V6ONLY, 0, Flag),
    (IPPROTO_IPV6, 49, 0, Flag),        // IPV6_RECVPKTINFO
    (IPPROTO_IPV6, 67, 0, Of(-1, 255)), // IPV6_TCLASS
    (SOL_NETLINK, 3, 0, Flag),          // NETLINK_PKTINFO
    (SOL_NETLINK, 4, 0, Flag),          // NETLINK_BROADCAST_ERROR
    (SOL_NETLINK, 5, 0, Flag),          // NETLINK_NO_ENOBUFS
    (SOL_NETLINK, 10, 0, Flag),         // NETLINK_CAP_ACK
    (SOL_NETLINK, 11, 0, Flag),         // NETLINK_EXT_ACK
    (SOL_NETLINK, 12, 0, Flag),         // NETLINK_GET_STRICT_CHK
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
}

/// Options of an `AF_VSOCK` socket.
#[derive(Debug, Clone, Copy)]
pub struct VsockOptions {
    /// Size of the buffer and its bounds, bytes, indexed by the names in [`vm`].
    sizes: [u64; 3],
    /// Time limit of `connect`, ns.
    pub timeout: u64,
}

impl Default for VsockOptions {
    fn default() -> Self {
        Self {
            sizes: vm::SIZES,
            timeout: vm::TIMEOUT,
        }
    }
}

impl VsockOptions {
    /// Returns the size of the buffer, bytes.
    #[must_use]
    pub fn buffer(&self) -> u32 {
        self.sizes[0].min(vm::LARGEST) as u32
    }

    /// Returns a size by its name in [`vm`].
    #[must_use]
    pub fn size(&self, name: i32) -> Option<u64> {
        self.sizes.get(usize::try_from(name).ok()?).copied()
    }

    /// Sets a size by its name in [`vm`]. The buffer size is clamped to its bounds.
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
        self.set.insert((level, name), value);
        Ok(())
    }

    /// Whether a flag of [`SOL_SOCKET`] is on.
    #[must_use]
    pub fn is_on(&self, name: i32) -> bool {
        self.set.get(&(SOL_SOCKET, name)) == Some(&1)
    }

    /// Whether an IPv6 socket is for IPv6 only (`IPV6_V6ONLY`).
    #[must_use]
    pub fn is_v6_only(&self) -> bool {
        self.set.get(&(IPPROTO_IPV6, IPV6_V6ONLY)) == Some(&1)
    }

    /// Returns the length of the datagrams that a UDP socket cuts one send into, bytes; 0: it does
    /// not cut.
    #[must_use]
    pub fn udp_segment(&self) -> u16 {
        let size = self.set.get(&(IPPROTO_UDP, udp::SEGMENT));
        size.map_or(0, |&size| size as u16)
    }

    /// Whether a UDP socket receives several datagrams as one message (`UDP_GRO`).
    #[must_use]
    pub fn takes_several(&self) -> bool {
        self.set.get(&(IPPROTO_UDP, udp::GRO)) == Some(&1)
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
        let limit = value(tcp::USER_TIMEOUT) * 1000;
        Patience {
            probes: self.is_on(so::KEEPALIVE).then(|| Probes {
                idle: seconds(tcp::KEEPIDLE),
                interval: seconds(tcp::KEEPINTVL),
                count: value(tcp::KEEPCNT),
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
