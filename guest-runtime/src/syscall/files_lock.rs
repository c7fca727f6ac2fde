//! Advisory locks: `flock`, and the commands of `fcntl`.

use super::Entry;
use crate::fs::locks::{Owner, RangeLock};
use crate::kernel::Kernel;
use crate::mm::user;
use crate::wait::time::NEVER;
use crate::wait::{ALL, Registration};
use core::ops::Range;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{F_RDLCK, F_UNLCK, F_WRLCK, Flock, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN};
use hartline_linux::fs::{SEEK_CUR, SEEK_END, SEEK_SET};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::flock, flock)];

/// The `fcntl` command that sets a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockCall {
    /// The lock belongs to the open file description, not to the process.
    pub of_file: bool,
    /// The call waits until it has the lock.
    pub waits: bool,
}

/// Reads the lock at `address` of the program, and converts it to a range lock.
fn read_lock(
    kernel: &mut Kernel,
    fd: u64,
    of_file: bool,
    address: u64,
) -> Result<(Flock, RangeLock), Errno> {
    let lock: Flock = user::read(kernel.memory_mut(), address)?;
    if !(F_RDLCK..=F_UNLCK).contains(&lock.l_type) || (of_file && lock.l_pid != 0) {
        return Err(Errno::EINVAL);
    }
    let file = kernel.file(fd)?;
    let (ino, offset) = (file.ino, file.offset);
    let owner = match of_file {
        true => Owner::File(kernel.file_id(fd)?),
        false => Owner::Process(kernel.process().pid),
    };
    let base = match u32::from(lock.l_whence.cast_unsigned()) {
        SEEK_SET => 0,
        SEEK_CUR => offset,
        SEEK_END => kernel.vfs.fs.size(ino).unwrap_or(0),
        _ => return Err(Errno::EINVAL),
    };
    let wanted = RangeLock {
        owner,
        exclusive: lock.l_type == F_WRLCK,
        range: lock_range(base.cast_signed(), lock.l_start, lock.l_len)?,
    };
    Ok((lock, wanted))
}

/// Converts the range of a `struct flock`: length 0 reaches to the end of the file, a negative
/// length covers the bytes before the start.
fn lock_range(base: i64, start: i64, length: i64) -> Result<Range<u64>, Errno> {
    let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
    let end = match length {
        0 => None,
        _ => Some(start.checked_add(length).ok_or(Errno::EOVERFLOW)?),
    };
    let (start, end) = match end {
        Some(end) if end < start => (end, Some(start)),
        end => (start, end),
    };
    let start = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
    let end = end.map_or(u64::MAX, i64::cast_unsigned);
    Ok(start..end)
}

/// `F_GETLK` and `F_OFD_GETLK`: reports a lock that conflicts.
pub(super) fn test_lock(
    kernel: &mut Kernel,
    fd: u64,
    of_file: bool,
    address: u64,
) -> Result<u64, Errno> {
    let (mut lock, wanted) = read_lock(kernel, fd, of_file, address)?;
    if lock.l_type == F_UNLCK {
        return Err(Errno::EINVAL);
    }
    let ino = kernel.file(fd)?.ino;
    match kernel.vfs.locks.conflict(ino, &wanted) {
        None => lock.l_type = F_UNLCK,
        Some(other) => {
            lock.l_type = if other.exclusive { F_WRLCK } else { F_RDLCK };
            lock.l_whence = 0;
            lock.l_start = other.range.start.cast_signed();
            lock.l_len = match other.range.end {
                u64::MAX => 0,
                end => (end - other.range.start).cast_signed(),
            };
            lock.l_pid = match other.owner {
                Owner::Process(pid) => pid.cast_signed(),
                Owner::File(_) => -1,
            };
        }
    }
    user::write(kernel.memory_mut(), address, &lock)?;
    Ok(0)
}

/// `F_SETLK` and its like.
pub(super) fn set_lock(
    kernel: &mut Kernel,
    fd: u64,
    address: u64,
    call: LockCall,
) -> Result<u64, Errno> {
    let (lock, wanted) = read_lock(kernel, fd, call.of_file, address)?;
    let file = kernel.file(fd)?;
    let ino = file.ino;
    match lock.l_type {
        F_RDLCK => file.check_readable()?,
        F_WRLCK => file.check_writable()?,
        _ => {
            let locks = &mut kernel.vfs.locks;
            locks.unlock(ino, wanted.owner, wanted.range);
            return Ok(0);
        }
    }
    let pid = kernel.process().pid;
    let locks = &mut kernel.vfs.locks;
    locks.end_wait(pid);
    match locks.lock(ino, wanted.clone()) {
        Ok(()) => {}
        Err(Errno::EAGAIN) if call.waits => {
            locks.wait(ino, &wanted)?;
            let registration = Registration::new(locks.waiters(ino), ALL);
            let error = kernel.block_at(registration, NEVER, 0);
            if error != Errno::ERESTARTSYS {
                kernel.vfs.locks.end_wait(pid);
            }
            return Err(error);
        }
        Err(error) => return Err(error),
    }
    Ok(0)
}

fn flock(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.file_id(a[0])?;
    let ino = kernel.file(a[0])?.ino;
    let locks = &mut kernel.vfs.locks;
    let exclusive = match a[1] & !LOCK_NB {
        LOCK_SH => false,
        LOCK_EX => true,
        LOCK_UN => {
            locks.unlock_whole(ino, id);
            return Ok(0);
        }
        _ => return Err(Errno::EINVAL),
    };
    match locks.lock_whole(ino, id, exclusive) {
        Err(Errno::EAGAIN) if a[1] & LOCK_NB == 0 => {
            let registration = Registration::new(locks.waiters(ino), ALL);
            Err(kernel.block_at(registration, NEVER, 0))
        }
        result => result.map(|()| 0),
    }
}
