//! Processes (`pidfd_open`).

use super::readable;
use crate::file::description::OpenFile;
use crate::file::operations::File;
use crate::kernel::Kernel;
use crate::wait::WaitQueue;
use crate::wait::poll::PollTable;

/// A process, which may have ended.
#[derive(Debug)]
pub struct PidFd {
    /// Number of the process.
    pub pid: u32,
    /// Woken when the process ends.
    pub waiters: WaitQueue,
}

impl File for PidFd {
    fn name(&self) -> &'static str {
        "[pidfd]"
    }

    fn poll(&self, kernel: &Kernel, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.waiters);
        let process = kernel.processes().find(|process| process.pid == self.pid);
        readable(process.is_none_or(|process| process.is_zombie()))
    }
}
