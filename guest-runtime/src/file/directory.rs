//! Directories.

use crate::file::Io;
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::fs::process::FileId;
use crate::fs::types::Ino;
use crate::fs::volume::is_volume;
use crate::mm::{UserSlice, UserSliceMut};
use hartline_linux::errno::Errno;

/// A directory. The file position is the cookie of the next entry.
#[derive(Debug)]
pub struct Directory;

impl File for Directory {
    fn mode(&self) -> Mode {
        Mode::PREAD.with(Mode::NO_POLL)
    }

    fn read(&self, _: &mut Transfer<'_>, _: UserSliceMut<'_>) -> Result<usize, Errno> {
        Err(Errno::EISDIR)
    }

    fn read_limit(&self, _: &Io<'_>, _: Ino, _: u64) -> Result<u64, Errno> {
        Err(Errno::EISDIR)
    }

    fn write(&self, _: &mut Transfer<'_>, _: UserSlice<'_>) -> Result<usize, Errno> {
        Err(Errno::EISDIR)
    }

    fn llseek(&self, io: &mut Io<'_>, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        io.vfs.generic_llseek(id, i64::MAX as u64, offset, whence)
    }

    fn fsync(&self, io: &mut Io<'_>, ino: Ino, task: u32, only_data: bool) -> Result<(), Errno> {
        match is_volume(ino) {
            true => io.sync_volume(ino, task, only_data),
            false => Ok(()),
        }
    }

    fn sync_file_range(&self, io: &mut Io<'_>, ino: Ino, task: u32) -> Result<(), Errno> {
        self.fsync(io, ino, task, true)
    }
}
