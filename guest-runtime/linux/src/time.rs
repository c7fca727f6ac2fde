//! `linux/time.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Clocks.
pub const CLOCK_REALTIME: u64 = 0;
pub const CLOCK_MONOTONIC: u64 = 1;
pub const CLOCK_PROCESS_CPUTIME_ID: u64 = 2;
pub const CLOCK_THREAD_CPUTIME_ID: u64 = 3;
pub const CLOCK_MONOTONIC_RAW: u64 = 4;
pub const CLOCK_REALTIME_COARSE: u64 = 5;
pub const CLOCK_MONOTONIC_COARSE: u64 = 6;
pub const CLOCK_BOOTTIME: u64 = 7;
pub const CLOCK_REALTIME_ALARM: u64 = 8;
pub const CLOCK_BOOTTIME_ALARM: u64 = 9;
pub const CLOCK_TAI: u64 = 11;

// A flag of timers.
pub const TIMER_ABSTIME: u64 = 1;

// Interval timers.
pub const ITIMER_REAL: u64 = 0;
pub const ITIMER_VIRTUAL: u64 = 1;
pub const ITIMER_PROF: u64 = 2;

// Fields of a CPU-time clock's number (the kernel's own).
pub const CPUCLOCK_PERTHREAD_MASK: i32 = 4;
pub const CPUCLOCK_CLOCK_MASK: i32 = 3;

/// `struct timespec`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

const _: () = assert!(size_of::<Timespec>() == 16);
