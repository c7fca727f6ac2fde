//! Counters (`eventfd2`).

use super::{readable, writable};
use crate::fs::Vfs;
use crate::fs::epoll::Announcement;
use crate::fs::file::OpenFile;
use crate::fs::operations::{File, Mode, PollTable};
use crate::fs::transfer::Transfer;
use crate::fs::types::Ino;
use crate::kernel::Kernel;
use crate::mm::{UserSlice, UserSliceMut};
use core::cell::Cell;
use hartline_linux::errno::Errno;

/// An eventfd.
#[derive(Debug)]
pub struct EventFd {
    /// The counter; at most `u64::MAX - 1`.
    count: Cell<u64>,
    /// Reads take one instead of all (`EFD_SEMAPHORE`).
    semaphore: bool,
    /// Counters of writes and reads.
    edges: Cell<[u32; 2]>,
}

impl EventFd {
    /// An eventfd that starts at `count`.
    #[must_use]
    pub fn new(count: u32, semaphore: bool) -> Self {
        Self {
            count: Cell::new(u64::from(count)),
            semaphore,
            edges: Cell::new([0; 2]),
        }
    }
}

impl File for EventFd {
    fn mode(&self) -> Mode {
        Mode::SINGLE
    }

    fn name(&self) -> &'static str {
        "[eventfd]"
    }

    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        if to.len() < size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        let count = self.count.get();
        if count == 0 {
            return Err(Errno::EAGAIN);
        }
        let taken = if self.semaphore { 1 } else { count };
        self.count.set(count - taken);
        let [writes, reads] = self.edges.get();
        self.edges.set([writes, reads.wrapping_add(1)]);
        transfer.vfs.changed.push(transfer.ino);
        Ok(to.copy_start(&taken.to_le_bytes()))
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        let added: u64 = from.value().ok_or(Errno::EINVAL)?;
        if added == u64::MAX {
            return Err(Errno::EINVAL);
        }
        match self.count.get().checked_add(added) {
            Some(count) if count < u64::MAX => self.count.set(count),
            _ => return Err(Errno::EAGAIN),
        }
        let [writes, reads] = self.edges.get();
        self.edges.set([writes.wrapping_add(1), reads]);
        transfer.vfs.changed.push(transfer.ino);
        Ok(8)
    }

    fn poll(&self, _: &Kernel, _: &OpenFile, _: &mut PollTable) -> u32 {
        let count = self.count.get();
        readable(count > 0) | writable(count < u64::MAX - 1)
    }

    fn announcement(&self, _: &Vfs) -> Announcement {
        Announcement::Change
    }

    fn edges(&self, _: &Vfs, _: Ino) -> [u32; 2] {
        self.edges.get()
    }
}
