//! Execution of the program: dispatch between translated code and the interpreter, translation
//! images, and the counters that tell the VMM what is hot.

pub mod dispatch;
pub mod dispatch_cache;
pub mod guard;
pub mod hotness;
pub mod images;
pub mod interp;
pub mod profile;
pub(crate) mod shadow;
pub mod translations;
pub mod windows;
