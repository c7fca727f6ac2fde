//! Pending signals of the reading process (`signalfd4`).

use super::readable;
use crate::file::caller::Caller;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode, Shown};
use crate::file::view::View;
use crate::mm::user;
use crate::wait::poll::PollTable;
use crate::wait::time::NEVER;
use crate::wait::{READABLE, Registration};
use alloc::string::String;
use core::cell::Cell;
use core::fmt::{self, Write};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_NONBLOCK;
use hartline_linux::uio::Iovec;

/// Size of a `struct signalfd_siginfo`, bytes.
const RECORD: u64 = 128;

/// A signalfd.
#[derive(Debug)]
pub struct SignalFd {
    /// The signals that it reads, a bit for each.
    pub set: Cell<u64>,
}

impl File for SignalFd {
    fn mode(&self) -> Mode {
        Mode::READ_ITER
    }

    fn name(&self) -> &'static str {
        "[signalfd]"
    }

    fn show_fdinfo(&self, _: &Shown<'_>, out: &mut String) -> fmt::Result {
        writeln!(out, "sigmask:\t{:016x}", self.set.get())
    }

    /// Reads pending signals; waits for the first if the descriptor blocks.
    fn read_iter(
        &self,
        caller: &mut dyn Caller,
        flags: u32,
        vectors: &[Iovec],
    ) -> Result<Option<u64>, Errno> {
        let mut done = 0;
        for vector in vectors {
            let mut at = 0;
            while vector.iov_len - at >= RECORD {
                let address = vector.iov_base.wrapping_add(at);
                // The address is checked first, so that a bad one loses no signal.
                user::slice_mut(caller.memory(), address, RECORD)?;
                let Some(info) = caller.take_signal(self.set.get()) else {
                    break;
                };
                user::write(caller.memory(), address, &info)?;
                at += RECORD;
                done += RECORD;
            }
        }
        match done {
            0 if vectors.iter().all(|vector| vector.iov_len < RECORD) => Err(Errno::EINVAL),
            0 if flags & O_NONBLOCK != 0 => Err(Errno::EAGAIN),
            0 => {
                let registration = Registration::new(caller.signal_waiters(), READABLE);
                Err(caller.block_at(registration, NEVER, 0))
            }
            done => Ok(Some(done)),
        }
    }

    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(view.caller.signal_waiters());
        readable(view.caller.pending_signals() & self.set.get() != 0)
    }
}
