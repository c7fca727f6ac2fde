//! The virtual machine monitor: KVM, the guest's memory, its run and its end. `examples/embed.rs`
//! shows the way: [`machine::Blank`] is a VM, [`machine::Settings`] describes its program and its
//! devices, [`machine::Outcome::verdict`] gives the exit code.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod affinity;
pub mod allocator;
pub mod background;
pub mod boot;
pub mod call_stacks;
mod calls;
pub mod confine;
mod control;
pub mod core_dump;
pub mod devices;
mod exits;
pub mod exports;
// Fuzz targets are other crates: they reach internal code through this module only.
#[doc(hidden)]
pub mod fuzzing;
mod idt;
pub mod images;
pub mod inspect;
pub mod interrupts;
mod kick;
pub mod layout;
pub mod libraries;
pub mod live;
pub mod locate;
pub mod machine;
pub mod placement;
pub mod platform;
pub mod probe;
pub mod profile;
pub mod program;
pub mod report;
mod run;
mod signal_fd;
mod signals;
pub mod snapshot;
pub mod spawn;
mod supervisor;
mod terminal;
mod timers;
mod tree_reads;
pub mod validated;
mod waits;

pub use control::Stop;
pub use exits::{ExitReason, UserExits};
pub use hartline_tree as tree;
pub use idt::GateError;
pub use run::End;
pub use signal_fd::SignalFd;
pub use signals::SignalSet;
