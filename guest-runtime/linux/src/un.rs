//! `linux/un.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// The longest `sun_path`, bytes.
pub const UNIX_PATH_MAX: usize = 108;
