//! `asm/hwprobe.h` of riscv.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Keys.
pub const RISCV_HWPROBE_KEY_MVENDORID: i64 = 0;
pub const RISCV_HWPROBE_KEY_MARCHID: i64 = 1;
pub const RISCV_HWPROBE_KEY_MIMPID: i64 = 2;
pub const RISCV_HWPROBE_KEY_BASE_BEHAVIOR: i64 = 3;
pub const RISCV_HWPROBE_KEY_IMA_EXT_0: i64 = 4;
pub const RISCV_HWPROBE_KEY_CPUPERF_0: i64 = 5;
pub const RISCV_HWPROBE_KEY_ZICBOZ_BLOCK_SIZE: i64 = 6;
pub const RISCV_HWPROBE_KEY_HIGHEST_VIRT_ADDRESS: i64 = 7;
pub const RISCV_HWPROBE_KEY_TIME_CSR_FREQ: i64 = 8;
pub const RISCV_HWPROBE_KEY_MISALIGNED_SCALAR_PERF: i64 = 9;
pub const RISCV_HWPROBE_KEY_MISALIGNED_VECTOR_PERF: i64 = 10;

// Values of `RISCV_HWPROBE_KEY_BASE_BEHAVIOR` and `RISCV_HWPROBE_KEY_IMA_EXT_0`.
pub const RISCV_HWPROBE_BASE_BEHAVIOR_IMA: u64 = 1;
pub const RISCV_HWPROBE_IMA_FD: u64 = 1;
pub const RISCV_HWPROBE_IMA_C: u64 = 2;
pub const RISCV_HWPROBE_EXT_ZBA: u64 = 8;
pub const RISCV_HWPROBE_EXT_ZBB: u64 = 0x10;
pub const RISCV_HWPROBE_EXT_ZBS: u64 = 0x20;
pub const RISCV_HWPROBE_EXT_ZBC: u64 = 0x80;
pub const RISCV_HWPROBE_EXT_ZICOND: u64 = 0x8_0000_0000;

// Values of the keys about misaligned accesses.
pub const RISCV_HWPROBE_MISALIGNED_FAST: u64 = 3;
pub const RISCV_HWPROBE_MISALIGNED_VECTOR_UNSUPPORTED: u64 = 4;

// A flag of `riscv_hwprobe`.
pub const RISCV_HWPROBE_WHICH_CPUS: u64 = 1;

/// `struct riscv_hwprobe`.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
pub struct RiscvHwprobe {
    pub key: i64,
    pub value: u64,
}

const _: () = assert!(size_of::<RiscvHwprobe>() == 16);
