//! The VM's files together with what they lead to.

use super::Vfs;
use super::pty::pair::Ptys;
use crate::fs::disks::Disks;
use crate::net::Network;

/// The files of the VM, its sockets, its pseudo-terminals and its disks: borrowed together for the
/// operations that may reach each of them, such as opening and closing.
#[derive(Debug)]
pub struct Io<'a> {
    /// The files of the VM.
    pub vfs: &'a mut Vfs,
    /// Sockets.
    pub net: &'a mut Network,
    /// Pseudo-terminals.
    pub ptys: &'a mut Ptys,
    /// Block devices, and requests to volumes.
    pub disks: &'a mut Disks,
}

impl Io<'_> {
    /// Borrows the same parts for a shorter time.
    #[inline]
    pub fn reborrow(&mut self) -> Io<'_> {
        Io {
            vfs: self.vfs,
            net: self.net,
            ptys: self.ptys,
            disks: self.disks,
        }
    }
}
