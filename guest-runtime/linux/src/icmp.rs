//! `linux/icmp.h` and `linux/icmpv6.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Types of ICMP messages.
pub const ICMP_ECHOREPLY: u8 = 0;
pub const ICMP_DEST_UNREACH: u8 = 3;
pub const ICMP_ECHO: u8 = 8;

/// Code of `ICMP_DEST_UNREACH`.
pub const ICMP_PORT_UNREACH: u8 = 3;

// Types of ICMPv6 messages.
pub const ICMPV6_DEST_UNREACH: u8 = 1;
pub const ICMPV6_ECHO_REQUEST: u8 = 128;
pub const ICMPV6_ECHO_REPLY: u8 = 129;

/// Code of `ICMPV6_DEST_UNREACH`.
pub const ICMPV6_PORT_UNREACH: u8 = 4;

// Options of `IPPROTO_RAW` and `IPPROTO_ICMPV6`.
pub const ICMP_FILTER: i32 = 1;
pub const ICMPV6_FILTER: i32 = 1;
