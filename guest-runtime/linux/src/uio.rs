//! `linux/uio.h`: vectors of memory.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// The most elements of a vector.
pub const UIO_MAXIOV: u64 = 1024;

/// `struct iovec`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Iovec {
    pub iov_base: u64,
    pub iov_len: u64,
}

const _: () = assert!(size_of::<Iovec>() == 16);
