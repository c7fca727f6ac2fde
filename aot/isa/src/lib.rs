//! The RISC-V instruction set as Hartline executes it: RV64GC with Zba, Zbb,
//! Zbs, Zbc and Zicond.
//!
//! [`decode`] turns 16- and 32-bit encodings into one [`Instruction`] type;
//! [`execute`] defines each instruction's effect once, over the [`Machine`]
//! operations; `Display` prints standard assembly.
#![no_std]

mod machine;

pub use machine::*;
