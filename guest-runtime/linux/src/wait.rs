//! `linux/wait.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

/// The bit of a status that says that there is a core dump (`bits/waitstatus.h` of glibc).
pub const WCOREFLAG: u32 = 0x80;

// Options of `wait4` and `waitid`.
pub const WNOHANG: u64 = 1;
pub const WUNTRACED: u64 = 2;
pub const WSTOPPED: u64 = 2;
pub const WEXITED: u64 = 4;
pub const WCONTINUED: u64 = 8;
pub const WNOWAIT: u64 = 0x100_0000;
pub const __WNOTHREAD: u64 = 0x2000_0000;
pub const __WALL: u64 = 0x4000_0000;
pub const __WCLONE: u64 = 0x8000_0000;

// Kinds of identifiers of `waitid`.
pub const P_ALL: u64 = 0;
pub const P_PID: u64 = 1;
pub const P_PGID: u64 = 2;
pub const P_PIDFD: u64 = 3;
