//! Interest lists (`epoll_create1`).

use super::readable;
use crate::fs::epoll::Epoll;
use crate::fs::file::OpenFile;
use crate::fs::operations::{File, PollTable};
use crate::kernel::Kernel;
use hartline_linux::poll::{POLLERR, POLLHUP, POLLNVAL};

/// Events that are reported without being requested.
pub const ALWAYS: u32 = POLLERR | POLLHUP | POLLNVAL;

/// Deepest nesting of epoll instances (`EP_MAX_NESTS`).
pub const MAX_NESTING: u32 = 4;

impl File for Epoll {
    fn name(&self) -> &'static str {
        "[eventpoll]"
    }

    fn poll(&self, kernel: &Kernel, _: &OpenFile, table: &mut PollTable) -> u32 {
        if table.depth >= MAX_NESTING {
            return 0;
        }
        table.depth += 1;
        let is_ready = self.interests().iter().any(|(&(_, id), interest)| {
            let file = kernel.vfs.files.get(id);
            file.is_ok_and(|file| {
                file.object.poll(kernel, file, table) & (interest.events | ALWAYS) != 0
            })
        });
        table.depth -= 1;
        readable(is_ready)
    }
}
