//! `linux/audit.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

/// `EM_RISCV`, 64 bits, little-endian.
pub const AUDIT_ARCH_RISCV64: u32 = 0xc000_00f3;
