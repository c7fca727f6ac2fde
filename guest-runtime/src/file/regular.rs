//! Regular files: in memory, in the root image, in a volume.

use crate::file::caller::Caller;
use crate::file::description::{OpenFile, writes};
use crate::file::operations::{File, Mapped, Mode, Storage};
use crate::file::transfer::Transfer;
use crate::file::{Io, Vfs};
use crate::fs::data::MAX_SIZE;
use crate::fs::filesystem::{ANONYMOUS_DEVICE, NewInode};
use crate::fs::inode::Kind;
use crate::fs::process::{FileId, Process};
use crate::fs::types::Ino;
use crate::fs::volume::is_volume;
use crate::mm::{UserSlice, UserSliceMut};
use alloc::rc::Rc;
use core::ops::Range;
use hartline_abi::volume::VOLUME_DATA;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{F_SEAL_EXEC, O_ACCMODE, O_APPEND, O_LARGEFILE, O_NOATIME, O_RDWR};
use hartline_linux::fs::{SEEK_DATA, SEEK_END, SEEK_HOLE};
use hartline_linux::inotify::IN_ACCESS;

/// A regular file.
#[derive(Debug)]
pub struct Regular {
    /// The file is in a volume.
    is_volume: bool,
    /// While a description writes the file, the file cannot be executed.
    counts_writers: bool,
}

impl Regular {
    /// The open file of an inode.
    #[must_use]
    pub fn new(ino: Ino) -> Rc<Self> {
        Rc::new(Self {
            is_volume: is_volume(ino),
            counts_writers: !is_volume(ino),
        })
    }
}

impl File for Regular {
    fn mode(&self) -> Mode {
        const MODE: Mode = Mode::PREAD
            .with(Mode::SPLICE_READ)
            .with(Mode::SPLICE_WRITE)
            .with(Mode::NO_POLL);
        match self.is_volume {
            true => MODE.with(Mode::STORAGE),
            false => MODE,
        }
    }

    fn open(&self, io: &mut Io<'_>, ino: Ino, flags: u32) {
        if self.counts_writers && writes(flags) {
            io.vfs.fs.add_writer(ino);
        }
    }

    fn release(&self, io: &mut Io<'_>, ino: Ino, flags: u32) {
        if self.counts_writers && writes(flags) {
            io.vfs.fs.remove_writer(ino);
        }
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        let (ino, at) = (transfer.ino, transfer.at());
        let done = match self.is_volume {
            true => {
                let task = transfer.outside.task();
                transfer.io.read_volume(ino, task, at, to)?
            }
            false if transfer.flags & O_NOATIME != 0 => transfer.io.vfs.fs.read(ino, at, to)?,
            false => transfer.io.vfs.fs.read_accessed(ino, at, to)?,
        };
        if done > 0 {
            transfer.io.vfs.fs.fsnotify(ino, IN_ACCESS);
        }
        transfer.advance(done)
    }

    fn read_limit(&self, io: &Io<'_>, ino: Ino, at: u64) -> Result<u64, Errno> {
        match self.is_volume {
            // Other processes of the host may have extended the file.
            true => Ok(u64::MAX),
            false => Ok(io.vfs.fs.size(ino)?.saturating_sub(at)),
        }
    }

    fn storage(&self) -> Option<Storage> {
        self.is_volume.then_some(Storage {
            window: VOLUME_DATA,
            short_ends: true,
        })
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        let appends = transfer.flags & O_APPEND != 0;
        let at = (!appends).then(|| transfer.at());
        let cred = transfer.outside.cred();
        let (done, end) = transfer.io.vfs.fs.write(transfer.ino, at, from, cred)?;
        transfer.move_to(end)?;
        Ok(done)
    }

    fn llseek(&self, io: &mut Io<'_>, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        let vfs = &mut *io.vfs;
        let ino = vfs.files.get(id)?.ino;
        if whence == SEEK_END {
            vfs.fs.refresh_volume(ino)?;
        }
        let size = vfs.fs.size(ino)?;
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return vfs.generic_llseek(id, size, offset, whence);
        }
        let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let position = vfs.fs.seek_data(ino, from, whence == SEEK_HOLE)?;
        vfs.files.get_mut(id)?.offset = position;
        Ok(position)
    }

    fn waiting(&self, caller: &mut dyn Caller, ino: Ino, position: u64) -> Result<u64, Errno> {
        Ok(caller.io().0.vfs.fs.size(ino)?.saturating_sub(position))
    }

    fn fsync(&self, io: &mut Io<'_>, ino: Ino, task: u32, only_data: bool) -> Result<(), Errno> {
        match self.is_volume {
            true => io.sync_volume(ino, task, only_data),
            false => Ok(()),
        }
    }

    fn sync_file_range(&self, io: &mut Io<'_>, ino: Ino, task: u32) -> Result<(), Errno> {
        self.fsync(io, ino, task, true)
    }

    fn fallocate(
        &self,
        vfs: &mut Vfs,
        ino: Ino,
        mode: u64,
        range: Range<u64>,
    ) -> Result<(), Errno> {
        match range.end {
            0..=MAX_SIZE => vfs.fs.allocate(ino, mode, range.start, range.end),
            _ => Err(Errno::EFBIG),
        }
    }

    fn mmap(&self, vfs: &mut Vfs, ino: Ino, flags: u32, code: bool) -> Result<Mapped, Errno> {
        vfs.fs.accessed(ino);
        let fs = &vfs.fs;
        let image = match &fs.inode(ino)?.kind {
            Kind::File(data) => (data.as_image()).map(|bytes| (bytes, fs.unchanged_origin(ino))),
            Kind::Volume(_) if code => fs
                .unchanged_origin(ino)
                .and_then(|origin| Some((fs.origin_bytes(origin)?, Some(origin)))),
            Kind::Volume(_) => None,
            _ => return Err(Errno::ENODEV),
        };
        Ok(Mapped::File {
            ino,
            writable: flags & O_ACCMODE == O_RDWR,
            image,
        })
    }
}

impl Io<'_> {
    /// Opens an unnamed file in memory (`memfd_create`) with these [seals](crate::fs::seals).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOSPC`.
    pub fn open_memory(
        &mut self,
        process: &mut Process,
        name: &[u8],
        seals: u32,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        let new = NewInode::file(match seals & F_SEAL_EXEC {
            0 => 0o777,
            _ => 0o666,
        });
        let ino = self
            .vfs
            .fs
            .add_unnamed(new, &process.cred, ANONYMOUS_DEVICE)?;
        let inode = self.vfs.fs.inode_mut(ino)?;
        inode.name = [b"memfd:", name].concat().into();
        inode.seals = seals;
        // As on Linux, the program can be executed through its own descriptor.
        let object = Rc::new(Regular {
            is_volume: false,
            counts_writers: false,
        });
        let file = OpenFile::new(ino, O_RDWR | O_LARGEFILE, object);
        self.install(process, file, close_on_exec)
    }
}
