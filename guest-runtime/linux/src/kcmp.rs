//! `linux/kcmp.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// The objects that `kcmp` compares.
pub const KCMP_FILE: u64 = 0;
pub const KCMP_VM: u64 = 1;
pub const KCMP_FILES: u64 = 2;
pub const KCMP_FS: u64 = 3;
pub const KCMP_SIGHAND: u64 = 4;
pub const KCMP_IO: u64 = 5;
pub const KCMP_SYSVSEM: u64 = 6;
