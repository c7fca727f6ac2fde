//! `linux/un.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// The longest `sun_path`, bytes.
pub const UNIX_PATH_MAX: usize = 108;

/// `struct sockaddr_un`. Programs may pass less of the path.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SockaddrUn {
    pub sun_family: u16,
    pub sun_path: [u8; UNIX_PATH_MAX],
}

const _: () = assert!(offset_of!(SockaddrUn, sun_path) == 2);
