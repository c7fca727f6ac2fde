//! Processes (`pidfd_open`).

use super::readable;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Shown};
use crate::file::view::View;
use crate::wait::WaitQueue;
use crate::wait::poll::PollTable;
use alloc::string::String;
use core::fmt::{self, Write};

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

    fn show_fdinfo(&self, shown: &Shown<'_>, out: &mut String) -> fmt::Result {
        // A process that was waited for has no number.
        let pid = match shown.process.registry.process(self.pid) {
            Some(_) => i64::from(self.pid),
            None => -1,
        };
        write!(out, "Pid:\t{pid}\nNSpid:\t{pid}\n")
    }

    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.waiters);
        readable(view.caller.has_ended(self.pid))
    }
}
