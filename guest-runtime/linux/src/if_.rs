//! `linux/if.h` and `linux/if_arp.h`: network interfaces.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Flags of an interface.
pub const IFF_UP: u32 = 1;
pub const IFF_BROADCAST: u32 = 2;
pub const IFF_LOOPBACK: u32 = 8;
pub const IFF_RUNNING: u32 = 0x40;
pub const IFF_LOWER_UP: u32 = 0x1_0000;

// Length of a name with its NUL, bytes.
pub const IFNAMSIZ: usize = 16;

// Kinds of hardware.
pub const ARPHRD_ETHER: u16 = 1;
pub const ARPHRD_LOOPBACK: u16 = 772;

// States.
pub const IF_OPER_UNKNOWN: u8 = 0;
pub const IF_OPER_UP: u8 = 6;

/// `struct ifreq`. `ifr_ifru` is a union: a number or a `struct sockaddr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Ifreq {
    pub ifr_name: [u8; IFNAMSIZ],
    pub ifr_ifru: [u64; 3],
}

const _: () = assert!(size_of::<Ifreq>() == 40);
const _: () = assert!(offset_of!(Ifreq, ifr_ifru) == 16);

/// `struct ifconf`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Ifconf {
    pub ifc_len: i32,
    pub pad: u32,
    pub ifc_buf: u64,
}

const _: () = assert!(size_of::<Ifconf>() == 16);
