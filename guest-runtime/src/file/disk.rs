//! Block devices, and `ioctl` on them (linux/fs.h).

use crate::convert::low_i32;
use crate::credentials::Credentials;
use crate::file::Io;
use crate::file::caller::Caller;
use crate::file::operations::{File, Mode, Storage};
use crate::file::transfer::Transfer;
use crate::fs::devices;
use crate::fs::disks::{self, SECTOR, WINDOW};
use crate::fs::process::FileId;
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut, user};
use alloc::boxed::Box;
use hartline_linux::errno::Errno;
use hartline_linux::fs::{
    BLKBSZGET, BLKDISCARD, BLKFLSBUF, BLKGETSIZE, BLKGETSIZE64, BLKIOMIN, BLKIOOPT, BLKPBSZGET,
    BLKROGET, BLKSSZGET,
};

/// The unit in which Linux caches the contents of a disk, bytes.
const BLOCK: i32 = 4096;

/// The block device of this number ([`crate::fs::disks`]).
#[derive(Debug)]
pub struct Disk(pub u32);

impl File for Disk {
    fn mode(&self) -> Mode {
        Mode::PREAD
            .with(Mode::STORAGE)
            .with(Mode::PARTIAL)
            .with(Mode::SPLICE_READ)
            .with(Mode::SPLICE_WRITE)
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        let (task, at) = (transfer.outside.task(), transfer.at());
        let done = transfer.io.disks.read(self.0, task, at, to)?;
        transfer.advance(done)
    }

    fn storage(&self) -> Option<Storage> {
        Some(Storage {
            window: WINDOW,
            short_ends: false,
        })
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        let (task, at) = (transfer.outside.task(), transfer.at());
        let done = transfer.io.disks.write(self.0, task, at, from)?;
        transfer.advance(done)
    }

    fn write_window(&self) -> u64 {
        WINDOW as u64
    }

    fn llseek(&self, io: &mut Io<'_>, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        let size = io.disks.size(self.0)?;
        io.vfs.generic_llseek(id, size, offset, whence)
    }

    fn fsync(&self, io: &mut Io<'_>, _: Ino, task: u32, _: bool) -> Result<(), Errno> {
        io.disks.flush(self.0, task)
    }

    fn sync_file_range(&self, io: &mut Io<'_>, ino: Ino, task: u32) -> Result<(), Errno> {
        self.fsync(io, ino, task, true)
    }

    fn ioctl(&self, caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
        let (io, _) = caller.io();
        let disk = io.disks.get(self.0)?;
        let (sectors, read_only) = (disk.sectors(), disk.is_read_only());
        match request {
            BLKGETSIZE => user::write(caller.memory(), address, &sectors)?,
            BLKGETSIZE64 => {
                user::write(caller.memory(), address, &(sectors * SECTOR as u64))?;
            }
            BLKROGET => user::write(caller.memory(), address, &i32::from(read_only))?,
            BLKSSZGET | BLKPBSZGET | BLKIOMIN => {
                user::write(caller.memory(), address, &low_i32(SECTOR as u64))?;
            }
            BLKIOOPT => user::write(caller.memory(), address, &0i32)?,
            BLKBSZGET => user::write(caller.memory(), address, &BLOCK)?,
            BLKFLSBUF => {
                let tid = caller.identity().tid;
                match caller.io().0.disks.flush(self.0, tid) {
                    Err(Errno::EAGAIN) => return Err(caller.await_disk(0)),
                    result => result?,
                }
            }
            BLKDISCARD => {
                let [start, length]: [u64; 2] = user::read(caller.memory(), address)?;
                let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
                let unit = SECTOR as u64;
                if read_only {
                    return Err(Errno::EACCES);
                }
                if !start.is_multiple_of(unit)
                    || !length.is_multiple_of(unit)
                    || end > sectors * unit
                {
                    return Err(Errno::EINVAL);
                }
                return discard(caller, self.0, start / unit, length / unit);
            }
            _ => return Err(Errno::ENOTTY),
        }
        Ok(0)
    }
}

/// Discards `sectors` sectors from `sector` on.
fn discard(caller: &mut dyn Caller, number: u32, sector: u64, sectors: u64) -> Result<u64, Errno> {
    let tid = caller.identity().tid;
    let mut done = caller.waited().map_or(0, |waited| waited.progress);
    while done < sectors {
        let (io, _) = caller.io();
        done += match io.disks.discard(number, tid, sector + done, sectors - done) {
            Err(Errno::EAGAIN) => return Err(caller.await_disk(done)),
            result => result?,
        };
    }
    Ok(0)
}

impl Io<'_> {
    /// Adds a disk as `/dev/NAME` with owner `cred`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`.
    pub fn add_disk(
        &mut self,
        name: &[u8],
        disk: Box<dyn disks::Disk>,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        let number = self.disks.count();
        devices::add_disk(&mut self.vfs.fs, self.vfs.dev, name, number, cred)?;
        self.disks.add(disk);
        Ok(())
    }
}
