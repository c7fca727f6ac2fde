//! `linux/timerfd.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Flags of `timerfd_settime`.
pub const TFD_TIMER_ABSTIME: u64 = 1;
pub const TFD_TIMER_CANCEL_ON_SET: u64 = 2;
