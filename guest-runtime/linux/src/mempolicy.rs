//! `linux/mempolicy.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Modes of memory policies.
pub const MPOL_DEFAULT: u32 = 0;
pub const MPOL_PREFERRED: u32 = 1;
pub const MPOL_BIND: u32 = 2;
pub const MPOL_INTERLEAVE: u32 = 3;
pub const MPOL_LOCAL: u32 = 4;
pub const MPOL_PREFERRED_MANY: u32 = 5;
pub const MPOL_WEIGHTED_INTERLEAVE: u32 = 6;
pub const MPOL_MAX: u32 = 7;

// Flags of modes.
pub const MPOL_F_STATIC_NODES: u32 = 1 << 15;
pub const MPOL_F_RELATIVE_NODES: u32 = 1 << 14;
pub const MPOL_F_NUMA_BALANCING: u32 = 1 << 13;
pub const MPOL_MODE_FLAGS: u32 =
    MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING;

// Flags of `get_mempolicy`.
pub const MPOL_F_NODE: u64 = 1;
pub const MPOL_F_ADDR: u64 = 2;
pub const MPOL_F_MEMS_ALLOWED: u64 = 4;

// Flags of `mbind` and `move_pages`.
pub const MPOL_MF_STRICT: u64 = 1;
pub const MPOL_MF_MOVE: u64 = 2;
pub const MPOL_MF_MOVE_ALL: u64 = 4;
