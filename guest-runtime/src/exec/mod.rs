//! Execution of the program: translation images, the interpreter, and the counters by which the
//! VMM finds hot code. [`crate::entry`] dispatches between them.

mod detours;
pub mod dispatch_cache;
pub mod hotness;
pub mod images;
pub mod interp;
pub(crate) mod jit;
pub(crate) mod shadow;
pub mod translations;
pub mod windows;
