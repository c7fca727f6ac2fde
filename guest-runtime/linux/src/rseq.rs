//! `linux/rseq.h`: restartable sequences.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Flags of `rseq`.
pub const RSEQ_FLAG_UNREGISTER: i32 = 1;

// `cpu_id` of a thread that is not registered.
pub const RSEQ_CPU_ID_UNINITIALIZED: u32 = u32::MAX;

/// Size and alignment of the first version of `struct rseq`, bytes.
pub const ORIG_RSEQ_SIZE: u32 = 32;
/// Size of the fields of [`Rseq`] that have a meaning, bytes (`AT_RSEQ_FEATURE_SIZE`).
pub const FEATURE_SIZE: u32 = 28;

/// `struct rseq`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Rseq {
    pub cpu_id_start: u32,
    pub cpu_id: u32,
    pub rseq_cs: u64,
    pub flags: u32,
    pub node_id: u32,
    pub mm_cid: u32,
    pub padding: u32,
}

const _: () = assert!(size_of::<Rseq>() == ORIG_RSEQ_SIZE as usize);
const _: () = assert!(offset_of!(Rseq, padding) == FEATURE_SIZE as usize);

/// `struct rseq_cs`: a critical section.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct RseqCs {
    pub version: u32,
    pub flags: u32,
    pub start_ip: u64,
    pub post_commit_offset: u64,
    pub abort_ip: u64,
}

const _: () = assert!(size_of::<RseqCs>() == 32);
