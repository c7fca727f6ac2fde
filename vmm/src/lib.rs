//! The virtual machine monitor: KVM, the guest's memory, its run and its end.

pub mod affinity;
mod attention;
pub mod background;
pub mod boot;
mod calls;
pub mod chaos;
pub mod client;
pub mod command_line;
pub mod confine;
mod control;
pub mod daemon;
pub mod devices;
pub mod doctor;
mod exits;
// Fuzz targets are other crates: they reach internal code through this module only.
#[doc(hidden)]
pub mod fuzzing;
mod idt;
pub mod images;
pub mod interrupts;
pub mod jail;
pub mod jailed;
pub mod known;
pub mod layout;
pub mod libraries;
pub mod live;
pub mod machine;
pub mod placement;
pub mod platform;
pub mod printable;
pub mod probe;
pub mod profile;
pub mod program;
pub mod report;
mod run;
mod signals;
pub mod spawner;
mod supervisor;
mod terminal;
mod timers;
mod waits;

pub use control::Stop;
pub use exits::{ExitReason, UserExits};
pub use hartline_tree as tree;
pub use idt::GateError;
pub use run::End;
