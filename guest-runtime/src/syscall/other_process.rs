//! Access to other processes: `process_vm_readv`, `process_vm_writev`, `kcmp`, `pidfd_getfd`.

use super::Entry;
use super::notify::pidfd;
use super::task::find_task;
use crate::convert::{low_i32, low_u32};
use crate::fs::process::Descriptor;
use crate::kernel::Kernel;
use crate::kernel::process::Process;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::mm::{Access, user};
use core::cmp::Ordering;
use hartline_linux::errno::Errno;
use hartline_linux::kcmp::{
    KCMP_FILE, KCMP_FILES, KCMP_FS, KCMP_IO, KCMP_SIGHAND, KCMP_SYSVSEM, KCMP_VM,
};
use hartline_linux::syscall::nr;
use hartline_linux::uio::{Iovec, UIO_MAXIOV};

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::process_vm_readv, |kernel, a| transfer(kernel, a, false)),
    (nr::process_vm_writev, |kernel, a| transfer(kernel, a, true)),
    (nr::kcmp, kcmp),
    (nr::pidfd_getfd, pidfd_getfd),
];

/// The most bytes that are copied at once.
const PIECE: u64 = 64 << 10;

/// Returns the process of a task that the running process may inspect, as `ptrace(2)` describes.
pub(super) fn inspected(kernel: &mut Kernel, tid: u64) -> Result<Handle<Process>, Errno> {
    let tid = find_task(kernel, tid)?;
    let process = kernel.tasks.get(tid).ok_or(Errno::ESRCH)?.process;
    let (own, target) = (kernel.process(), &kernel.processes[process]);
    let is_own = own.pid == target.pid;
    match is_own
        || own
            .credentials()
            .may_inspect(target.credentials(), target.files.dumpable == 1)
    {
        true => Ok(process),
        false => Err(Errno::EPERM),
    }
}

/// Copies bytes between the vectors of the running process and those of another one.
fn transfer(kernel: &mut Kernel, a: &[u64; 6], writes: bool) -> Result<u64, Errno> {
    let [pid, local, local_count, remote, remote_count, flags] = *a;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let local = user::iovecs(kernel.memory_mut(), local, local_count)?;
    if remote_count > UIO_MAXIOV {
        return Err(Errno::EINVAL);
    }
    let remote = user::iovecs(kernel.memory_mut(), remote, remote_count)?;
    let process = inspected(kernel, pid)?;
    let space = kernel.processes[process].space;
    let (mut local, mut remote) = (local.into_iter(), remote.into_iter());
    let (mut from, mut to) = (EMPTY, EMPTY);
    let mut done = 0;
    loop {
        let (Some(own), Some(other)) = (part(&mut from, &mut local), part(&mut to, &mut remote))
        else {
            return Ok(done);
        };
        let length = own.iov_len.min(other.iov_len).min(PIECE);
        let locations = (own.iov_base, other.iov_base);
        match copy(kernel, space, locations, length, writes) {
            Ok(()) => done += length,
            Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
        }
        for vector in [&mut from, &mut to] {
            vector.iov_base = vector.iov_base.wrapping_add(length);
            vector.iov_len -= length;
        }
    }
}

/// No memory.
const EMPTY: Iovec = Iovec {
    iov_base: 0,
    iov_len: 0,
};

/// Returns the rest of the current vector, or the next one that is not empty.
fn part(current: &mut Iovec, more: &mut impl Iterator<Item = Iovec>) -> Option<Iovec> {
    while current.iov_len == 0 {
        *current = more.next()?;
    }
    Some(*current)
}

/// Copies bytes between the running process (first address) and the address space `space`.
fn copy(
    kernel: &mut Kernel,
    space: Handle<Space>,
    (own, other): (u64, u64),
    length: u64,
    writes: bool,
) -> Result<(), Errno> {
    if writes {
        let bytes = user::slice(kernel.memory_mut(), own, length)?.to_vec();
        let memory = &mut kernel.spaces[space].memory;
        let written = memory.write_unloaded(other, &bytes);
        kernel.tell_of_changed_code(space);
        return written.map_err(Errno::from);
    }
    let memory = &mut kernel.spaces[space].memory;
    memory.prepare(other, length, Access::Read)?;
    let bytes = memory.peek(other..other + length);
    if bytes.len() as u64 != length {
        return Err(Errno::EFAULT);
    }
    user::write_bytes(kernel.memory_mut(), own, &bytes)
}

/// The result of `kcmp` for an order.
fn ordered(order: Ordering) -> u64 {
    match order {
        Ordering::Equal => 0,
        Ordering::Less => 1,
        Ordering::Greater => 2,
    }
}

fn kcmp(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [first, second, kind, first_fd, second_fd, _] = *a;
    for pid in [first, second] {
        if low_i32(pid) <= 0 {
            return Err(Errno::ESRCH);
        }
    }
    let processes = [inspected(kernel, first)?, inspected(kernel, second)?];
    let [one, other] = processes.map(|process| &kernel.processes[process]);
    let file = |process: &Process, fd: u64| {
        let fd = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
        process.files.fds.get(fd).map(|found| found.file)
    };
    Ok(ordered(match u64::from(low_u32(kind)) {
        KCMP_FILE => file(one, first_fd)?.cmp(&file(other, second_fd)?),
        KCMP_VM => one.space.cmp(&other.space),
        KCMP_FILES => one.files.fds.order(&other.files.fds),
        // Processes without operations to undo share "none".
        KCMP_SYSVSEM
            if ![one, other]
                .iter()
                .any(|p| kernel.ipc.semaphores.has_undo(p.pid)) =>
        {
            Ordering::Equal
        }
        KCMP_FS | KCMP_SIGHAND | KCMP_IO | KCMP_SYSVSEM => one.pid.cmp(&other.pid),
        _ => return Err(Errno::EINVAL),
    }))
}

/// Copies a descriptor of another process.
fn pidfd_getfd(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if low_u32(a[2]) != 0 {
        return Err(Errno::EINVAL);
    }
    let pid = pidfd(kernel, a[0])?;
    let process = inspected(kernel, pid.into())?;
    let found = kernel.processes[process].files.fds.get(low_u32(a[1]))?;
    let (vfs, own) = kernel.file_state();
    let copy = Descriptor {
        close_on_exec: true,
        ..found
    };
    let fd = own.fds.insert(0, copy)?;
    vfs.files.retain(copy.file);
    Ok(u64::from(fd))
}
