//! The baseline translator: RISC-V code to x86-64 in one pass, without an intermediate
//! representation.
//!
//! It is the third implementation of [`hartline_isa::Machine`], next to the interpreter and the
//! lifter. [`translate`] takes a [`Region`] of guest code as plain data and returns a
//! [`Translation`]: host code, its entries, fields for the linker to fill in, and the guest pc of each
//! memory access.
//!
//! The code keeps to the convention of LLVM's translated code, so that both call each other
//! directly: the registers of [`hartline_abi::hart::PINNED_X`] and
//! [`PINNED_F`](hartline_abi::hart::PINNED_F) are in the same host registers, the others in the
//! `Hart` structure, and at each host return the guest continues at `ra`. The code is always
//! precise: between two guest instructions each register is in its location, so that a region can be
//! entered anywhere and a fault has exact registers.
#![forbid(unsafe_code)]

mod encoder;
mod features;
mod machine;
mod output;
mod region;
mod sweep;
mod translate;

pub use features::Features;
pub use output::{Access, Entry, Relocation, Service, Target, Translation};
pub use region::{Error, MAX_EXPANSION, MAX_FIXED, MAX_REGION, Region};
pub use translate::translate;
