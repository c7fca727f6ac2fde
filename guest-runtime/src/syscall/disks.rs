//! Block devices: their start, and `ioctl` on them (linux/fs.h).

use crate::drivers::{self, StartError};
use crate::fs::disks::SECTOR;
use crate::fs::types::Credentials;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::boxed::Box;
use hartline_linux::errno::Errno;
use hartline_linux::fs::{
    BLKBSZGET, BLKDISCARD, BLKFLSBUF, BLKGETSIZE, BLKGETSIZE64, BLKIOMIN, BLKIOOPT, BLKPBSZGET,
    BLKROGET, BLKSSZGET,
};

/// The unit in which Linux caches the contents of a disk, bytes.
const BLOCK: i32 = 4096;

impl Kernel {
    /// Starts the disks of the VM.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_disks(&mut self) -> Result<(), StartError> {
        let boot = self.host.boot();
        let who = Credentials::new(boot.uid, boot.gid);
        for (number, name) in (0..).zip(&boot.disks) {
            let length = name.iter().position(|&byte| byte == 0);
            let name = &name[..length.unwrap_or(name.len())];
            if name.is_empty() {
                break;
            }
            let disk = drivers::block::start(self.host, number)?;
            let vfs = &mut self.files.vfs;
            // Another device may already have this name.
            let added = vfs.add_disk(name, Box::new(disk), &who);
            added.map_err(|_| StartError::Refused)?;
        }
        Ok(())
    }
}

/// Discards `sectors` sectors from `sector` on.
fn discard(kernel: &mut Kernel, number: u32, sector: u64, sectors: u64) -> Result<u64, Errno> {
    let (mut done, tid) = (kernel.progress(), kernel.task.tid);
    while done < sectors {
        let disks = &mut kernel.files.vfs.disks;
        done += match disks.discard(number, tid, sector + done, sectors - done) {
            Err(Errno::EAGAIN) => return Err(kernel.await_disk(done)),
            result => result?,
        };
    }
    Ok(0)
}

/// `ioctl` on disk `number`.
///
/// # Errors
/// `ENOTTY` for an unknown request; `EINVAL`, `EACCES`, `EIO`, `EOPNOTSUPP`.
pub(super) fn ioctl(
    kernel: &mut Kernel,
    number: u32,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    let disk = kernel.files.vfs.disks.get(number)?;
    let (sectors, read_only) = (disk.sectors(), disk.is_read_only());
    match request {
        BLKGETSIZE => user::write(&mut kernel.memory, address, &sectors)?,
        BLKGETSIZE64 => {
            user::write(&mut kernel.memory, address, &(sectors * SECTOR as u64))?;
        }
        BLKROGET => user::write(&mut kernel.memory, address, &i32::from(read_only))?,
        BLKSSZGET | BLKPBSZGET | BLKIOMIN => {
            user::write(&mut kernel.memory, address, &(SECTOR as i32))?;
        }
        BLKIOOPT => user::write(&mut kernel.memory, address, &0i32)?,
        BLKBSZGET => user::write(&mut kernel.memory, address, &BLOCK)?,
        BLKFLSBUF => match kernel.files.vfs.disks.flush(number, kernel.task.tid) {
            Err(Errno::EAGAIN) => return Err(kernel.await_disk(0)),
            result => result?,
        },
        BLKDISCARD => {
            let [start, length]: [u64; 2] = user::read(&mut kernel.memory, address)?;
            let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
            let unit = SECTOR as u64;
            if read_only {
                return Err(Errno::EACCES);
            }
            if !start.is_multiple_of(unit) || !length.is_multiple_of(unit) || end > sectors * unit {
                return Err(Errno::EINVAL);
            }
            return discard(kernel, number, start / unit, length / unit);
        }
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}
