//! `linux/in.h`, `linux/tcp.h`, `linux/udp.h`: Internet protocols.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Protocols, which are levels of options too.
pub const IPPROTO_IP: i32 = 0;
pub const IPPROTO_ICMP: i32 = 1;
pub const IPPROTO_TCP: i32 = 6;
pub const IPPROTO_UDP: i32 = 17;
pub const IPPROTO_IPV6: i32 = 41;
pub const IPPROTO_ICMPV6: i32 = 58;
pub const IPPROTO_RAW: i32 = 255;

// Options of `IPPROTO_IP`.
pub const IP_TOS: i32 = 1;
pub const IP_TTL: i32 = 2;
pub const IP_RETOPTS: i32 = 7;
pub const IP_PKTINFO: i32 = 8;
pub const IP_MTU_DISCOVER: i32 = 10;
pub const IP_RECVERR: i32 = 11;
pub const IP_RECVTTL: i32 = 12;
pub const IP_RECVTOS: i32 = 13;
pub const IP_FREEBIND: i32 = 15;
pub const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
pub const IP_MULTICAST_IF: i32 = 32;
pub const IP_MULTICAST_TTL: i32 = 33;
pub const IP_MULTICAST_LOOP: i32 = 34;
pub const IP_ADD_MEMBERSHIP: i32 = 35;
pub const IP_DROP_MEMBERSHIP: i32 = 36;
pub const IP_MULTICAST_ALL: i32 = 49;

// Options of `IPPROTO_IP` and of `IPPROTO_IPV6`.
pub const MCAST_JOIN_GROUP: i32 = 42;
pub const MCAST_LEAVE_GROUP: i32 = 45;

// Options of `IPPROTO_TCP`.
pub const TCP_NODELAY: i32 = 1;
pub const TCP_MAXSEG: i32 = 2;
pub const TCP_CORK: i32 = 3;
pub const TCP_KEEPIDLE: i32 = 4;
pub const TCP_KEEPINTVL: i32 = 5;
pub const TCP_KEEPCNT: i32 = 6;
pub const TCP_SYNCNT: i32 = 7;
pub const TCP_LINGER2: i32 = 8;
pub const TCP_DEFER_ACCEPT: i32 = 9;
pub const TCP_WINDOW_CLAMP: i32 = 10;
pub const TCP_INFO: i32 = 11;
pub const TCP_QUICKACK: i32 = 12;
pub const TCP_CONGESTION: i32 = 13;
pub const TCP_USER_TIMEOUT: i32 = 18;
pub const TCP_FASTOPEN: i32 = 23;
pub const TCP_NOTSENT_LOWAT: i32 = 25;

// Options of `IPPROTO_UDP`, which are types of control messages too.
pub const UDP_CORK: i32 = 1;
pub const UDP_SEGMENT: i32 = 103;
pub const UDP_GRO: i32 = 104;

/// `struct in_pktinfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct InPktinfo {
    pub ipi_ifindex: i32,
    pub ipi_spec_dst: [u8; 4],
    pub ipi_addr: [u8; 4],
}

const _: () = assert!(size_of::<InPktinfo>() == 12);

/// `struct ip_mreqn`; without `imr_ifindex`, `struct ip_mreq`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct IpMreqn {
    pub imr_multiaddr: [u8; 4],
    pub imr_address: [u8; 4],
    pub imr_ifindex: u32,
}

const _: () = assert!(size_of::<IpMreqn>() == 12);

/// The start of `struct group_req`; the address of the group follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct GroupReq {
    pub gr_interface: u32,
    pub padding: u32,
}

// Size of `struct group_req`, bytes.
pub const GROUP_REQ: usize = 136;

/// `struct sockaddr_in`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SockaddrIn {
    pub sin_family: u16,
    pub sin_port: U16,
    pub sin_addr: [u8; 4],
    pub sin_zero: [u8; 8],
}

const _: () = assert!(size_of::<SockaddrIn>() == 16);
const _: () = assert!(offset_of!(SockaddrIn, sin_addr) == 4);
