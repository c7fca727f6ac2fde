//! Descriptors for signals and processes: `signalfd4`, `pidfd_open`, `pidfd_send_signal`.

use super::Entry;
use super::files_fd::open_anonymous;
use crate::convert::{low_i32, low_u32};
use crate::file::pidfd::PidFd;
use crate::file::signalfd::SignalFd;
use crate::fs::proc::Node;
use crate::kernel::Kernel;
use crate::kernel::signals::{SigInfo, UNBLOCKABLE, check_number};
use crate::mm::user;
use alloc::rc::Rc;
use core::cell::Cell;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_CLOEXEC, O_NONBLOCK};
use hartline_linux::siginfo::SI_USER;
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::signalfd4, signalfd4),
    (nr::pidfd_send_signal, pidfd_send_signal),
    (nr::pidfd_open, pidfd_open),
];

fn signalfd4(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[3]);
    if a[2] != 8 || flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let set: u64 = user::read(kernel.memory_mut(), a[1])?;
    let set = set & !UNBLOCKABLE;
    if low_i32(a[0]) == -1 {
        let set = Cell::new(set);
        return open_anonymous(kernel, Rc::new(SignalFd { set }), flags);
    }
    let id = kernel.file_id(a[0])?;
    let file = kernel.vfs.files.get(id)?;
    let signals = file.object.downcast::<SignalFd>().ok_or(Errno::EINVAL)?;
    signals.set.set(set);
    Ok(u64::from(low_u32(a[0])))
}

/// Returns the process behind a pidfd.
pub(super) fn pidfd(kernel: &Kernel, fd: u64) -> Result<u32, Errno> {
    let file: Option<&PidFd> = kernel.file(fd)?.object.downcast();
    file.map(|file| file.pid).ok_or(Errno::EBADF)
}

fn pidfd_open(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (pid, flags) = (low_u32(a[0]), low_u32(a[1]));
    if pid.cast_signed() <= 0 || flags & !O_NONBLOCK != 0 {
        return Err(Errno::EINVAL);
    }
    let Some(process) = kernel.processes().find(|process| process.pid == pid) else {
        // `pid` is a thread other than the first of its process.
        let is_thread = kernel.program_task(pid).is_some();
        return Err(if is_thread {
            Errno::ENOENT
        } else {
            Errno::ESRCH
        });
    };
    let waiters = process.exit_waiters.clone();
    open_anonymous(kernel, Rc::new(PidFd { pid, waiters }), flags | O_CLOEXEC)
}

fn pidfd_send_signal(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if a[3] != 0 {
        return Err(Errno::EINVAL);
    }
    // The directory /proc/PID does too.
    let directory = Node::from_ino(kernel.file(a[0])?.ino).and_then(Node::process_directory);
    let pid = match directory {
        Some(pid) => pid,
        None => pidfd(kernel, a[0])?,
    };
    if low_u32(a[1]) == 0 {
        return super::signal::send_to(kernel, None, pid);
    }
    let signal = check_number(a[1])?;
    let info = match a[2] {
        0 => SigInfo::sent(
            signal,
            SI_USER,
            kernel.process().pid,
            kernel.process().uid(),
        ),
        address => {
            let info: SigInfo = user::read(kernel.memory_mut(), address)?;
            if info.signal() != signal {
                return Err(Errno::EINVAL);
            }
            if info.is_forged() && pid != kernel.task().tid {
                return Err(Errno::EPERM);
            }
            info.with_signal(signal)
        }
    };
    super::signal::send_to(kernel, Some(info), pid)
}
