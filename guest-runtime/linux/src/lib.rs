//! The user-space interface of Linux/riscv64 (asm-generic) as of Linux 6.12, under Linux's own
//! names: a module per header.
//!
//! [`syscall`] is the one table of system calls: numbers, names, kinds of arguments, restarts after
//! signals, and what Hartline supports.
#![no_std]

pub mod futex;
pub mod names;
pub mod syscall;
