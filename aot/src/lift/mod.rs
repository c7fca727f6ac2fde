//! RISC-V functions to LLVM IR: one guest function becomes one LLVM function.
//!
//! Guest registers are variables that LLVM turns into SSA values. At calls and
//! returns those of [`hartline_abi::hart::PINNED_X`] and
//! [`PINNED_F`](hartline_abi::hart::PINNED_F) are arguments and results; the
//! others are stored to the `Hart` structure when they were written and loaded
//! again where they are read.

mod checkpoints;
mod control;
mod convention;
mod debug;
mod features;
mod flags;
mod float;
mod folded;
mod function;
mod held;
mod integer;
mod ir;
mod liveness;
mod machine;
mod memory;
mod polls;
mod precise;
mod raw;
mod registers;
mod resume;
mod search;
mod service;
mod shape;
mod state;
mod switch;
#[cfg(test)]
mod testing;
mod ways;
mod words;

use std::collections::HashSet;
use std::ops::Range;

use crate::elf::Constants;
use crate::technique::Disabled;

pub use convention::{Conventions, lift_adapter};
pub use debug::Debug;
pub(crate) use debug::guest_address;
pub use features::Features;
pub use folded::Folded;
pub use function::lift;
pub use ir::{HostFunction, Ir, function_name};
pub use liveness::Liveness;
pub use polls::needs_poll;
pub use registers::{RegisterSet, whereabouts};
pub use resume::resume_points;
pub use service::Service;

/// Symbols that the linker of images defines.
pub mod symbol {
    /// Private data page of the image ([`hartline_abi::image::ImageData`]).
    pub const DATA: &str = "hartline_data";
    /// Dispatch table.
    pub const TABLE: &str = "hartline_table";
    /// Start of the code, from which dispatch table entries count.
    pub const CODE: &str = "hartline_code";
    /// A return instruction, at the start of the code.
    pub const RETURN: &str = "hartline_return";
}

/// What all functions of one ELF file share.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Link-time addresses that the dispatch table covers.
    pub text: Range<u64>,
    /// Whether the file may be loaded at any address.
    pub position_independent: bool,
    /// Link-time entry addresses of all functions that are translated.
    pub entries: HashSet<u64>,
    /// Those of functions that poll at their entry ([`needs_poll`]).
    pub polling: HashSet<u64>,
    /// Extensions of the target.
    pub features: Features,
    /// Whether all registers are known at each access to guest memory.
    pub precise: bool,
    /// Techniques not to use.
    pub disabled: Disabled,
    /// Registers that functions need of each other.
    pub liveness: Liveness,
    /// What loads give; none if they are not to be folded.
    pub constants: Constants,
    /// Functions that have their own registers in host registers.
    pub conventions: Conventions,
}

impl Unit {
    /// Name of the host function with the code of the guest function at `entry`.
    #[must_use]
    pub fn host_name(&self, entry: u64) -> String {
        let own = self.conventions.is_own(entry);
        HostFunction { guest: entry, own }.name()
    }
}
