//! `linux/random.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Flags of `getrandom`.
pub const GRND_NONBLOCK: u64 = 1;
pub const GRND_RANDOM: u64 = 2;
pub const GRND_INSECURE: u64 = 4;

// Requests on `/dev/random`.
pub const RNDGETENTCNT: u32 = 0x8004_5200;
pub const RNDADDTOENTCNT: u32 = 0x4004_5201;
pub const RNDADDENTROPY: u32 = 0x4008_5203;
pub const RNDZAPENTCNT: u32 = 0x5204;
pub const RNDCLEARPOOL: u32 = 0x5206;
pub const RNDRESEEDCRNG: u32 = 0x5207;
