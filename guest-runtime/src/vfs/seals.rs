//! Seals of memory files (fcntl(2), "File Sealing").

use super::fs::FileSystem;
use super::inode::Kind;
use super::types::Ino;
use crate::errno::Errno;

/// No more seals.
pub const SEAL: u32 = 1;
/// The file does not become shorter.
pub const SHRINK: u32 = 2;
/// The file does not become longer.
pub const GROW: u32 = 4;
/// The contents do not change.
pub const WRITE: u32 = 8;
/// The contents change through mappings only that there are already.
pub const FUTURE_WRITE: u32 = 0x10;
/// Nobody's permission to execute changes.
pub const EXEC: u32 = 0x20;
/// All of them.
pub const ALL: u32 = 0x3f;

/// Whether seals let somebody write to a file of `size` bytes, up to `end`.
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
    /// `EINVAL` for what is no file in memory.
    pub fn seals(&self, ino: Ino) -> Result<u32, Errno> {
        let inode = self.inode(ino)?;
        match inode.kind {
            Kind::File(_) => Ok(inode.seals),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Adds seals; `mapped`: somebody has the file mapped and may store to it.
    ///
    /// # Errors
    /// `EPERM` if no more may be added, `EBUSY` if [`WRITE`] cannot hold, `EINVAL` for
    /// unknown ones or what is no file in memory.
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
        // An executable file with this seal has all that keep its contents.
        if added & EXEC != 0 && inode.mode & 0o111 != 0 {
            added |= SHRINK | GROW | WRITE | FUTURE_WRITE;
        }
        inode.seals |= added;
        Ok(())
    }

    /// Whether `seals`, any of them, keep a file as it is.
    ///
    /// # Errors
    /// `EPERM` if so.
    pub(super) fn check_seals(&self, ino: Ino, seals: u32) -> Result<(), Errno> {
        match self.inode(ino)?.seals & seals {
            0 => Ok(()),
            _ => Err(Errno::EPERM),
        }
    }

    /// Whether seals let the length of a file become `size`.
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
