//! `linux/icmp.h` and `linux/icmpv6.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Types of ICMP messages.
pub const ICMP_ECHOREPLY: u8 = 0;
pub const ICMP_DEST_UNREACH: u8 = 3;
pub const ICMP_ECHO: u8 = 8;
pub const ICMP_TIME_EXCEEDED: u8 = 11;
pub const ICMP_PARAMETERPROB: u8 = 12;

// Codes of `ICMP_DEST_UNREACH`.
pub const ICMP_NET_UNREACH: u8 = 0;
pub const ICMP_PROT_UNREACH: u8 = 2;
pub const ICMP_PORT_UNREACH: u8 = 3;
pub const ICMP_FRAG_NEEDED: u8 = 4;
pub const ICMP_SR_FAILED: u8 = 5;
pub const ICMP_NET_UNKNOWN: u8 = 6;
pub const ICMP_HOST_UNKNOWN: u8 = 7;
pub const ICMP_HOST_ISOLATED: u8 = 8;
pub const ICMP_NET_ANO: u8 = 9;
pub const ICMP_HOST_ANO: u8 = 10;
pub const ICMP_NET_UNR_TOS: u8 = 11;
pub const ICMP_PKT_FILTERED: u8 = 13;
pub const ICMP_PREC_CUTOFF: u8 = 15;

// Types of ICMPv6 messages.
pub const ICMPV6_DEST_UNREACH: u8 = 1;
pub const ICMPV6_PKT_TOOBIG: u8 = 2;
pub const ICMPV6_TIME_EXCEED: u8 = 3;
pub const ICMPV6_PARAMPROB: u8 = 4;
pub const ICMPV6_ECHO_REQUEST: u8 = 128;
pub const ICMPV6_ECHO_REPLY: u8 = 129;

// Codes of `ICMPV6_DEST_UNREACH`.
pub const ICMPV6_NOROUTE: u8 = 0;
pub const ICMPV6_ADM_PROHIBITED: u8 = 1;
pub const ICMPV6_PORT_UNREACH: u8 = 4;
pub const ICMPV6_POLICY_FAIL: u8 = 5;
pub const ICMPV6_REJECT_ROUTE: u8 = 6;

// Options of `IPPROTO_RAW` and `IPPROTO_ICMPV6`.
pub const ICMP_FILTER: i32 = 1;
pub const ICMPV6_FILTER: i32 = 1;
