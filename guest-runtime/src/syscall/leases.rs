//! Leases: `F_SETLEASE` and `F_GETLEASE` of `fcntl`, and calls that wait for the end of leases.

use super::signal_io;
use crate::arch::clock;
use crate::convert::sign_extended;
use crate::fs::leases::{Kind, Others};
use crate::fs::types::Ino;
use crate::kernel::Kernel;
use crate::wait::{ALL, Registration};
use hartline_linux::capability::CAP_LEASE;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{F_RDLCK, F_UNLCK, F_WRLCK};
use hartline_linux::stat::{S_IFMT, S_IFREG};

/// The lease of the description behind `fd` (`F_GETLEASE`).
///
/// # Errors
/// `EBADF`.
pub(super) fn get_lease(kernel: &mut Kernel, fd: u64) -> Result<u64, Errno> {
    let id = kernel.file_id(fd)?;
    let ino = kernel.file(fd)?.ino;
    let lease = kernel.vfs.leases.get(ino, id, clock::monotonic());
    let shown = match lease {
        Some(Kind::Read) => F_RDLCK,
        Some(Kind::Write) => F_WRLCK,
        None => F_UNLCK,
    };
    Ok(sign_extended(shown.into()))
}

/// Sets or ends the lease of the description behind `fd` (`F_SETLEASE`).
///
/// # Errors
/// `EACCES` for the file of another user, `EINVAL` unless it is regular, `EAGAIN` if others have it
/// open.
pub(super) fn set_lease(kernel: &mut Kernel, fd: u64, wanted: u64) -> Result<u64, Errno> {
    let id = kernel.file_id(fd)?;
    let file = kernel.file(fd)?;
    let (ino, writes) = (file.ino, file.check_writable().is_ok());
    let kind = match i16::try_from(wanted) {
        Ok(F_RDLCK) => Kind::Read,
        Ok(F_WRLCK) => Kind::Write,
        Ok(F_UNLCK) => return kernel.vfs.leases.remove(ino, id).map(|()| 0),
        _ => return Err(Errno::EINVAL),
    };
    let process = &kernel.process().files;
    let attributes = kernel.vfs.fs.attributes(ino, process)?;
    if attributes.uid != process.cred.user.files && !process.cred.has(CAP_LEASE) {
        return Err(Errno::EACCES);
    }
    if attributes.mode & S_IFMT != S_IFREG {
        return Err(Errno::EINVAL);
    }
    let mut others = Others {
        reads: false,
        writes: false,
    };
    for (other, file) in kernel.vfs.files.entries() {
        if other != id && file.ino == ino {
            others.writes |= file.check_writable().is_ok();
            others.reads |= file.check_readable().is_ok();
        }
    }
    kernel.vfs.leases.set(ino, id, kind, (others, writes))?;
    signal_io::own(kernel, fd).map(|()| 0)
}

/// The progress of a call that waits for the end of leases.
pub(super) const WAITS_FOR_LEASE: u64 = u64::MAX;

/// Waits for the end of the leases on a file that the running call found in its way.
pub(super) fn await_lease(kernel: &mut Kernel, (ino, deadline): (Ino, u64)) -> Errno {
    let registration = Registration::new(kernel.vfs.leases.waiters(ino), ALL);
    kernel.block_at(registration, deadline, WAITS_FOR_LEASE)
}

/// Waits until no lease is in the way of a change of the file `ino`.
///
/// # Errors
/// `ERESTARTSYS` while it waits, `EINTR`.
pub(super) fn end_leases(kernel: &mut Kernel, ino: Ino) -> Result<(), Errno> {
    match kernel.vfs.break_leases(ino, true) {
        None => Ok(()),
        Some(deadline) => Err(await_lease(kernel, (ino, deadline))),
    }
}
