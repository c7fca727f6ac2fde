//! `asm-generic/socket.h` and `linux/socket.h`, including definitions that only the kernel's own
//! `linux/socket.h` and `linux/net.h` have.
#![allow(missing_docs, reason = "the names are Linux's")]

use crate::fcntl::{O_CLOEXEC, O_NONBLOCK};
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Address families.
pub const AF_UNSPEC: u16 = 0;
pub const AF_UNIX: u16 = 1;
pub const AF_INET: u16 = 2;
pub const AF_INET6: u16 = 10;
pub const AF_NETLINK: u16 = 16;
pub const AF_VSOCK: u16 = 40;

// Types of sockets.
pub const SOCK_STREAM: u32 = 1;
pub const SOCK_DGRAM: u32 = 2;
pub const SOCK_RAW: u32 = 3;
pub const SOCK_SEQPACKET: u32 = 5;

// Flags of the type.
pub const SOCK_NONBLOCK: u32 = O_NONBLOCK;
pub const SOCK_CLOEXEC: u32 = O_CLOEXEC;

// Directions of `shutdown`.
pub const SHUT_RD: u32 = 0;
pub const SHUT_WR: u32 = 1;
pub const SHUT_RDWR: u32 = 2;

// Flags of messages.
pub const MSG_OOB: u32 = 1;
pub const MSG_PEEK: u32 = 2;
pub const MSG_CTRUNC: u32 = 8;
pub const MSG_TRUNC: u32 = 0x20;
pub const MSG_DONTWAIT: u32 = 0x40;
pub const MSG_EOR: u32 = 0x80;
pub const MSG_WAITALL: u32 = 0x100;
pub const MSG_ERRQUEUE: u32 = 0x2000;
pub const MSG_NOSIGNAL: u32 = 0x4000;
pub const MSG_MORE: u32 = 0x8000;
pub const MSG_WAITFORONE: u32 = 0x1_0000;
pub const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;

// Types of control messages of `SOL_SOCKET`.
pub const SCM_RIGHTS: i32 = 1;
pub const SCM_CREDENTIALS: i32 = 2;

// Levels of options.
pub const SOL_SOCKET: i32 = 1;
pub const SOL_IP: i32 = 0;
pub const SOL_TCP: i32 = 6;
pub const SOL_UDP: i32 = 17;
pub const SOL_IPV6: i32 = 41;
pub const SOL_NETLINK: i32 = 270;

// Options of `SOL_SOCKET`.
pub const SO_DEBUG: i32 = 1;
pub const SO_REUSEADDR: i32 = 2;
pub const SO_TYPE: i32 = 3;
pub const SO_ERROR: i32 = 4;
pub const SO_DONTROUTE: i32 = 5;
pub const SO_BROADCAST: i32 = 6;
pub const SO_SNDBUF: i32 = 7;
pub const SO_RCVBUF: i32 = 8;
pub const SO_KEEPALIVE: i32 = 9;
pub const SO_OOBINLINE: i32 = 10;
pub const SO_PRIORITY: i32 = 12;
pub const SO_LINGER: i32 = 13;
pub const SO_REUSEPORT: i32 = 15;
pub const SO_PASSCRED: i32 = 16;
pub const SO_PEERCRED: i32 = 17;
pub const SO_RCVLOWAT: i32 = 18;
pub const SO_SNDLOWAT: i32 = 19;
pub const SO_RCVTIMEO: i32 = 20;
pub const SO_SNDTIMEO: i32 = 21;
pub const SO_BINDTODEVICE: i32 = 25;
pub const SO_TIMESTAMP_OLD: i32 = 29;
pub const SO_ACCEPTCONN: i32 = 30;
pub const SO_SNDBUFFORCE: i32 = 32;
pub const SO_RCVBUFFORCE: i32 = 33;
pub const SO_TIMESTAMPNS_OLD: i32 = 35;
pub const SO_PROTOCOL: i32 = 38;
pub const SO_DOMAIN: i32 = 39;
pub const SO_INCOMING_CPU: i32 = 49;
pub const SO_BINDTOIFINDEX: i32 = 62;

// The most connections that wait to be accepted.
pub const SOMAXCONN: usize = 4096;

// Size of `struct sockaddr_storage`, the longest address, bytes.
pub const _K_SS_MAXSIZE: usize = 128;

/// `struct sockaddr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Sockaddr {
    pub sa_family: u16,
    pub sa_data: [u8; 14],
}

const _: () = assert!(size_of::<Sockaddr>() == 16);

/// `struct msghdr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
pub struct Msghdr {
    pub msg_name: u64,
    pub msg_namelen: u32,
    pub pad1: u32,
    pub msg_iov: u64,
    pub msg_iovlen: u64,
    pub msg_control: u64,
    pub msg_controllen: u64,
    pub msg_flags: u32,
    pub pad2: u32,
}

const _: () = assert!(size_of::<Msghdr>() == 56);

/// `struct mmsghdr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
pub struct Mmsghdr {
    pub msg_hdr: Msghdr,
    pub msg_len: u32,
    pub pad: u32,
}

const _: () = assert!(size_of::<Mmsghdr>() == 64);

/// `struct cmsghdr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
pub struct Cmsghdr {
    pub cmsg_len: u64,
    pub cmsg_level: i32,
    pub cmsg_type: i32,
}

const _: () = assert!(size_of::<Cmsghdr>() == 16);

/// `struct ucred`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Ucred {
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
}

const _: () = assert!(size_of::<Ucred>() == 12);
