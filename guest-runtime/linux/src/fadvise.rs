//! `linux/fadvise.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Advice of `fadvise64`; this is the greatest value.
pub const POSIX_FADV_NOREUSE: u64 = 5;
