//! Calls on descriptors themselves: closing, duplicating, flags, pipes.

use super::Entry;
use super::files_lock::{LockCall, set_lock, test_lock};
use super::files_path::spread_directories;
use super::leases::{get_lease, set_lease};
use super::memory::is_stored_to;
use super::signal_io;
use crate::convert::{low_i32, low_u32, sign_extended};
use crate::file::Target;
use crate::file::eventfd::EventFd;
use crate::file::operations::File;
use crate::file::pipe::PipeEnd;
use crate::fs::inode::Kind;
use crate::fs::pipe::Pipe;
use crate::fs::types::SETFL_MASK;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::rc::Rc;
use hartline_linux::close_range::{CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE};
use hartline_linux::errno::Errno;
use hartline_linux::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EFD_SEMAPHORE};
use hartline_linux::fcntl::{
    DN_MULTISHOT, F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFD, F_GETFL, F_GETLEASE,
    F_GETLK, F_GETOWN, F_GETOWN_EX, F_GETPIPE_SZ, F_GETSIG, F_NOTIFY, F_OFD_GETLK, F_OFD_SETLK,
    F_OFD_SETLKW, F_SEAL_EXEC, F_SEAL_SEAL, F_SETFD, F_SETFL, F_SETLEASE, F_SETLK, F_SETLKW,
    F_SETOWN, F_SETOWN_EX, F_SETPIPE_SZ, F_SETSIG, FASYNC, FD_CLOEXEC, O_CLOEXEC, O_DIRECT,
    O_NONBLOCK, O_RDWR,
};
use hartline_linux::limits::NAME_MAX;
use hartline_linux::memfd::{MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC, MFD_NOEXEC_SEAL};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::eventfd2, eventfd2),
    (nr::dup, dup),
    (nr::dup3, dup3),
    (nr::fcntl, fcntl),
    (nr::close, close),
    (nr::pipe2, pipe2),
    (nr::umask, umask),
    (nr::memfd_create, memfd_create),
    (nr::close_range, close_range),
];

fn close(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (mut io, process) = kernel.io();
    io.close(process, low_u32(a[0]))?;
    Ok(0)
}

fn close_range(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (first, last, flags) = (low_u32(a[0]), low_u32(a[1]), low_u32(a[2]));
    if first > last || flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        // As unshare(CLONE_FILES): threads share descriptors for good.
        if kernel.process().threads != 1 {
            return Err(Errno::EINVAL);
        }
        let (vfs, process) = kernel.file_state();
        vfs.unshare_files(process);
    }
    let (mut io, process) = kernel.io();
    let mut from = first;
    while let Some(fd) = process.fds.next(from).filter(|&fd| fd <= last) {
        match flags & CLOSE_RANGE_CLOEXEC {
            0 => io.close(process, fd)?,
            _ => process.fds.set_close_on_exec(fd, true)?,
        }
        from = fd + 1;
    }
    Ok(0)
}

fn dup(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    duplicate(kernel, a[0], Target::AtLeast(0), false)
}

fn duplicate(kernel: &mut Kernel, fd: u64, to: Target, close_on_exec: bool) -> Result<u64, Errno> {
    let (mut io, process) = kernel.io();
    let new = io.duplicate(process, low_u32(fd), to, close_on_exec)?;
    Ok(u64::from(new))
}

fn dup3(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[2]);
    if flags & !O_CLOEXEC != 0 || low_u32(a[0]) == low_u32(a[1]) {
        return Err(Errno::EINVAL);
    }
    let to = Target::Exactly(low_u32(a[1]));
    duplicate(kernel, a[0], to, flags & O_CLOEXEC != 0)
}

fn fcntl(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (fd, argument) = (low_u32(a[0]), a[2]);
    let descriptor = kernel.process().files.fds.get(fd)?;
    match low_u32(a[1]) {
        command @ (F_DUPFD | F_DUPFD_CLOEXEC) => {
            let from = u32::try_from(argument).map_err(|_| Errno::EINVAL)?;
            let close_on_exec = command == F_DUPFD_CLOEXEC;
            duplicate(kernel, a[0], Target::AtLeast(from), close_on_exec)
        }
        F_GETFD => Ok(u64::from(descriptor.close_on_exec)),
        F_SETFD => {
            let on = argument & FD_CLOEXEC != 0;
            kernel.process_mut().files.fds.set_close_on_exec(fd, on)?;
            Ok(0)
        }
        F_GETFL => {
            let flags = kernel.vfs.files.get(descriptor.file)?.flags;
            Ok(u64::from(flags))
        }
        command => located_fcntl(kernel, a[0], command, argument),
    }
}

/// Handles the `fcntl` commands that a descriptor opened with `O_PATH` refuses.
fn located_fcntl(kernel: &mut Kernel, fd: u64, command: u32, argument: u64) -> Result<u64, Errno> {
    kernel.file(fd)?;
    match command {
        F_SETFL => {
            let flags = low_u32(argument);
            match signal_io::set_asynchronous(kernel, fd, flags & FASYNC != 0) {
                // The flag stays off for a file that cannot send signals.
                Ok(()) | Err(Errno::ENOTTY) => {}
                Err(error) => return Err(error),
            }
            let (vfs, process) = kernel.file_state();
            let file = vfs.file_mut(process, low_u32(fd))?;
            file.flags = file.flags & !SETFL_MASK | flags & SETFL_MASK;
            Ok(0)
        }
        F_GETLK | F_OFD_GETLK => test_lock(kernel, fd, command == F_OFD_GETLK, argument),
        F_SETLK | F_SETLKW => set_lock(
            kernel,
            fd,
            argument,
            LockCall {
                of_file: false,
                waits: command == F_SETLKW,
            },
        ),
        F_OFD_SETLK | F_OFD_SETLKW => set_lock(
            kernel,
            fd,
            argument,
            LockCall {
                of_file: true,
                waits: command == F_OFD_SETLKW,
            },
        ),
        F_SETOWN => signal_io::set_owner(kernel, fd, low_i32(argument)),
        F_GETOWN => signal_io::owner(kernel, fd).map(sign_extended),
        F_SETOWN_EX => signal_io::set_owner_ex(kernel, fd, argument),
        F_GETOWN_EX => signal_io::owner_ex(kernel, fd, argument),
        F_SETSIG => signal_io::set_signal(kernel, fd, argument),
        F_GETSIG => Ok(u64::from(kernel.file(fd)?.notice.signal)),
        F_NOTIFY => notify_directory(kernel, fd, low_u32(argument)),
        F_SETLEASE => set_lease(kernel, fd, argument),
        F_GETLEASE => get_lease(kernel, fd),
        F_GETPIPE_SZ => Ok(pipe(kernel, fd)?.capacity() as u64),
        F_SETPIPE_SZ => {
            let bytes = u32::try_from(argument).map_err(|_| Errno::EINVAL)? as usize;
            Ok(pipe(kernel, fd)?.set_capacity(bytes)? as u64)
        }
        F_GET_SEALS => {
            let ino = kernel.file(fd)?.ino;
            Ok(u64::from(kernel.vfs.fs.seals(ino)?))
        }
        F_ADD_SEALS => add_seals(kernel, fd, argument),
        _ => Err(Errno::EINVAL),
    }
}

/// Sends the owner of a directory's description a signal when the directory changes.
fn notify_directory(kernel: &mut Kernel, fd: u64, events: u32) -> Result<u64, Errno> {
    let id = kernel.file_id(fd)?;
    let ino = kernel.file(fd)?.ino;
    let process = &kernel.process().files;
    if events & !DN_MULTISHOT == 0 {
        kernel.vfs.fs.notify.directories.remove(ino, id);
        return Ok(0);
    }
    if !kernel.vfs.fs.attributes(ino, process)?.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    signal_io::own(kernel, fd)?;
    kernel.vfs.fs.notify.directories.add(ino, id, events);
    Ok(0)
}

fn add_seals(kernel: &mut Kernel, fd: u64, argument: u64) -> Result<u64, Errno> {
    let seals = u32::try_from(argument).map_err(|_| Errno::EINVAL)?;
    let file = kernel.file(fd)?;
    let ino = file.ino;
    kernel.vfs.fs.seals(ino)?;
    file.check_writable().map_err(|_| Errno::EPERM)?;
    let mapped = match kernel.vfs.fs.shared(ino) {
        Some(memory) => is_stored_to(kernel, &memory),
        None => false,
    };
    kernel.vfs.fs.add_seals(ino, seals, mapped)?;
    Ok(0)
}

fn pipe(kernel: &mut Kernel, fd: u64) -> Result<&mut Pipe, Errno> {
    let file = kernel.file(fd)?;
    let (ino, is_pipe) = (file.ino, file.object.is::<PipeEnd>());
    match &mut kernel.vfs.fs.inode_mut(ino)?.kind {
        Kind::Fifo(pipe) if is_pipe => Ok(pipe),
        _ => Err(Errno::EBADF),
    }
}

fn pipe2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[1]);
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let status = flags & (O_NONBLOCK | O_DIRECT);
    let (mut io, process) = kernel.io();
    let ends = io.pipe(process, status, flags & O_CLOEXEC != 0)?;
    if let Err(error) = user::write(kernel.memory_mut(), a[0], &ends) {
        let (mut io, process) = kernel.io();
        for fd in ends {
            io.close(process, fd)?;
        }
        return Err(error);
    }
    Ok(0)
}

fn eventfd2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[1]);
    if flags & !(EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let event = EventFd::new(low_u32(a[0]), flags & EFD_SEMAPHORE != 0);
    open_anonymous(kernel, Rc::new(event), flags & !EFD_SEMAPHORE)
}

/// Opens a file that is not in the file system, for reading and writing.
pub(super) fn open_anonymous(
    kernel: &mut Kernel,
    file: Rc<dyn File>,
    flags: u32,
) -> Result<u64, Errno> {
    let (mut io, process) = kernel.io();
    let fd = io.open_anonymous(process, file, flags | O_RDWR)?;
    Ok(u64::from(fd))
}

fn memfd_create(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const PREFIX: usize = "memfd:".len();
    let flags = low_u32(a[1]);
    let both = flags & MFD_NOEXEC_SEAL != 0 && flags & MFD_EXEC != 0;
    if flags & !(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC) != 0 || both {
        return Err(Errno::EINVAL);
    }
    let seals = match flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL) {
        0 => F_SEAL_SEAL,
        MFD_ALLOW_SEALING => 0,
        _ => F_SEAL_EXEC,
    };
    let name = user::cstr(kernel.memory_mut(), a[0], NAME_MAX + 1 - PREFIX);
    let name = name.map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })?;
    let (mut io, process) = kernel.io();
    let fd = io.open_memory(process, &name, seals, flags & MFD_CLOEXEC != 0)?;
    Ok(u64::from(fd))
}

fn umask(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let new = low_u32(a[0]) & 0o777;
    let process = &mut kernel.process_mut().files;
    let old = core::mem::replace(&mut process.umask, new);
    process.registry.update(process);
    spread_directories(kernel);
    Ok(u64::from(old))
}
