//! What executes the program: translation images, the interpreter, and the counters that tell the
//! VMM what is hot. [`crate::entry`] dispatches between them.

pub mod dispatch_cache;
pub mod hotness;
pub mod images;
pub mod interp;
pub(crate) mod shadow;
pub mod translations;
pub mod windows;
