//! `asm-generic/siginfo.h`: signal codes (`si_code`), and the targets of notifications.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Codes that any signal can have.
pub const SI_USER: i32 = 0;
pub const SI_TIMER: i32 = -2;
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

// Codes of `SIGCHLD`.
pub const CLD_EXITED: i32 = 1;
pub const CLD_KILLED: i32 = 2;
pub const CLD_STOPPED: i32 = 5;
pub const CLD_CONTINUED: i32 = 6;

// Codes of `SIGIO`, and their number.
pub const POLL_IN: i32 = 1;
pub const POLL_OUT: i32 = 2;
pub const NSIGPOLL: i32 = 6;

// Notification methods (`sigev_notify`).
pub const SIGEV_SIGNAL: i32 = 0;
pub const SIGEV_NONE: i32 = 1;
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
