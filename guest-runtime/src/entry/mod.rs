//! The entries into the runtime: the start of a vCPU, the entry points that translated code calls,
//! the interpreter's loop, and CPU exceptions.
//!
//! This is the topmost part of the runtime. The parts below it return here, and never call it.

pub mod boot;
pub(crate) mod dispatch;
pub(crate) mod exception;
pub(crate) mod guard;
pub(crate) mod profile;
pub(crate) mod thunks;
