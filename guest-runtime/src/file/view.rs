//! What a check for ready events may look at.

use super::Vfs;
use super::caller::Caller;
use super::pty::pair::Ptys;
use crate::drivers::streams::Streams;
use crate::net::Network;

/// The state that decides which events of open files are ready.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The files of the VM.
    pub vfs: &'a Vfs,
    /// Sockets.
    pub net: &'a Network,
    /// Pseudo-terminals.
    pub ptys: &'a Ptys,
    /// Standard streams.
    pub streams: &'a Streams,
    /// The calling task.
    pub caller: &'a dyn Caller,
}
