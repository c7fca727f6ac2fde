//! `linux/in6.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Options of `IPPROTO_IPV6`.
pub const IPV6_CHECKSUM: i32 = 7;
pub const IPV6_UNICAST_HOPS: i32 = 16;
pub const IPV6_MULTICAST_IF: i32 = 17;
pub const IPV6_MULTICAST_HOPS: i32 = 18;
pub const IPV6_MULTICAST_LOOP: i32 = 19;
pub const IPV6_ADD_MEMBERSHIP: i32 = 20;
pub const IPV6_DROP_MEMBERSHIP: i32 = 21;
pub const IPV6_MTU_DISCOVER: i32 = 23;
pub const IPV6_RECVERR: i32 = 25;
pub const IPV6_V6ONLY: i32 = 26;
pub const IPV6_MULTICAST_ALL: i32 = 29;
pub const IPV6_RECVPKTINFO: i32 = 49;
pub const IPV6_PKTINFO: i32 = 50;
pub const IPV6_RECVHOPLIMIT: i32 = 51;
pub const IPV6_HOPLIMIT: i32 = 52;
pub const IPV6_RECVTCLASS: i32 = 66;
pub const IPV6_TCLASS: i32 = 67;

/// `struct in6_pktinfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct In6Pktinfo {
    pub ipi6_addr: [u8; 16],
    pub ipi6_ifindex: u32,
}

const _: () = assert!(size_of::<In6Pktinfo>() == 20);

/// `struct ipv6_mreq`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Ipv6Mreq {
    pub ipv6mr_multiaddr: [u8; 16],
    pub ipv6mr_ifindex: u32,
}

const _: () = assert!(size_of::<Ipv6Mreq>() == 20);

// Size of a `struct sockaddr_in6` without its scope, bytes.
pub const SIN6_LEN_RFC2133: usize = 24;

/// `struct sockaddr_in6`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SockaddrIn6 {
    pub sin6_family: u16,
    pub sin6_port: U16,
    pub sin6_flowinfo: u32,
    pub sin6_addr: [u8; 16],
    pub sin6_scope_id: u32,
}

const _: () = assert!(size_of::<SockaddrIn6>() == 28);
const _: () = assert!(offset_of!(SockaddrIn6, sin6_scope_id) == SIN6_LEN_RFC2133);
