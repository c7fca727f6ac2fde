//! `linux/xattr.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Flags of `setxattr`.
pub const XATTR_CREATE: u32 = 1;
pub const XATTR_REPLACE: u32 = 2;
