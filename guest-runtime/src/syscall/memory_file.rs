//! `/proc/PID/mem`: the memory of a process, for its tracer.

use super::other_process::inspected;
use crate::file::proc::ProcText;
use crate::fs::proc::{Node, Text};
use crate::fs::process::FileId;
use crate::fs::types::Ino;
use crate::kernel::Kernel;
use crate::kernel::ptrace::Tracee;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;

/// Most bytes that a read or a write transfers: others are in the next call.
const MOST: u64 = 64 << 10;

/// The inode of an open file, if that is the memory of a process.
pub(super) fn of(kernel: &Kernel, id: FileId) -> Option<Ino> {
    let file = kernel.vfs.files.get(id).ok()?;
    let is_memory = file.object.is::<ProcText>()
        && Node::from_ino(file.ino).and_then(Node::text) == Some(Text::Mem);
    is_memory.then_some(file.ino)
}

/// The process that a file is about, and its memory. Rights are checked at each access: the process may
/// have executed a program with more rights since the file was opened.
///
/// # Errors
/// `ESRCH`: it has ended. `EPERM`: the running process must not trace it.
fn subject(kernel: &mut Kernel, ino: Ino) -> Result<(u32, Handle<Space>), Errno> {
    let node = Node::from_ino(ino).ok_or(Errno::EINVAL)?;
    let files = node.subject(&kernel.process().files).ok_or(Errno::ESRCH)?;
    let process = inspected(kernel, files.pid.into())?;
    let process = &kernel.processes[process];
    match process.is_zombie() {
        true => Err(Errno::ESRCH),
        false => Ok((process.pid, process.space)),
    }
}

/// The bytes at the address `at`.
///
/// # Errors
/// `EIO`: nothing is mapped there. Otherwise as [`subject`].
pub(super) fn read(kernel: &mut Kernel, ino: Ino, at: u64) -> Result<Vec<u8>, Errno> {
    let (_, space) = subject(kernel, ino)?;
    let bytes = kernel.read_memory_of(space, at, MOST);
    match bytes.is_empty() {
        true => Err(Errno::EIO),
        false => Ok(bytes),
    }
}

/// Writes bytes of the running process, which traces a task of the other one that has stopped.
///
/// # Errors
/// `EBADF`, `EFAULT`. `EIO`: nothing is mapped there, or no such task has stopped. Otherwise as
/// [`subject`].
pub(super) fn write(
    kernel: &mut Kernel,
    (id, ino): (FileId, Ino),
    offset: Option<u64>,
    (from, count): (u64, u64),
) -> Result<u64, Errno> {
    let file = kernel.vfs.files.get(id)?;
    file.check_writable()?;
    let at = offset.unwrap_or(file.offset);
    let (pid, space) = subject(kernel, ino)?;
    let own = kernel.process().pid;
    let is_stopped = |tracee: &Tracee| tracee.process() == own && tracee.is_stopped();
    let is_traced = {
        let mut tasks = kernel.tasks().filter(|task| task.pid == pid);
        tasks.any(|task| task.tracee.as_deref().is_some_and(is_stopped))
    };
    if !is_traced {
        return Err(Errno::EIO);
    }
    let bytes = user::slice(kernel.memory_mut(), from, count.min(MOST))?.to_vec();
    let written = kernel.write_memory_of(space, at, &bytes);
    written.map_err(|_| Errno::EIO)?;
    if offset.is_none() {
        kernel.vfs.files.get_mut(id)?.offset = at.saturating_add(bytes.len() as u64);
    }
    Ok(bytes.len() as u64)
}
