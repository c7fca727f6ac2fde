//! `asm/ucontext.h`, `asm/sigcontext.h` and `asm/ptrace.h` of riscv: registers at a signal; and the
//! frame that the kernel pushes for a handler (`arch/riscv/kernel/signal.c`).
#![allow(missing_docs, reason = "the names are Linux's")]

use crate::siginfo::Siginfo;
use crate::signal::StackT;
use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `union __riscv_fp_state`: its double-precision state, padded to the size of the quad-precision
/// one. The last two words are the header of further state.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct RiscvFpState {
    pub f: [u64; 32],
    pub fcsr: u32,
    pub reserved: [u32; 67],
}

const _: () = assert!(size_of::<RiscvFpState>() == 528);

/// `struct sigcontext`. `sc_regs` are `pc`, then `x1`–`x31`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Sigcontext {
    pub sc_regs: [u64; 32],
    pub sc_fpregs: RiscvFpState,
}

const _: () = assert!(size_of::<Sigcontext>() == 784);

/// `struct ucontext`. `uc_mcontext` is aligned to 16 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Ucontext {
    pub uc_flags: u64,
    pub uc_link: u64,
    pub uc_stack: StackT,
    pub uc_sigmask: u64,
    pub unused: [u64; 15],
    pub pad: u64,
    pub uc_mcontext: Sigcontext,
}

const _: () = assert!(offset_of!(Ucontext, uc_sigmask) == 40);
const _: () = assert!(offset_of!(Ucontext, uc_mcontext) == 176);

/// `struct rt_sigframe`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct RtSigframe {
    pub info: Siginfo,
    pub uc: Ucontext,
}

const _: () = assert!(size_of::<RtSigframe>() == 1088);
const _: () = assert!(offset_of!(RtSigframe, uc) == 128);
