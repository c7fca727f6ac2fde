//! `linux/filter.h` and `linux/bpf_common.h`: programs of classic BPF.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Most instructions of a program.
pub const BPF_MAXINSNS: usize = 4096;
/// Number of words in the scratch memory of a program.
pub const BPF_MEMWORDS: usize = 16;

// Classes of instructions.
pub const BPF_LD: u16 = 0x00;
pub const BPF_LDX: u16 = 0x01;
pub const BPF_ST: u16 = 0x02;
pub const BPF_STX: u16 = 0x03;
pub const BPF_ALU: u16 = 0x04;
pub const BPF_JMP: u16 = 0x05;
pub const BPF_RET: u16 = 0x06;
pub const BPF_MISC: u16 = 0x07;

// Size and source of `BPF_LD` and `BPF_LDX`.
pub const BPF_W: u16 = 0x00;
pub const BPF_IMM: u16 = 0x00;
pub const BPF_ABS: u16 = 0x20;
pub const BPF_MEM: u16 = 0x60;
pub const BPF_LEN: u16 = 0x80;

// Operations of `BPF_ALU`.
pub const BPF_ADD: u16 = 0x00;
pub const BPF_SUB: u16 = 0x10;
pub const BPF_MUL: u16 = 0x20;
pub const BPF_DIV: u16 = 0x30;
pub const BPF_OR: u16 = 0x40;
pub const BPF_AND: u16 = 0x50;
pub const BPF_LSH: u16 = 0x60;
pub const BPF_RSH: u16 = 0x70;
pub const BPF_NEG: u16 = 0x80;
pub const BPF_MOD: u16 = 0x90;
pub const BPF_XOR: u16 = 0xa0;

// Operations of `BPF_JMP`.
pub const BPF_JA: u16 = 0x00;
pub const BPF_JEQ: u16 = 0x10;
pub const BPF_JGT: u16 = 0x20;
pub const BPF_JGE: u16 = 0x30;
pub const BPF_JSET: u16 = 0x40;

// Operands.
pub const BPF_K: u16 = 0x00;
pub const BPF_X: u16 = 0x08;
/// Operand of `BPF_RET`.
pub const BPF_A: u16 = 0x10;

// Operations of `BPF_MISC`.
pub const BPF_TAX: u16 = 0x00;
pub const BPF_TXA: u16 = 0x80;

/// `struct sock_filter`: an instruction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SockFilter {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

const _: () = assert!(size_of::<SockFilter>() == 8);

/// `struct sock_fprog`: the number of instructions and their address.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SockFprog {
    pub len: u16,
    pub pad: [u16; 3],
    pub filter: u64,
}

const _: () = assert!(size_of::<SockFprog>() == 16 && offset_of!(SockFprog, filter) == 8);
