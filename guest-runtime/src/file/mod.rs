//! Open files: their table and descriptions ([`Vfs`], [`description`]), and one file for each kind,
//! with its state and its [`File`](operations::File) operations.
//!
//! System calls and [`open`] create them. Everything else reaches them through the trait, so that
//! a new kind needs a file here and the system call that creates it.

mod anonymous;
pub mod asynchronous;
pub mod caller;
pub mod console;
pub mod description;
pub mod device;
pub mod directory;
pub mod disk;
pub mod epoll;
pub mod eventfd;
mod given;
pub mod inotify;
mod io;
pub mod mount_text;
pub mod mqueue;
pub mod open;
pub mod operations;
pub mod path;
pub mod pidfd;
pub mod pipe;
pub mod proc;
mod proc_net;
pub mod proc_text;
pub mod pty;
pub mod regular;
mod resolver;
pub mod signalfd;
pub mod socket;
mod sys_text;
mod termios;
#[cfg(test)]
mod tests;
pub mod timerfd;
pub mod transfer;
pub mod userfaultfd;
mod vfs;
pub mod view;

pub use io::Io;
pub use vfs::{Target, Vfs};

use crate::wait::{READABLE, WRITABLE};

/// [`READABLE`] if `on`, else no event.
fn readable(on: bool) -> u32 {
    if on { READABLE } else { 0 }
}

/// [`WRITABLE`] if `on`, else no event.
fn writable(on: bool) -> u32 {
    if on { WRITABLE } else { 0 }
}
