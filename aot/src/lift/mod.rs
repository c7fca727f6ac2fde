//! Lifts RISC-V functions to LLVM IR: one guest function becomes one LLVM function.
//!
//! Guest registers are variables that LLVM turns into SSA values. At calls and returns the
//! registers of [`hartline_abi::hart::PINNED_X`] and [`PINNED_F`](hartline_abi::hart::PINNED_F) are
//! arguments and results. Other registers that were written are stored to the `Hart` structure, and
//! loaded again where they are read. [`analysis`](crate::analysis) finds these locations.

mod adapter;
mod calls;
mod combined_loads;
mod debug;
mod dispatch;
mod edges;
mod flags;
mod float;
mod float_to_int;
mod function;
mod guest_registers;
mod host_blocks;
mod integer;
mod ir;
mod lifter;
mod links;
mod machine;
mod memory;
mod precise;
mod raw;
mod register_image;
mod runtime;
mod safepoints;
mod service;
mod switch;
mod terminator;
mod top_byte;

pub use adapter::lift_adapter;
pub use debug::Debug;
pub(crate) use debug::guest_address;
pub use function::{host_name, lift};
pub use ir::{HostFunction, Ir, Naming, Value};
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
