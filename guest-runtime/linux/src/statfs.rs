//! `asm-generic/statfs.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Flags of a mounted file system (`sys/statvfs.h` of the C library).
pub const ST_RDONLY: u64 = 1;
pub const ST_VALID: u64 = 0x20;
pub const ST_RELATIME: u64 = 0x1000;
pub const ST_NOSYMFOLLOW: u64 = 0x2000;

/// `struct statfs`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Statfs {
    pub f_type: u64,
    pub f_bsize: u64,
    pub f_blocks: u64,
    pub f_bfree: u64,
    pub f_bavail: u64,
    pub f_files: u64,
    pub f_ffree: u64,
    pub f_fsid: [i32; 2],
    pub f_namelen: u64,
    pub f_frsize: u64,
    pub f_flags: u64,
    pub f_spare: [u64; 4],
}

const _: () = assert!(size_of::<Statfs>() == 120);
