//! Interest lists (`epoll_create1`).

use super::readable;
use crate::fs::epoll::{Epoll, Interest, MAX_NESTING};
use crate::fs::file::OpenFile;
use crate::fs::operations::File;
use crate::kernel::Kernel;
use crate::wait::poll::PollTable;

impl File for Epoll {
    fn name(&self) -> &'static str {
        "[eventpoll]"
    }

    /// Checks the candidates. Their own queues wake this list, so the caller waits for this list
    /// only.
    fn poll(&self, kernel: &Kernel, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(self.waiters());
        if table.depth >= MAX_NESTING {
            return 0;
        }
        let mut inner = PollTable::default();
        inner.depth = table.depth + 1;
        let is_ready = |interest: &Interest| {
            let (_, id) = interest.key();
            let file = kernel.files.vfs.files.get(id);
            file.is_ok_and(|file| {
                file.object.poll(kernel, file, &mut inner) & interest.events() != 0
            })
        };
        let is_ready = self.any_candidate(is_ready);
        table.input |= inner.input;
        readable(is_ready)
    }
}
