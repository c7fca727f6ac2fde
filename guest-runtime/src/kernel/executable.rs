//! The files of programs: opening them for execution.
//!
//! Files of volumes may change at any time, also on the host, so the program executes a copy,
//! which the host makes when the file is executed or its code is mapped. Later changes become
//! visible the next time. So no program executes a mixture of old and new code; Linux prevents that
//! too, because an executing file cannot be written.

use crate::file::Vfs;
use crate::fs::inode::MAY_EXEC;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::fs::volume::is_volume;
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::wait::{ALL, Registration};
use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::call::{COPY_INODES, Operation};
use hartline_abi::elf::{ElfError, Program};
use hartline_abi::layout::{COPY_BASE, FILE_GPA, FILE_GPA_END, PAGE_SIZE};
use hartline_linux::errno::Errno;
use hartline_linux::inotify::{IN_ACCESS, IN_OPEN};
use hartline_linux::mount::MS_NOEXEC;
use hartline_linux::stat::{S_IFMT, S_IFREG};

/// First bytes of an ELF file.
const ELF: &[u8; 4] = b"\x7fELF";

/// An ELF file.
#[derive(Debug)]
pub(crate) struct ElfFile {
    /// Path of the file, for `/proc/self/maps`.
    pub path: Rc<[u8]>,
    /// Inode in the root file system tree, if the file is from the tree.
    pub inode: Option<u32>,
    /// Contents of the file; contents in the tree are not copied.
    pub bytes: Cow<'static, [u8]>,
}

impl ElfFile {
    /// Parses the file.
    ///
    /// # Errors
    /// If the file is not a program.
    pub fn program(&self) -> Result<Program<'_>, ElfError> {
        Program::parse(&self.bytes)
    }
}

/// Opens the regular file at `path`, which the program must be allowed to execute.
///
/// # Errors
/// As `execve(2)`; `ERESTARTSYS` while a lease is in the way.
pub(crate) fn open(kernel: &mut Kernel, dirfd: i32, path: &[u8]) -> Result<(Ino, ElfFile), Errno> {
    let options = Options::following(true);
    let (vfs, process) = kernel.file_state();
    let ino = vfs.resolve(process, dirfd, path, options)?.existing()?;
    Ok((ino, open_inode(kernel, ino, path)?))
}

/// As [`open`], for a resolved inode.
pub(crate) fn open_inode(kernel: &mut Kernel, ino: Ino, path: &[u8]) -> Result<ElfFile, Errno> {
    check(&kernel.vfs, &kernel.process().files, ino)?;
    end_leases(kernel, ino)?;
    kernel.vfs.fs.check_not_written(ino)?;
    copy_code(kernel, ino);
    read(&mut kernel.vfs, ino, path)
}

/// Makes `/proc/self/exe` refer to the file `ino`, which cannot be written from now on.
pub(crate) fn set(kernel: &mut Kernel, ino: Ino) {
    let (vfs, process) = kernel.file_state();
    vfs.fs.retain(ino);
    vfs.fs.add_execution(ino);
    if let Some(old) = process.set_executable(ino) {
        vfs.fs.remove_execution(old);
        vfs.fs.release(old);
    }
}

/// Waits until no lease is in the way of reading a file: an execution opens it as open(2) does.
fn end_leases(kernel: &mut Kernel, ino: Ino) -> Result<(), Errno> {
    let Some(deadline) = kernel.vfs.break_leases(ino, false) else {
        return Ok(());
    };
    let place = Registration::new(kernel.vfs.leases.waiters(ino), ALL);
    Err(kernel.block_at(place, deadline, 0))
}

/// Checks that a file is a regular one that the process may execute.
fn check(vfs: &Vfs, process: &Process, ino: Ino) -> Result<(), Errno> {
    let attributes = vfs.fs.attributes(ino, process)?;
    if attributes.mode & S_IFMT != S_IFREG || vfs.fs.has_mount_flag(ino, MS_NOEXEC) {
        return Err(Errno::EACCES);
    }
    attributes.check(&process.cred, MAY_EXEC)
}

/// Returns the contents of a regular file.
fn read(vfs: &mut Vfs, ino: Ino, path: &[u8]) -> Result<ElfFile, Errno> {
    vfs.fs.fsnotify(ino, IN_OPEN);
    vfs.fs.fsnotify(ino, IN_ACCESS);
    let inode = vfs.fs.unchanged_origin(ino);
    let bytes = match inode.and_then(|inode| vfs.fs.origin_bytes(inode)) {
        Some(bytes) => Cow::Borrowed(bytes),
        None => {
            let mut bytes = Vec::new();
            let size = usize::try_from(vfs.fs.size(ino)?).map_err(|_| Errno::ENOMEM)?;
            bytes.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
            bytes.resize(size, 0);
            let length = vfs.fs.read(ino, 0, (&mut bytes).into())?;
            bytes.truncate(length);
            Cow::Owned(bytes)
        }
    };
    Ok(ElfFile {
        path: Rc::from(path),
        inode,
        bytes,
    })
}

/// Makes a copy of a program in a volume before it is executed or its code is mapped, and lets
/// `unchanged_origin` return the copy. Without a copy the program is interpreted.
pub(crate) fn copy_code(kernel: &mut Kernel, ino: Ino) {
    if is_volume(ino) && !kernel.interpret_only {
        let copy = copy_of(kernel, ino);
        kernel.vfs.fs.set_copy(ino, copy);
    }
}

fn copy_of(kernel: &mut Kernel, ino: Ino) -> Option<u32> {
    let fs = &mut kernel.vfs.fs;
    let mut magic = [0; ELF.len()];
    if fs.read(ino, 0, (&mut magic).into()) != Ok(ELF.len()) || magic != *ELF {
        return None;
    }
    let origin = fs.volume_copy(ino).ok()?;
    if fs.origin_bytes(origin).is_none() {
        let bytes = map_copy(kernel, origin - COPY_INODES)?;
        kernel.vfs.fs.add_copy(origin, bytes);
    }
    Some(origin)
}

/// Maps a copy that the host has made.
fn map_copy(kernel: &mut Kernel, number: u32) -> Option<&'static [u8]> {
    let mut args = [u64::from(number), 0, 0, 0, 0, 0];
    kernel.host.call(Operation::Copy, &mut args).ok()?;
    let [gpa, length, ..] = args;
    let end = gpa
        .checked_add(length)?
        .checked_next_multiple_of(PAGE_SIZE)?;
    if gpa < FILE_GPA || end > FILE_GPA_END || !gpa.is_multiple_of(PAGE_SIZE) {
        return None;
    }
    let address = COPY_BASE + (gpa - FILE_GPA);
    let memory = kernel.memory_mut();
    memory.map_outside(address, gpa..end, false).ok()?;
    let length = usize::try_from(length).ok()?;
    // SAFETY: mapped to a file that never changes and is never unmapped.
    Some(unsafe { core::slice::from_raw_parts(address as *const u8, length) })
}
