//! `linux/timex.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// States of the clock: the result of `adjtimex`.
pub const TIME_ERROR: u64 = 5;
// Bits of the status.
pub const STA_UNSYNC: i32 = 0x40;
// The largest error, µs.
pub const NTP_PHASE_LIMIT: i64 = 16_000_000;
// The largest frequency deviation, in units of 2^-16 ppm.
pub const MAXFREQ_SCALED: i64 = 32_768_000;

/// `struct timex`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Timex {
    pub modes: u32,
    pub pad1: u32,
    pub offset: i64,
    pub freq: i64,
    pub maxerror: i64,
    pub esterror: i64,
    pub status: i32,
    pub pad2: u32,
    pub constant: i64,
    pub precision: i64,
    pub tolerance: i64,
    pub time: [i64; 2],
    pub tick: i64,
    pub ppsfreq: i64,
    pub jitter: i64,
    pub shift: i32,
    pub pad3: u32,
    pub stabil: i64,
    pub jitcnt: i64,
    pub calcnt: i64,
    pub errcnt: i64,
    pub stbcnt: i64,
    pub tai: i32,
    pub reserved: [u32; 11],
}
const _: () = assert!(size_of::<Timex>() == 208);
