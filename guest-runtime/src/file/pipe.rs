//! Ends of pipes, named (FIFOs) and unnamed.

use super::{readable, writable};
use crate::file::caller::Caller;
use crate::file::description::{OpenFile, reads, writes};
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::file::{Io, Vfs};
use crate::fs::filesystem::{NewInode, PIPE_DEVICE};
use crate::fs::inode::Kind;
use crate::fs::pipe::Pipe;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut};
use crate::wait::poll::PollTable;
use alloc::rc::Rc;
use core::ops::Range;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_DIRECT, O_RDONLY, O_WRONLY};
use hartline_linux::poll::{POLLERR, POLLHUP};

/// An end of a pipe, or both, as the flags of its description say. The pipe is in the inode.
#[derive(Debug)]
pub struct PipeEnd;

impl PipeEnd {
    /// Counts readers and writers of a pipe.
    fn count(vfs: &mut Vfs, ino: Ino, flags: u32, change: fn(u32) -> u32) {
        let (reads, writes) = (reads(flags), writes(flags));
        if !reads && !writes {
            return;
        }
        if let Ok(pipe) = pipe_mut(vfs, ino) {
            if reads {
                pipe.readers = change(pipe.readers);
            }
            if writes {
                pipe.writers = change(pipe.writers);
            }
            pipe.note_end();
        }
    }
}

fn pipe(vfs: &Vfs, ino: Ino) -> Result<&Pipe, Errno> {
    match &vfs.fs.inode(ino)?.kind {
        Kind::Fifo(pipe) => Ok(pipe),
        _ => Err(Errno::EBADF),
    }
}

fn pipe_mut(vfs: &mut Vfs, ino: Ino) -> Result<&mut Pipe, Errno> {
    match &mut vfs.fs.inode_mut(ino)?.kind {
        Kind::Fifo(pipe) => Ok(pipe),
        _ => Err(Errno::EBADF),
    }
}

impl File for PipeEnd {
    fn mode(&self) -> Mode {
        Mode::PARTIAL.with(Mode::ASYNC).with(Mode::WAKE_ONE)
    }

    fn open(&self, io: &mut Io<'_>, ino: Ino, flags: u32) {
        if let Ok(pipe) = pipe_mut(io.vfs, ino) {
            let ends = [reads(flags), writes(flags)];
            for (opens, end) in pipe.opens.iter_mut().zip(ends) {
                *opens = opens.wrapping_add(u32::from(end));
            }
        }
        Self::count(io.vfs, ino, flags, |count| count.saturating_add(1));
    }

    fn release(&self, io: &mut Io<'_>, ino: Ino, flags: u32) {
        Self::count(io.vfs, ino, flags, |count| count.saturating_sub(1));
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        let pipe = pipe_mut(transfer.io.vfs, transfer.ino)?;
        let done = pipe.read(to)?;
        pipe.note_rest();
        Ok(done)
    }

    fn read_limit(&self, io: &Io<'_>, ino: Ino, _: u64) -> Result<u64, Errno> {
        match &io.vfs.fs.inode(ino)?.kind {
            Kind::Fifo(pipe) => Ok((pipe.len() as u64).max(1)),
            _ => Ok(0),
        }
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        let pipe = pipe_mut(transfer.io.vfs, transfer.ino)?;
        match transfer.flags & O_DIRECT {
            0 => pipe.write(from),
            _ => pipe.write_packets(from),
        }
    }

    fn poll(&self, view: &View<'_>, file: &OpenFile, table: &mut PollTable) -> u32 {
        let Ok(pipe) = pipe(view.vfs, file.ino) else {
            return POLLERR;
        };
        let mut ready = 0;
        if reads(file.flags) {
            table.wait(&pipe.read_waiters);
            ready |= readable(!pipe.is_empty());
            ready |= if pipe.writers == 0 { POLLHUP } else { 0 };
        }
        if writes(file.flags) {
            table.wait(&pipe.write_waiters);
            ready |= writable(pipe.is_writable());
            ready |= if pipe.readers == 0 { POLLERR } else { 0 };
        }
        ready
    }

    fn waiting(&self, caller: &mut dyn Caller, ino: Ino, _: u64) -> Result<u64, Errno> {
        match &caller.io().0.vfs.fs.inode(ino)?.kind {
            Kind::Fifo(pipe) => Ok(pipe.len() as u64),
            _ => Ok(0),
        }
    }

    fn fallocate(&self, _: &mut Vfs, _: Ino, _: u64, _: Range<u64>) -> Result<(), Errno> {
        Err(Errno::ESPIPE)
    }
}

impl Io<'_> {
    /// Creates a pipe; returns the descriptors of its read end and its write end.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOSPC`.
    pub fn pipe(
        &mut self,
        process: &mut Process,
        flags: u32,
        close_on_exec: bool,
    ) -> Result<[u32; 2], Errno> {
        let new = NewInode::fifo(0o600);
        let ino = self.vfs.fs.add_unnamed(new, &process.cred, PIPE_DEVICE)?;
        let reader = OpenFile::new(ino, O_RDONLY | flags, Rc::new(PipeEnd));
        let writer = OpenFile::new(ino, O_WRONLY | flags, Rc::new(PipeEnd));
        let read = self.install(process, reader, close_on_exec)?;
        match self.install(process, writer, close_on_exec) {
            Ok(write) => Ok([read, write]),
            Err(error) => {
                self.close(process, read)?;
                Err(error)
            }
        }
    }
}
