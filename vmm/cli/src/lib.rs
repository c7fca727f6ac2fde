//! The library of the `hartline` command: the daemon's client, the form of error messages, and the
//! examination of a host.

#[cfg(feature = "client")]
pub mod client;
pub mod command_line;
pub mod doctor;
