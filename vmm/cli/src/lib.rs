//! The parts of the `hartline` command that do not depend on its arguments.

#[cfg(feature = "client")]
pub mod client;
pub mod command_line;
pub mod doctor;
