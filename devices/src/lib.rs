//! The host side of Hartline's devices.

pub mod console;
pub mod volume;
