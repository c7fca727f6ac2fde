//! What runs inside the VM beside the translated program: the dispatcher, the
//! interpreter and the library OS.
//!
//! The library is `no_std` but for its unit tests, which run on the host; the
//! binary `hartline-runtime` adds what only an image inside a VM needs.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod errno;
pub mod host;
pub mod interp;
pub mod kernel;
pub mod memory;
pub mod syscall;
pub mod user;
pub mod vfs;
