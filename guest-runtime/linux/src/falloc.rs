//! `linux/falloc.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Modes of `fallocate`.
pub const FALLOC_FL_KEEP_SIZE: u64 = 1;
pub const FALLOC_FL_PUNCH_HOLE: u64 = 2;
pub const FALLOC_FL_ZERO_RANGE: u64 = 0x10;
