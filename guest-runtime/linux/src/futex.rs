//! `linux/futex.h`.
#![allow(missing_docs, reason = "the names are those of futex(2)")]

pub const FUTEX_LOCK_PI: u32 = 6;
pub const FUTEX_WAIT_REQUEUE_PI: u32 = 11;
pub const FUTEX_LOCK_PI2: u32 = 13;

pub const FUTEX_PRIVATE_FLAG: u32 = 128;
pub const FUTEX_CLOCK_REALTIME: u32 = 256;
pub const FUTEX_CMD_MASK: u32 = !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
