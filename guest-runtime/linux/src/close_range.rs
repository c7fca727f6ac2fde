//! `linux/close_range.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Flags of `close_range`.
pub const CLOSE_RANGE_UNSHARE: u32 = 2;
pub const CLOSE_RANGE_CLOEXEC: u32 = 4;
