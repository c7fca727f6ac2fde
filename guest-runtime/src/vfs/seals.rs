//! Seals of memory files (fcntl(2), "File Sealing").

use super::fs::FileSystem;
use super::inode::Kind;
use super::types::Ino;
use crate::errno::Errno;

/// No more seals can be added.
pub const SEAL: u32 = 1;
/// The file cannot become shorter.
pub const SHRINK: u32 = 2;
/// The file cannot become longer.
pub const GROW: u32 = 4;
/// The contents cannot change.
pub const WRITE: u32 = 8;
/// The contents can change only through existing mappings.
pub const FUTURE_WRITE: u32 = 0x10;
/// Execute permissions cannot change.
pub const EXEC: u32 = 0x20;
/// All seals.
pub const ALL: u32 = 0x3f;

/// Checks that seals allow a write to a file of `size` bytes, up to `end`.
///
/// # Errors
/// `EPERM` if not.
pub(super) fn check_write(seals: u32, size: u64, end: u64) -> Result<(), Errno> {
    let grows = if end > size { GROW } else { 0 };
    match seals & (WRITE | FUTURE_WRITE | grows) {
        0 => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

impl FileSystem {
    /// The seals of a file.
    ///
    /// # Errors
    /// `EINVAL` if the inode is not a memory file.
    pub fn seals(&self, ino: Ino) -> Result<u32, Errno> {
        let inode = self.inode(ino)?;
        match inode.kind {
            Kind::File(_) => Ok(inode.seals),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Adds seals; `mapped`: a writable mapping of the file exists.
    ///
    /// # Errors
    /// `EPERM` if no more may be added, `EBUSY` for [`WRITE`] with such a mapping, `EINVAL` for
    /// unknown seals, or if the inode is not a memory file.
    pub fn add_seals(&mut self, ino: Ino, added: u32, mapped: bool) -> Result<(), Errno> {
        let old = self.seals(ino)?;
        if added & !ALL != 0 {
            return Err(Errno::EINVAL);
        }
        if old & SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if added & WRITE != 0 && old & WRITE == 0 && mapped {
            return Err(Errno::EBUSY);
        }
        let inode = self.inode_mut(ino)?;
        let mut added = added;
        // An executable file with this seal receives all seals of its contents.
        if added & EXEC != 0 && inode.mode & 0o111 != 0 {
            added |= SHRINK | GROW | WRITE | FUTURE_WRITE;
        }
        inode.seals |= added;
        Ok(())
    }

    /// Checks that none of `seals` is set on a file.
    ///
    /// # Errors
    /// `EPERM` if one is.
    pub(super) fn check_seals(&self, ino: Ino, seals: u32) -> Result<(), Errno> {
        match self.inode(ino)?.seals & seals {
            0 => Ok(()),
            _ => Err(Errno::EPERM),
        }
    }

    /// Checks that seals allow the file length `size`.
    ///
    /// # Errors
    /// `EPERM` if not.
    pub(super) fn check_length(&self, ino: Ino, size: u64) -> Result<(), Errno> {
        let old = match &self.inode(ino)?.kind {
            Kind::File(data) => data.size(),
            _ => return Ok(()),
        };
        match size {
            _ if size < old => self.check_seals(ino, SHRINK),
            _ if size > old => self.check_seals(ino, GROW),
            _ => Ok(()),
        }
    }
}
