//! `asm/cacheflush.h` of riscv.
#![allow(missing_docs, reason = "the names are Linux's")]

// A flag of `riscv_flush_icache` (in the kernel's own header).
pub const SYS_RISCV_FLUSH_ICACHE_LOCAL: u64 = 1;
