//! The library of the `hartline` command: the daemon's client, the form of error messages, and the
//! examination of a host.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

#[cfg(feature = "client")]
pub mod client;
pub mod command_line;
pub mod doctor;
