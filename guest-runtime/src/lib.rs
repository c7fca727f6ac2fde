//! The software inside the VM besides the translated program: the dispatcher, the interpreter and
//! the library OS.
//!
//! The library is `no_std` except for its unit tests, which run on the host. The binary
//! `hartline-runtime` adds the parts that only an image in a VM needs.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod boot;
pub(crate) mod chaos;
pub mod clock;
pub mod console;
pub mod cpus;
pub mod dispatch;
pub mod dispatch_cache;
pub mod drivers;
pub mod exception;
pub mod exit;
pub mod futex;
pub mod heap;
pub mod host;
pub mod hotness;
pub mod images;
pub mod interp;
pub mod kernel;
pub mod lifecycle;
pub mod loader;
pub mod memory;
pub mod net;
mod oom;
pub(crate) mod parallel;
pub mod process;
pub mod profile;
pub mod random;
pub mod scheduler;
pub(crate) mod shadow;
pub mod signals;
pub mod stack;
pub mod strace;
pub mod syscall;
pub mod task;
pub mod thunks;
pub mod timers;
pub mod translations;
pub mod user;
pub mod vfs;
pub mod volume;
pub mod volume_code;
pub mod windows;
