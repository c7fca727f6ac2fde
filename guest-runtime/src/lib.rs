//! The software inside the VM besides the translated program: the dispatcher, the interpreter and
//! the library OS.
//!
//! The library is `no_std` except for its unit tests, which run on the host. The binary
//! `hartline-runtime` adds the parts that only an image in a VM needs.
#![cfg_attr(not(test), no_std)]
#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

extern crate alloc;

pub mod arch;
pub(crate) mod chaos;
pub mod convert;
pub mod credentials;
pub mod debugger;
pub mod drivers;
pub mod entry;
pub mod exec;
pub mod file;
pub mod fs;
pub mod ids;
pub mod ipc;
pub mod kernel;
pub mod mm;
pub mod net;
pub mod seccomp;
pub mod strace;
pub mod syscall;
pub mod wait;
