//! The operations of an open file, as Linux's `struct file_operations` has them.
//!
//! Each kind of open file implements [`File`] in a file of its own.

use super::caller::Caller;
use super::description::OpenFile;
use super::pty::pair::Ptys;
use super::transfer::Transfer;
use super::view::View;
use super::{Io, Vfs};
use crate::fs::process::{FileId, Process};
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut};
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, WRITABLE};
use alloc::string::String;
use core::any::Any;
use core::fmt::{self, Debug};
use core::ops::Range;
use hartline_linux::errno::Errno;
use hartline_linux::uio::Iovec;

/// Properties of an open file that do not change while it is open, as Linux's `f_mode`. They spare
/// the frequent calls a virtual call each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode(u16);

impl Mode {
    /// Reads and writes take a position (`FMODE_PREAD`, `FMODE_PWRITE`).
    pub const PREAD: Self = Self(1);
    /// Reads and writes wait for the host's storage, also with `O_NONBLOCK`: the file has
    /// [`File::storage`].
    pub const STORAGE: Self = Self(1 << 1);
    /// A write may take a part of the bytes only; a blocking call then waits to write the rest.
    pub const PARTIAL: Self = Self(1 << 2);
    /// A write takes one buffer at a time, never several gathered ones.
    pub const SINGLE: Self = Self(1 << 3);
    /// `splice` and `sendfile` read from the file.
    pub const SPLICE_READ: Self = Self(1 << 4);
    /// `splice` writes to the file.
    pub const SPLICE_WRITE: Self = Self(1 << 5);
    /// The file is always ready, so an interest list refuses it.
    pub const NO_POLL: Self = Self(1 << 6);
    /// Closing the file is not an inotify event (`FMODE_NONOTIFY`).
    pub const NO_NOTIFY: Self = Self(1 << 7);
    /// Events of the file can send a signal (`O_ASYNC`).
    pub const ASYNC: Self = Self(1 << 8);
    /// A task that waits for the file waits for standard input.
    pub const INPUT: Self = Self(1 << 9);
    /// The file is a terminal to the program: [`File::check_input`], [`File::check_output`] and
    /// [`File::read_timed`] do something.
    pub const TERMINAL: Self = Self(1 << 10);
    /// The kernel generates the file's text when it is read from its start.
    pub const TEXT: Self = Self(1 << 11);
    /// [`File::read_iter`] does something.
    pub const READ_ITER: Self = Self(1 << 12);
    /// The file is a socket: reads and writes are as `recv` and `send`.
    pub const SOCKET: Self = Self(1 << 13);
    /// Of several tasks that wait to read, a wake-up reaches one at a time. A read that leaves
    /// something wakes the next.
    pub const WAKE_ONE: Self = Self(1 << 14);

    /// The properties of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all properties of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a property of `other` is set.
    #[must_use]
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// How reads from storage are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storage {
    /// The most bytes of one read.
    pub window: usize,
    /// A short read means the end of the file.
    pub short_ends: bool,
}

/// Contents of a file mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapped {
    /// A file.
    File {
        /// Its inode.
        ino: Ino,
        /// The descriptor is open for reading and writing, so a shared mapping may be writable.
        writable: bool,
        /// The file's bytes, if they are in the root image, and its inode there, if the file is
        /// unchanged.
        image: Option<(&'static [u8], Option<u32>)>,
    },
    /// `/dev/zero`: the mapping is anonymous.
    Zero {
        /// The descriptor is open for writing, so a shared mapping may be writable.
        writable: bool,
    },
}

/// A description whose `fdinfo` is written.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The files of the VM.
    pub vfs: &'a Vfs,
    /// The process that the description is open in.
    pub process: &'a Process,
    /// The inode of the file.
    pub ino: Ino,
}

/// The operations of an open file. The default of each is Linux's behaviour for a file without
/// the operation.
///
/// `ino` and `flags` are those of the open file description.
pub trait File: Any + Debug {
    /// The file's properties.
    fn mode(&self) -> Mode {
        Mode::default()
    }

    /// The name of a file without a place in the file system, in `/proc/PID/fd`.
    fn name(&self) -> &'static str {
        ""
    }

    /// Writes the lines of `/proc/PID/fdinfo/N` that only files of this kind have.
    ///
    /// # Errors
    /// Those of `out`.
    fn show_fdinfo(&self, _shown: &Shown<'_>, _out: &mut String) -> fmt::Result {
        Ok(())
    }

    /// Records that a description was opened.
    fn open(&self, _io: &mut Io<'_>, _ino: Ino, _flags: u32) {}

    /// Records that the last descriptor of a description was closed.
    fn release(&self, _io: &mut Io<'_>, _ino: Ino, _flags: u32) {}

    /// Reads.
    ///
    /// # Errors
    /// Errors of read(2); `EAGAIN` if reading would block, except from standard input.
    fn read(&self, _transfer: &mut Transfer<'_>, _to: UserSliceMut<'_>) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// Returns the most bytes that a read at `at` may return, so that only the needed part of the
    /// program's buffer is touched.
    ///
    /// # Errors
    /// `EISDIR`; `EIO` if the file has gone.
    fn read_limit(&self, _io: &Io<'_>, _ino: Ino, _at: u64) -> Result<u64, Errno> {
        Ok(u64::MAX)
    }

    /// Reads into the program's memory and waits, or prepares a read; none: [`read`](Self::read)
    /// follows. Only for files with [`Mode::READ_ITER`].
    ///
    /// # Errors
    /// Errors of read(2).
    fn read_iter(
        &self,
        _caller: &mut dyn Caller,
        _flags: u32,
        _vectors: &[Iovec],
    ) -> Result<Option<u64>, Errno> {
        Ok(None)
    }

    /// Writes.
    ///
    /// # Errors
    /// Errors of write(2); `EAGAIN` if writing would block, except to standard output and error.
    fn write(&self, _transfer: &mut Transfer<'_>, _from: UserSlice<'_>) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// The most bytes of one write.
    fn write_window(&self) -> u64 {
        u64::MAX
    }

    /// How reads from storage are divided. Only for files with [`Mode::STORAGE`].
    fn storage(&self) -> Option<Storage> {
        None
    }

    /// Moves the file position of description `id`; returns the new position.
    ///
    /// # Errors
    /// Errors of lseek(2).
    fn llseek(
        &self,
        _io: &mut Io<'_>,
        _id: FileId,
        _offset: i64,
        _whence: u32,
    ) -> Result<u64, Errno> {
        Err(Errno::ESPIPE)
    }

    /// Returns the ready events, and names the wait queues that are woken when others become ready.
    fn poll(&self, _view: &View<'_>, _file: &OpenFile, _table: &mut PollTable) -> u32 {
        READABLE | WRITABLE
    }

    /// The file is standard input: the host announces when signals (`O_ASYNC`) are to be sent.
    fn is_standard_input(&self) -> bool {
        false
    }

    /// The foreground process group, if the file is a terminal; 0: it has none.
    fn foreground(&self, _ptys: &Ptys) -> Option<u32> {
        None
    }

    /// Checks that the calling process may read from a terminal, and stops it if not.
    ///
    /// # Errors
    /// `EIO` if the process cannot be stopped, `EINTR` if it is.
    fn check_input(&self, _caller: &mut dyn Caller) -> Result<(), Errno> {
        Ok(())
    }

    /// Checks that the calling process may write to a terminal, and stops it if not.
    ///
    /// # Errors
    /// `EIO` if the process cannot be stopped, `EINTR` if it is.
    fn check_output(&self, _caller: &mut dyn Caller) -> Result<(), Errno> {
        Ok(())
    }

    /// Handles a read that found too few bytes: with a time limit (`VTIME`), it waits and then
    /// returns the bytes there are. None if there is no such limit.
    ///
    /// # Errors
    /// The errors of reading and of waiting.
    fn read_timed(
        &self,
        _caller: &mut dyn Caller,
        _address: u64,
        _count: u64,
    ) -> Result<Option<u64>, Errno> {
        Ok(None)
    }

    /// Serves an `ioctl` request.
    ///
    /// # Errors
    /// `ENOTTY` for an unknown request.
    fn ioctl(&self, _caller: &mut dyn Caller, _request: u32, _address: u64) -> Result<u64, Errno> {
        Err(Errno::ENOTTY)
    }

    /// Returns the number of bytes that can be read without blocking (`FIONREAD`).
    ///
    /// # Errors
    /// `ENOTTY` if the number of bytes is unknown.
    fn waiting(&self, _caller: &mut dyn Caller, _ino: Ino, _position: u64) -> Result<u64, Errno> {
        Err(Errno::ENOTTY)
    }

    /// Makes the file durable for task `task`, or only its data.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; `EINVAL` if there is nothing to make durable.
    fn fsync(
        &self,
        _io: &mut Io<'_>,
        _ino: Ino,
        _task: u32,
        _only_data: bool,
    ) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// Makes the data durable for task `task` (`sync_file_range`).
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; `ESPIPE` if the file has no ranges.
    fn sync_file_range(&self, _io: &mut Io<'_>, _ino: Ino, _task: u32) -> Result<(), Errno> {
        Err(Errno::ESPIPE)
    }

    /// Allocates or frees a range of the file, as `mode` says.
    ///
    /// # Errors
    /// Errors of fallocate(2).
    fn fallocate(
        &self,
        _vfs: &mut Vfs,
        _ino: Ino,
        _mode: u64,
        _range: Range<u64>,
    ) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }

    /// Returns what a mapping shows. `code`: it is private and will be executed.
    ///
    /// # Errors
    /// `ENODEV` for a file without mappings.
    fn mmap(&self, _vfs: &mut Vfs, _ino: Ino, _flags: u32, _code: bool) -> Result<Mapped, Errno> {
        Err(Errno::ENODEV)
    }
}

impl dyn File {
    /// The file as a `T`, for the calls that are about one kind of file.
    #[must_use]
    pub fn downcast<T: File>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Whether the file is a `T`.
    #[must_use]
    pub fn is<T: File>(&self) -> bool {
        (self as &dyn Any).is::<T>()
    }
}
