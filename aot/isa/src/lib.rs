//! The RISC-V instruction set as Hartline executes it: RV64GC with Zba, Zbb,
//! Zbs, Zbc and Zicond.
//!
//! [`decode`] turns 16- and 32-bit encodings into one [`Instruction`] type;
//! [`execute`] defines each instruction's effect once, over the [`Machine`]
//! operations; [`Operation::operands`] describes its operands, from which
//! [`encode`], [`Instruction::disassemble`] and [`Instruction::register_use`] follow.
#![no_std]
#![forbid(unsafe_code)]

mod classify;
mod codes;
mod csr;
mod decode;
mod disassemble;
mod encode;
mod fields;
mod instruction;
mod machine;
mod opcode;
mod operands;
mod register;
mod semantics;

pub use classify::*;
pub use csr::*;
pub use decode::*;
pub use disassemble::*;
pub use encode::*;
pub use instruction::*;
pub use machine::*;
pub use opcode::*;
pub use operands::*;
pub use register::*;
pub use semantics::execute;
