//! `linux/memfd.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Flags of `memfd_create`.
pub const MFD_CLOEXEC: u32 = 1;
pub const MFD_ALLOW_SEALING: u32 = 2;
pub const MFD_NOEXEC_SEAL: u32 = 8;
pub const MFD_EXEC: u32 = 0x10;
