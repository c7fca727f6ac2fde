//! The parts that depend on the processor and on the VM: vCPUs and their kicks, the clock, and calls
//! to the VMM.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod clock;
pub mod cpus;
pub mod host;
pub mod kick;
