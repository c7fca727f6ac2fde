//! `linux/shm.h` and `asm-generic/shmbuf.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use crate::ipc::Ipc64Perm;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub const SHMMIN: u64 = 1;
pub const SHMMNI: u32 = 4096;
pub const SHMMAX: u64 = u64::MAX - (1 << 24);
pub const SHMALL: u64 = u64::MAX - (1 << 24);
/// Alignment of attached segments, bytes.
pub const SHMLBA: u64 = 4096;

// Flags of `shmget`.
pub const SHM_HUGETLB: u64 = 0o4000;

// Flags of `shmat`.
pub const SHM_RDONLY: u64 = 0o10000;
pub const SHM_RND: u64 = 0o20000;
pub const SHM_REMAP: u64 = 0o40000;
pub const SHM_EXEC: u64 = 0o100_000;

// Bits of the mode.
pub const SHM_DEST: u32 = 0o1000;
pub const SHM_LOCKED: u32 = 0o2000;

// Commands.
pub const SHM_LOCK: u64 = 11;
pub const SHM_UNLOCK: u64 = 12;
pub const SHM_STAT: u64 = 13;
pub const SHM_INFO: u64 = 14;
pub const SHM_STAT_ANY: u64 = 15;

/// `struct shmid64_ds`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Shmid64Ds {
    pub shm_perm: Ipc64Perm,
    pub shm_segsz: u64,
    pub shm_atime: i64,
    pub shm_dtime: i64,
    pub shm_ctime: i64,
    pub shm_cpid: u32,
    pub shm_lpid: u32,
    pub shm_nattch: u64,
    pub __unused4: u64,
    pub __unused5: u64,
}

const _: () = assert!(size_of::<Shmid64Ds>() == 112);

/// `struct shminfo64`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Shminfo64 {
    pub shmmax: u64,
    pub shmmin: u64,
    pub shmmni: u64,
    pub shmseg: u64,
    pub shmall: u64,
    pub __unused: [u64; 4],
}

const _: () = assert!(size_of::<Shminfo64>() == 72);

/// `struct shm_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct ShmInfo {
    pub used_ids: i32,
    pub __pad: u32,
    pub shm_tot: u64,
    pub shm_rss: u64,
    pub shm_swp: u64,
    pub swap_attempts: u64,
    pub swap_successes: u64,
}

const _: () = assert!(size_of::<ShmInfo>() == 48);
