//! `linux/membarrier.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Commands of `membarrier`.
pub const MEMBARRIER_CMD_QUERY: u64 = 0;
pub const MEMBARRIER_CMD_GLOBAL: u64 = 1;
pub const MEMBARRIER_CMD_GLOBAL_EXPEDITED: u64 = 2;
pub const MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED: u64 = 4;
pub const MEMBARRIER_CMD_PRIVATE_EXPEDITED: u64 = 8;
pub const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: u64 = 0x10;
