//! Execution of files of volumes. They may change at any time, also on the host, so the program
//! executes a copy, which the host makes when the file is executed or its code is mapped. Later
//! changes become visible the next time. So no program executes a mixture of old and new code;
//! Linux prevents that too, because an executing file cannot be written.

use crate::fs::types::Ino;
use crate::fs::volume::is_volume;
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::kernel::loader::ElfFile;
use hartline_abi::call::{COPY_INODES, Operation};
use hartline_abi::layout::{COPY_BASE, FILE_GPA, FILE_GPA_END, PAGE_SIZE};
use hartline_linux::errno::Errno;

/// First bytes of an ELF file.
const ELF: &[u8; 4] = b"\x7fELF";

impl Kernel {
    /// Opens the regular file at `path`, which the program must be allowed to execute.
    ///
    /// # Errors
    /// As `execve(2)`.
    pub(crate) fn executable(&mut self, dirfd: i32, path: &[u8]) -> Result<(Ino, ElfFile), Errno> {
        let files = &mut self.files;
        let options = Options::following(true);
        let found = files.vfs.resolve(&files.process, dirfd, path, options)?;
        let ino = found.existing()?;
        Ok((ino, self.executable_inode(ino, path)?))
    }

    /// As [`executable`](Self::executable), for a resolved inode.
    pub(crate) fn executable_inode(&mut self, ino: Ino, path: &[u8]) -> Result<ElfFile, Errno> {
        self.files.check_executable(ino)?;
        self.copy_code(ino);
        self.files.elf_file(ino, path)
    }

    /// Makes a copy of a program in a volume before it is executed or its code is mapped, and lets
    /// `unchanged_origin` return the copy. Without a copy the program is interpreted.
    pub(crate) fn copy_code(&mut self, ino: Ino) {
        if is_volume(ino) && !self.interpret_only {
            let copy = self.copy_of(ino);
            self.files.vfs.fs.set_copy(ino, copy);
        }
    }

    fn copy_of(&mut self, ino: Ino) -> Option<u32> {
        let fs = &mut self.files.vfs.fs;
        let mut magic = [0; ELF.len()];
        if fs.read(ino, 0, (&mut magic).into()) != Ok(ELF.len()) || magic != *ELF {
            return None;
        }
        let origin = fs.volume_copy(ino).ok()?;
        if fs.origin_bytes(origin).is_none() {
            let bytes = self.map_copy(origin - COPY_INODES)?;
            self.files.vfs.fs.add_copy(origin, bytes);
        }
        Some(origin)
    }

    /// Maps a copy that the host has made.
    fn map_copy(&mut self, number: u32) -> Option<&'static [u8]> {
        let mut args = [u64::from(number), 0, 0, 0, 0, 0];
        self.host.call(Operation::Copy, &mut args).ok()?;
        let [gpa, length, ..] = args;
        let end = gpa
            .checked_add(length)?
            .checked_next_multiple_of(PAGE_SIZE)?;
        if gpa < FILE_GPA || end > FILE_GPA_END || !gpa.is_multiple_of(PAGE_SIZE) {
            return None;
        }
        let address = COPY_BASE + (gpa - FILE_GPA);
        self.memory.map_outside(address, gpa..end, false).ok()?;
        let length = usize::try_from(length).ok()?;
        // SAFETY: mapped to a file that never changes and is never unmapped.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, length) })
    }
}
