//! Processes (`pidfd_open`).

use super::readable;
use crate::fs::file::OpenFile;
use crate::fs::operations::{File, PollTable};
use crate::kernel::Kernel;

/// The process of this number.
#[derive(Debug)]
pub struct PidFd(pub u32);

impl File for PidFd {
    fn name(&self) -> &'static str {
        "[pidfd]"
    }

    fn poll(&self, kernel: &Kernel, _: &OpenFile, _: &mut PollTable) -> u32 {
        let process = kernel.processes().find(|process| process.pid == self.0);
        readable(process.is_none_or(|process| process.is_zombie()))
    }
}
