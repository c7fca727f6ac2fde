//! `asm-generic/signal.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Signals.
pub const SIGHUP: u8 = 1;
pub const SIGINT: u8 = 2;
pub const SIGQUIT: u8 = 3;
pub const SIGILL: u8 = 4;
pub const SIGTRAP: u8 = 5;
pub const SIGABRT: u8 = 6;
pub const SIGBUS: u8 = 7;
pub const SIGFPE: u8 = 8;
pub const SIGKILL: u8 = 9;
pub const SIGUSR1: u8 = 10;
pub const SIGSEGV: u8 = 11;
pub const SIGUSR2: u8 = 12;
pub const SIGPIPE: u8 = 13;
pub const SIGALRM: u8 = 14;
pub const SIGTERM: u8 = 15;
pub const SIGSTKFLT: u8 = 16;
pub const SIGCHLD: u8 = 17;
pub const SIGCONT: u8 = 18;
pub const SIGSTOP: u8 = 19;
pub const SIGTSTP: u8 = 20;
pub const SIGTTIN: u8 = 21;
pub const SIGTTOU: u8 = 22;
pub const SIGURG: u8 = 23;
pub const SIGXCPU: u8 = 24;
pub const SIGXFSZ: u8 = 25;
pub const SIGVTALRM: u8 = 26;
pub const SIGPROF: u8 = 27;
pub const SIGWINCH: u8 = 28;
pub const SIGIO: u8 = 29;
pub const SIGPWR: u8 = 30;
pub const SIGSYS: u8 = 31;

// The first real-time signal, and the last signal.
pub const SIGRTMIN: u8 = 32;
pub const _NSIG: u8 = 64;

// Special handlers.
pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;

// Flags of `sigaction`.
pub const SA_NOCLDSTOP: u64 = 1;
pub const SA_NOCLDWAIT: u64 = 2;
pub const SA_ONSTACK: u64 = 0x800_0000;
pub const SA_RESTART: u64 = 0x1000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;

// Values of `how` of `sigprocmask`.
pub const SIG_BLOCK: u64 = 0;
pub const SIG_UNBLOCK: u64 = 1;
pub const SIG_SETMASK: u64 = 2;

// Flags of an alternate stack.
pub const SS_ONSTACK: i32 = 1;
pub const SS_DISABLE: i32 = 2;

pub const SS_AUTODISARM: i32 = i32::MIN;

// The smallest alternate stack, bytes.
pub const MINSIGSTKSZ: u64 = 2048;

/// `struct sigaction` of the system call, which has no restorer on riscv64.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Sigaction {
    pub sa_handler: u64,
    pub sa_flags: u64,
    pub sa_mask: u64,
}

const _: () = assert!(size_of::<Sigaction>() == 24);

/// `stack_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct StackT {
    pub ss_sp: u64,
    pub ss_flags: i32,
    pub pad: u32,
    pub ss_size: u64,
}

const _: () = assert!(size_of::<StackT>() == 24);
