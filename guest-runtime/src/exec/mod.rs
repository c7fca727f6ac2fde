//! Execution of the program: translation images, the interpreter, and the counters by which the
//! VMM finds hot code. [`crate::entry`] dispatches between them.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod dispatch_cache;
pub mod hotness;
pub mod images;
pub mod interp;
pub(crate) mod shadow;
pub mod translations;
pub mod windows;
