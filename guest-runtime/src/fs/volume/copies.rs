//! Copies of files of volumes that programs execute. Their contents do not change when the files
//! do, and the host translates them.

use super::super::filesystem::FileSystem;
use super::super::inode::Kind;
use super::super::types::Ino;
use hartline_abi::call::COPY_INODES;
use hartline_abi::volume::Operation;
use hartline_linux::errno::Errno;

impl FileSystem {
    /// Makes the host copy a file of a volume. Returns the number of the copy for
    /// [`origin_bytes`](Self::origin_bytes).
    ///
    /// # Errors
    /// An error of the host.
    pub fn volume_copy(&mut self, ino: Ino) -> Result<u32, Errno> {
        let args = [self.node(ino)?, 0, 0, 0, 0, 0];
        let answer = self.ask(Operation::Copy, args, &[], &mut [])?;
        let number = u32::try_from(answer.result).map_err(|_| Errno::EIO)?;
        number.checked_add(COPY_INODES).ok_or(Errno::EIO)
    }

    /// Adds the contents of a copy.
    pub fn add_copy(&mut self, origin: u32, bytes: &'static [u8]) {
        if let Some(volumes) = &mut self.volumes {
            volumes.copies.insert(origin, bytes);
        }
    }

    /// Sets the copy that is executed instead of a file of a volume.
    pub fn set_copy(&mut self, ino: Ino, origin: Option<u32>) {
        if let Ok(inode) = self.inode_mut(ino)
            && let Kind::Volume(inode) = &mut inode.kind
        {
            inode.copy = origin;
        }
    }

    /// The contents of a copy.
    pub(in crate::fs) fn copy_bytes(&self, origin: u32) -> Option<&'static [u8]> {
        self.volumes.as_ref()?.copies.get(&origin).copied()
    }
}
