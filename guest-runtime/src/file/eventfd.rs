//! Counters (`eventfd2`).

use super::{readable, writable};
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode, Shown};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut};
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, WRITABLE, WaitQueue};
use alloc::string::String;
use core::cell::Cell;
use core::fmt::{self, Write};
use hartline_linux::errno::Errno;

/// An eventfd.
#[derive(Debug)]
pub struct EventFd {
    /// The counter; at most `u64::MAX - 1`.
    count: Cell<u64>,
    /// Reads take one instead of all (`EFD_SEMAPHORE`).
    semaphore: bool,
    waiters: WaitQueue,
}

impl EventFd {
    /// An eventfd that starts at `count`.
    #[must_use]
    pub fn new(count: u32, semaphore: bool) -> Self {
        Self {
            count: Cell::new(u64::from(count)),
            semaphore,
            waiters: WaitQueue::default(),
        }
    }

    /// Adds one to the counter on behalf of the kernel; the largest value stays.
    pub fn signal(&self) {
        self.count
            .set(self.count.get().saturating_add(1).min(u64::MAX - 1));
        self.waiters.wake(READABLE);
    }
}

impl File for EventFd {
    fn mode(&self) -> Mode {
        Mode::SINGLE
    }

    fn name(&self) -> &'static str {
        "[eventfd]"
    }

    fn show_fdinfo(&self, shown: &Shown<'_>, out: &mut String) -> fmt::Result {
        let (count, Ino(id, _)) = (self.count.get(), shown.ino);
        let semaphore = u32::from(self.semaphore);
        write!(
            out,
            "eventfd-count: {count:16x}\neventfd-id: {id}\neventfd-semaphore: {semaphore}\n"
        )
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
        self.waiters.wake(WRITABLE);
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
        self.waiters.wake(READABLE);
        Ok(8)
    }

    fn poll(&self, _: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.waiters);
        let count = self.count.get();
        readable(count > 0) | writable(count < u64::MAX - 1)
    }
}
