//! Open files: one file for each kind, with its state and its [`File`](crate::fs::operations::File)
//! operations.
//!
//! System calls and [`open`] create them. Everything else reaches them through the trait, so that
//! a new kind needs a file here and the system call that creates it.

pub mod console;
pub mod device;
pub mod directory;
pub mod disk;
pub mod epoll;
pub mod eventfd;
pub mod inotify;
pub mod open;
pub mod path;
pub mod pidfd;
pub mod pipe;
pub mod proc;
pub mod pty;
pub mod regular;
pub mod signalfd;
pub mod socket;
pub mod timerfd;

use crate::wait::{READABLE, WRITABLE};

/// [`READABLE`] if `on`, else no event.
fn readable(on: bool) -> u32 {
    if on { READABLE } else { 0 }
}

/// [`WRITABLE`] if `on`, else no event.
fn writable(on: bool) -> u32 {
    if on { WRITABLE } else { 0 }
}
