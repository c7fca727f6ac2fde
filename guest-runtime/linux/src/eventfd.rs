//! `linux/eventfd.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Flags of `eventfd2`.
pub const EFD_SEMAPHORE: u32 = 1;
pub const EFD_CLOEXEC: u32 = 0o2_000_000;
pub const EFD_NONBLOCK: u32 = 0o4000;
