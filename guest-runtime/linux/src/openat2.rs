//! `linux/openat2.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Restrictions of a path.
pub const RESOLVE_NO_XDEV: u64 = 1;
pub const RESOLVE_NO_MAGICLINKS: u64 = 2;
pub const RESOLVE_NO_SYMLINKS: u64 = 4;
pub const RESOLVE_BENEATH: u64 = 8;
pub const RESOLVE_IN_ROOT: u64 = 0x10;

/// `struct open_how`.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
pub struct OpenHow {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}

const _: () = assert!(size_of::<OpenHow>() == 24);
