//! Seals of memory files (fcntl(2), "File Sealing").

use super::filesystem::FileSystem;
use super::inode::Kind;
use super::types::Ino;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{
    F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE,
};

/// All seals (`F_ALL_SEALS` of the kernel).
const F_ALL_SEALS: u32 =
    F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_EXEC;

/// Checks that seals allow a write to a file of `size` bytes, up to `end`.
///
/// # Errors
/// `EPERM` if not.
pub(super) fn check_write(seals: u32, size: u64, end: u64) -> Result<(), Errno> {
    let grows = if end > size { F_SEAL_GROW } else { 0 };
    match seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | grows) {
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
    /// `EPERM` if no more may be added, `EBUSY` if [`F_SEAL_WRITE`] cannot hold, `EINVAL` for
    /// unknown ones or what is no file in memory.
    pub fn add_seals(&mut self, ino: Ino, added: u32, mapped: bool) -> Result<(), Errno> {
        let old = self.seals(ino)?;
        if added & !F_ALL_SEALS != 0 {
            return Err(Errno::EINVAL);
        }
        if old & F_SEAL_SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if added & F_SEAL_WRITE != 0 && old & F_SEAL_WRITE == 0 && mapped {
            return Err(Errno::EBUSY);
        }
        let inode = self.inode_mut(ino)?;
        let mut added = added;
        // An executable file with this seal has all that keep its contents.
        if added & F_SEAL_EXEC != 0 && inode.mode & 0o111 != 0 {
            added |= F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
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
            _ if size < old => self.check_seals(ino, F_SEAL_SHRINK),
            _ if size > old => self.check_seals(ino, F_SEAL_GROW),
            _ => Ok(()),
        }
    }
}
