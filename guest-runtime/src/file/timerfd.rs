//! Timers (`timerfd_create`).

use super::readable;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::kernel::Kernel;
use crate::kernel::timers::TimerFd;
use crate::mm::UserSliceMut;
use crate::wait::poll::PollTable;
use hartline_linux::errno::Errno;
use hartline_linux::uio::Iovec;

impl File for TimerFd {
    fn mode(&self) -> Mode {
        Mode::READ_ITER
    }

    fn name(&self) -> &'static str {
        "[timerfd]"
    }

    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        if to.len() < size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        match self.expirations.take() {
            0 => Err(Errno::EAGAIN),
            count => Ok(to.copy_start(&count.to_le_bytes())),
        }
    }

    /// Runs the timers, so that the read counts all expirations.
    fn read_iter(&self, kernel: &mut Kernel, _: u32, _: &[Iovec]) -> Result<Option<u64>, Errno> {
        kernel.run_timers();
        Ok(None)
    }

    fn poll(&self, _: &Kernel, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.waiters);
        readable(self.expirations.get() > 0)
    }
}
