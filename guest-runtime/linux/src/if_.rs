//! `linux/if.h` and `linux/if_arp.h`: network interfaces.
#![allow(missing_docs, reason = "the names are Linux's")]

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
