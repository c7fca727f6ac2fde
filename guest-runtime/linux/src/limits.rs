//! `linux/limits.h` and `linux/uio.h`: the longest names, paths and vectors.
#![allow(missing_docs, reason = "the names are Linux's")]

// In bytes; paths and attribute names include their NUL.
pub const NAME_MAX: usize = 255;
pub const PATH_MAX: usize = 4096;
pub const XATTR_NAME_MAX: usize = 255;
pub const XATTR_SIZE_MAX: usize = 65_536;
pub const PIPE_BUF: usize = 4096;

// The most supplementary groups of a process.
pub const NGROUPS_MAX: u32 = 65_536;
