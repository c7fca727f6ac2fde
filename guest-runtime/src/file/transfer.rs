//! Moving bytes between open files and memory.

use super::{Io, Vfs};
use crate::credentials::Credentials;
use crate::fs::process::FileId;
use crate::fs::types::{Ino, MAX_RW_COUNT};
use crate::mm::{UserSlice, UserSliceMut};
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_NONBLOCK;
use hartline_linux::fs::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};

/// The environment of the file system: the calling task, the VM's streams and its random numbers.
pub trait Outside {
    /// The task that makes the call.
    fn task(&self) -> u32;

    /// The identity of the calling task.
    fn cred(&self) -> &Credentials;

    /// Sets the name of task `tid`, which is padded with NUL bytes.
    ///
    /// # Errors
    /// `ESRCH` if there is no such task, `EINVAL` if it is a task of another process.
    fn set_name(&mut self, tid: u32, name: [u8; 16]) -> Result<(), Errno>;

    /// Reads from standard input; 0 at its end.
    ///
    /// # Errors
    /// `EAGAIN` if reading would block and `nonblocking` is set, `EINTR`, or an error of the host.
    fn read_input(&mut self, to: UserSliceMut<'_>, nonblocking: bool) -> Result<usize, Errno>;

    /// Writes to standard output (1) or error (2).
    ///
    /// # Errors
    /// `EPIPE`, `EINTR`, or an error of the host.
    fn write_output(&mut self, stream: u32, from: UserSlice<'_>) -> Result<usize, Errno>;

    /// The stream that `/dev/tty` writes to; none without a terminal.
    fn terminal(&self) -> Option<u32>;

    /// Fills memory with random bytes.
    fn random(&mut self, to: UserSliceMut<'_>);

    /// Mixes these bytes into the random number generator.
    fn mix(&mut self, from: UserSlice<'_>);

    /// Fills the start of a buffer with bytes of the entropy device; returns their number.
    ///
    /// # Errors
    /// `ENODEV` if there is none, `EIO`.
    fn entropy(&mut self, to: UserSliceMut<'_>) -> Result<usize, Errno>;
}

/// A read or a write of an open file.
pub struct Transfer<'a> {
    /// The files of the VM, and what they lead to.
    pub io: Io<'a>,
    /// The environment of the file system.
    pub outside: &'a mut dyn Outside,
    /// The description.
    pub id: FileId,
    /// Its inode.
    pub ino: Ino,
    /// Its flags.
    pub flags: u32,
    /// The position that the call names; none: the file position, which then moves.
    pub offset: Option<u64>,
    /// The file position before the call.
    position: u64,
}

impl Transfer<'_> {
    /// The position of the first byte.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.offset.unwrap_or(self.position)
    }

    /// Whether the description has `O_NONBLOCK`.
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        self.flags & O_NONBLOCK != 0
    }

    /// Checks that a file without a position is used without one.
    ///
    /// # Errors
    /// `ESPIPE` if the call names a position.
    pub fn check_stream(&self) -> Result<(), Errno> {
        match self.offset {
            None => Ok(()),
            Some(_) => Err(Errno::ESPIPE),
        }
    }

    /// Moves the file position by `by` bytes, unless the call names a position; returns `by`.
    ///
    /// # Errors
    /// `EBADF` if the description is closed.
    pub fn advance(&mut self, by: usize) -> Result<usize, Errno> {
        self.move_to(self.position + by as u64)?;
        Ok(by)
    }

    /// Sets the file position, unless the call names a position.
    ///
    /// # Errors
    /// `EBADF` if the description is closed.
    pub fn move_to(&mut self, position: u64) -> Result<(), Errno> {
        if self.offset.is_none() {
            self.io.vfs.files.get_mut(self.id)?.offset = position;
        }
        Ok(())
    }
}

impl Io<'_> {
    /// Reads at `offset`, or at the file position, which then moves.
    ///
    /// # Errors
    /// Errors of read(2) and pread(2); `EAGAIN` if reading would block, except from standard input.
    pub fn read(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        to: UserSliceMut<'_>,
        outside: &mut dyn Outside,
    ) -> Result<usize, Errno> {
        let file = self.vfs.files.get(id)?;
        file.check_readable()?;
        let object = Rc::clone(&file.object);
        let mut transfer = Transfer {
            id,
            ino: file.ino,
            flags: file.flags,
            offset,
            position: file.offset,
            io: self.reborrow(),
            outside,
        };
        object.read(&mut transfer, to)
    }

    /// Reads a file of a volume for task `task`. Returns fewer bytes than `to` has room for at the
    /// end of the file, or if one request cannot transfer them.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; an error of the host.
    pub fn read_volume(
        &mut self,
        ino: Ino,
        task: u32,
        at: u64,
        mut to: UserSliceMut<'_>,
    ) -> Result<usize, Errno> {
        let node = self.vfs.fs.node(ino)?;
        let done = self.disks.volumes()?.read(task, node, at, to.reborrow())?;
        if let Some(memory) = self.vfs.fs.mapped_volume(ino) {
            memory.overlay(at, to.part(0, done));
        }
        Ok(done)
    }

    /// Makes a file or directory of a volume durable for task `task`, or only its data.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; an error of the host.
    pub fn sync_volume(&mut self, ino: Ino, task: u32, only_data: bool) -> Result<(), Errno> {
        let memory = self.vfs.fs.mapped_volume(ino);
        if !memory.is_none_or(|memory| memory.write_back(0..u64::MAX)) {
            return Err(Errno::EIO);
        }
        let node = self.vfs.fs.node(ino)?;
        self.disks.volumes()?.sync(task, node, only_data)
    }

    /// The most bytes that [`read`](Self::read) of `count` bytes may return, so that only the
    /// needed part of the program's buffer is touched.
    ///
    /// # Errors
    /// `EBADF`, `EISDIR`.
    pub fn read_limit(&self, id: FileId, offset: Option<u64>, count: u64) -> Result<u64, Errno> {
        let file = self.vfs.files.get(id)?;
        file.check_readable()?;
        let at = offset.unwrap_or(file.offset);
        let limit = file.object.read_limit(self, file.ino, at)?;
        Ok(limit.min(count).min(MAX_RW_COUNT as u64))
    }

    /// Writes at `offset`, or at the file position, which then moves.
    ///
    /// # Errors
    /// Errors of write(2) and pwrite(2); `EAGAIN` if writing would block, except to standard output
    /// and error.
    pub fn write(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        from: UserSlice<'_>,
        outside: &mut dyn Outside,
    ) -> Result<usize, Errno> {
        let file = self.vfs.files.get(id)?;
        file.check_writable()?;
        let object = Rc::clone(&file.object);
        let mut transfer = Transfer {
            id,
            ino: file.ino,
            flags: file.flags,
            offset,
            position: file.offset,
            io: self.reborrow(),
            outside,
        };
        object.write(&mut transfer, from)
    }

    /// Moves the file position (`lseek`); returns the new position.
    ///
    /// # Errors
    /// `ESPIPE`, `EINVAL`, `EOVERFLOW`, `ENXIO`, `EBADF`.
    pub fn seek(&mut self, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        let file = self.vfs.files.get(id)?;
        file.check_located()?;
        let object = Rc::clone(&file.object);
        object.llseek(self, id, offset, whence)
    }
}

impl Vfs {
    /// Moves the position of a file that ends at `end` and has no holes that the file tells, as
    /// Linux's `generic_file_llseek_size`.
    ///
    /// # Errors
    /// `EINVAL`, `EOVERFLOW`, `ENXIO`, `EBADF`.
    pub fn generic_llseek(
        &mut self,
        id: FileId,
        end: u64,
        offset: i64,
        whence: u32,
    ) -> Result<u64, Errno> {
        let file = self.files.get_mut(id)?;
        let base = match whence {
            SEEK_SET => 0,
            SEEK_CUR => file.offset.cast_signed(),
            SEEK_END => end.cast_signed(),
            SEEK_DATA | SEEK_HOLE if offset < 0 => return Err(Errno::ENXIO),
            _ => return Err(Errno::EINVAL),
        };
        let position = base.checked_add(offset).ok_or(Errno::EOVERFLOW)?;
        let position = u64::try_from(position).map_err(|_| Errno::EINVAL)?;
        file.offset = position;
        Ok(position)
    }
}
