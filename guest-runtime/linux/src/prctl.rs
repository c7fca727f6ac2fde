//! `linux/prctl.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Operations of `prctl`.
pub const PR_SET_PDEATHSIG: u64 = 1;
pub const PR_GET_PDEATHSIG: u64 = 2;
pub const PR_GET_DUMPABLE: u64 = 3;
pub const PR_SET_DUMPABLE: u64 = 4;
pub const PR_GET_KEEPCAPS: u64 = 7;
pub const PR_SET_KEEPCAPS: u64 = 8;
pub const PR_SET_NAME: u64 = 15;
pub const PR_GET_NAME: u64 = 16;
pub const PR_GET_SECCOMP: u64 = 21;
pub const PR_SET_SECCOMP: u64 = 22;
pub const PR_CAPBSET_READ: u64 = 23;
pub const PR_CAPBSET_DROP: u64 = 24;
pub const PR_GET_SECUREBITS: u64 = 27;
pub const PR_SET_SECUREBITS: u64 = 28;
pub const PR_SET_TIMERSLACK: u64 = 29;
pub const PR_GET_TIMERSLACK: u64 = 30;
pub const PR_SET_MM: u64 = 35;
pub const PR_SET_CHILD_SUBREAPER: u64 = 36;
pub const PR_GET_CHILD_SUBREAPER: u64 = 37;
pub const PR_SET_NO_NEW_PRIVS: u64 = 38;
pub const PR_GET_NO_NEW_PRIVS: u64 = 39;
pub const PR_CAP_AMBIENT: u64 = 47;

// Fields of `PR_SET_MM`.
pub const PR_SET_MM_ARG_START: u64 = 8;
pub const PR_SET_MM_ARG_END: u64 = 9;
pub const PR_SET_MM_ENV_START: u64 = 10;
pub const PR_SET_MM_ENV_END: u64 = 11;

// Operations of `PR_CAP_AMBIENT`.
pub const PR_CAP_AMBIENT_IS_SET: u64 = 1;
pub const PR_CAP_AMBIENT_RAISE: u64 = 2;
pub const PR_CAP_AMBIENT_LOWER: u64 = 3;
pub const PR_CAP_AMBIENT_CLEAR_ALL: u64 = 4;
