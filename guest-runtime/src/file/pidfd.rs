//! Processes (`pidfd_open`).

use super::readable;
use crate::file::description::OpenFile;
use crate::file::operations::File;
use crate::file::view::View;
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

    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.waiters);
        readable(view.caller.has_ended(self.pid))
    }
}
