//! inotify instances (`inotify_init1`).

use super::readable;
use crate::file::Io;
use crate::file::caller::Caller;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode, Shown};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::fs::types::Ino;
use crate::mm::UserSliceMut;
use crate::wait::poll::PollTable;
use alloc::string::String;
use core::fmt::{self, Write};
use hartline_linux::errno::Errno;

/// An inotify instance, known by its inode ([`crate::fs::notify`]).
#[derive(Debug)]
pub struct Inotify;

impl File for Inotify {
    fn mode(&self) -> Mode {
        Mode::NO_NOTIFY.with(Mode::ASYNC)
    }

    fn name(&self) -> &'static str {
        "inotify"
    }

    fn show_fdinfo(&self, shown: &Shown<'_>, out: &mut String) -> fmt::Result {
        let fs = &shown.vfs.fs;
        for (number, watched, mask) in fs.notify.watches(shown.ino) {
            let found = fs.attributes(watched, shown.process);
            let (device, ino) = found.map_or((0, 0), |found| (found.device, found.ino));
            writeln!(
                out,
                "inotify wd:{number:x} ino:{ino:x} sdev:{device:x} mask:{mask:x} ignored_mask:0 "
            )?;
        }
        Ok(())
    }

    fn release(&self, io: &mut Io<'_>, ino: Ino, _: u32) {
        io.vfs.fs.notify.remove_instance(ino);
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        transfer.io.vfs.fs.notify.read(transfer.ino, to)
    }

    fn poll(&self, view: &View<'_>, file: &OpenFile, table: &mut PollTable) -> u32 {
        let waiters = view.vfs.fs.notify.waiters(file.ino);
        waiters.into_iter().for_each(|waiters| table.wait(waiters));
        readable(view.vfs.fs.notify.waiting(file.ino) > 0)
    }

    fn waiting(&self, caller: &mut dyn Caller, ino: Ino, _: u64) -> Result<u64, Errno> {
        Ok(caller.io().0.vfs.fs.notify.waiting(ino) as u64)
    }
}
