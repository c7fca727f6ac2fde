//! Descriptors for signals and processes: `signalfd4`, `pidfd_open`, `pidfd_send_signal`.

use super::Entry;
use crate::fs::file::Object;
use crate::kernel::Kernel;
use crate::kernel::signals::{SigInfo, UNBLOCKABLE, check_number};
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_CLOEXEC, O_NONBLOCK};
use hartline_linux::siginfo::SI_USER;
use hartline_linux::syscall::nr;
use hartline_linux::uio::Iovec;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::signalfd4, signalfd4),
    (nr::pidfd_send_signal, pidfd_send_signal),
    (nr::pidfd_open, pidfd_open),
];

/// Size of a `struct signalfd_siginfo`, bytes.
const RECORD: u64 = 128;

fn signalfd4(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = a[3] as u32;
    if a[2] != 8 || flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let set: u64 = user::read(&mut kernel.memory, a[1])?;
    let set = set & !UNBLOCKABLE;
    if a[0] as i32 == -1 {
        return kernel.open_anonymous("[signalfd]", Object::Signal(set), flags);
    }
    let id = kernel.files.id(a[0])?;
    match &mut kernel.files.vfs.files.get_mut(id)?.object {
        Object::Signal(old) => *old = set,
        _ => return Err(Errno::EINVAL),
    }
    Ok(u64::from(a[0] as u32))
}

impl Kernel {
    /// Reads signals of `set` that are pending for the reader; waits for the first if the
    /// descriptor blocks.
    pub(super) fn read_signals(
        &mut self,
        fd: u64,
        set: u64,
        vectors: &[Iovec],
    ) -> Result<u64, Errno> {
        let mut done = 0;
        for vector in vectors {
            let mut at = 0;
            while vector.iov_len - at >= RECORD {
                let address = vector.iov_base.wrapping_add(at);
                // The address is checked first, so that a bad one loses no signal.
                user::slice_mut(&mut self.memory, address, RECORD)?;
                let Some(info) = self.signals.take(set) else {
                    break;
                };
                user::write(&mut self.memory, address, &info.to_signalfd())?;
                at += RECORD;
                done += RECORD;
            }
        }
        match done {
            0 if vectors.iter().all(|vector| vector.iov_len < RECORD) => Err(Errno::EINVAL),
            0 if self.files.file(fd)?.is_nonblocking() => Err(Errno::EAGAIN),
            0 => Err(self.block(Wait::for_event(Event::AnyFile), 0)),
            done => Ok(done),
        }
    }

    /// Whether a process has ended.
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        let mut processes = self.processes();
        processes
            .find(|process| process.pid == pid)
            .is_none_or(|process| process.is_zombie())
    }

    /// Returns the process behind a pidfd.
    pub(super) fn pidfd(&self, fd: u64) -> Result<u32, Errno> {
        match self.files.file(fd)?.object {
            Object::Process(pid) => Ok(pid),
            _ => Err(Errno::EBADF),
        }
    }
}

fn pidfd_open(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (pid, flags) = (a[0] as u32, a[1] as u32);
    if pid.cast_signed() <= 0 || flags & !O_NONBLOCK != 0 {
        return Err(Errno::EINVAL);
    }
    if !kernel.processes().any(|process| process.pid == pid) {
        // `pid` is a thread other than the first of its process.
        let is_thread = kernel.task_mut(pid).is_some();
        return Err(if is_thread {
            Errno::ENOENT
        } else {
            Errno::ESRCH
        });
    }
    kernel.open_anonymous("[pidfd]", Object::Process(pid), flags | O_CLOEXEC)
}

fn pidfd_send_signal(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if a[3] != 0 {
        return Err(Errno::EINVAL);
    }
    let pid = kernel.pidfd(a[0])?;
    if a[1] as u32 == 0 {
        return super::signal::send(kernel, None, |process| process.pid == pid);
    }
    let signal = check_number(a[1])?;
    let info = match a[2] {
        0 => SigInfo::sent(signal, SI_USER, kernel.process.pid, kernel.process.uid),
        address => {
            let info: SigInfo = user::read(&mut kernel.memory, address)?;
            if info.signal() != signal {
                return Err(Errno::EINVAL);
            }
            info.with_signal(signal)
        }
    };
    super::signal::send(kernel, Some(info), |process| process.pid == pid)
}
