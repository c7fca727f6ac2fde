//! `asm-generic/siginfo.h`: signal codes (`si_code`), and the targets of notifications.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Codes that any signal can have.
pub const SI_USER: i32 = 0;
pub const SI_TIMER: i32 = -2;
pub const SI_MESGQ: i32 = -3;
pub const SI_SIGIO: i32 = -5;
pub const SI_TKILL: i32 = -6;

pub const SI_KERNEL: i32 = 0x80;

// Codes of `SIGILL`, `SIGFPE`, `SIGSEGV`, `SIGBUS` and `SIGTRAP`.
pub const ILL_ILLOPC: i32 = 1;
pub const SEGV_MAPERR: i32 = 1;
pub const SEGV_ACCERR: i32 = 2;
pub const BUS_ADRALN: i32 = 1;
pub const BUS_ADRERR: i32 = 2;
pub const TRAP_BRKPT: i32 = 1;
pub const TRAP_TRACE: i32 = 2;

// Code of `SIGSYS`.
pub const SYS_SECCOMP: i32 = 1;

// Codes of `SIGCHLD`.
pub const CLD_EXITED: i32 = 1;
pub const CLD_KILLED: i32 = 2;
pub const CLD_DUMPED: i32 = 3;
pub const CLD_TRAPPED: i32 = 4;
pub const CLD_STOPPED: i32 = 5;
pub const CLD_CONTINUED: i32 = 6;

// Codes of `SIGIO`, and their number.
pub const POLL_IN: i32 = 1;
pub const POLL_OUT: i32 = 2;
pub const POLL_MSG: i32 = 3;
pub const NSIGPOLL: i32 = 6;

// Notification methods (`sigev_notify`).
pub const SIGEV_SIGNAL: i32 = 0;
pub const SIGEV_NONE: i32 = 1;
pub const SIGEV_THREAD: i32 = 2;
pub const SIGEV_THREAD_ID: i32 = 4;

/// `struct sigevent`, as far as the kernel reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
pub struct Sigevent {
    pub sigev_value: u64,
    pub sigev_signo: i32,
    pub sigev_notify: i32,
    pub sigev_notify_thread_id: u32,
    pub pad: [u32; 11],
}

const _: () = assert!(size_of::<Sigevent>() == 64);

/// `siginfo_t`. `_sifields` is a union: [`Rt`], [`Timer`], [`Sigchld`], [`Sigfault`], [`Sigpoll`]
/// or [`Sigsys`], which have its size.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Siginfo {
    pub si_signo: i32,
    pub si_errno: i32,
    pub si_code: i32,
    pub pad: u32,
    pub _sifields: [u64; 14],
}

const _: () = assert!(size_of::<Siginfo>() == 128);
const _: () = assert!(offset_of!(Siginfo, si_code) == 8);
const _: () = assert!(offset_of!(Siginfo, _sifields) == 16);

/// Member `_rt` of the fields of a [`Siginfo`]; `_kill` is its start.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Rt {
    pub si_pid: u32,
    pub si_uid: u32,
    pub si_value: u64,
    pub pad: [u64; 12],
}

/// Member `_timer` of the fields of a [`Siginfo`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Timer {
    pub si_tid: u32,
    pub si_overrun: i32,
    pub si_value: u64,
    pub pad: [u64; 12],
}

/// Member `_sigchld` of the fields of a [`Siginfo`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Sigchld {
    pub si_pid: u32,
    pub si_uid: u32,
    pub si_status: i32,
    pub pad1: u32,
    pub si_utime: i64,
    pub si_stime: i64,
    pub pad2: [u64; 10],
}

const _: () = assert!(offset_of!(Sigchld, si_utime) == 16);

/// Member `_sigfault` of the fields of a [`Siginfo`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Sigfault {
    pub si_addr: u64,
    pub pad: [u64; 13],
}

/// Member `_sigsys` of the fields of a [`Siginfo`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Sigsys {
    pub si_call_addr: u64,
    pub si_syscall: u32,
    pub si_arch: u32,
    pub pad: [u64; 12],
}

/// Member `_sigpoll` of the fields of a [`Siginfo`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Sigpoll {
    pub si_band: u64,
    pub si_fd: u32,
    pub pad1: u32,
    pub pad2: [u64; 12],
}
