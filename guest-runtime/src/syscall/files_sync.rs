//! Calls that make files durable, or advise how they will be used: `sync`, `fsync`, `fadvise64`.

use super::Entry;
use crate::file::pipe::PipeEnd;
use crate::file::regular::Regular;
use crate::kernel::Kernel;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fadvise::POSIX_FADV_NOREUSE;
use hartline_linux::fs::{
    SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE,
};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::sync, sync),
    (nr::fsync, fsync),
    (nr::fdatasync, fdatasync),
    (nr::sync_file_range, sync_file_range),
    (nr::readahead, readahead),
    (nr::fadvise64, fadvise64),
    (nr::syncfs, fsync),
];

/// Flushes the disks; all other files are in memory or on the host.
fn sync(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    // As on Linux, only fsync reports errors.
    match kernel.disks.flush_all(kernel.task().tid) {
        Err(Errno::EAGAIN) => Err(kernel.await_disk(0)),
        _ => Ok(0),
    }
}

pub(super) fn sync_file(kernel: &mut Kernel, fd: u64, only_data: bool) -> Result<u64, Errno> {
    let file = kernel.file(fd)?;
    let (object, ino, task) = (Rc::clone(&file.object), file.ino, kernel.task().tid);
    let result = object.fsync(&mut kernel.io().0, ino, task, only_data);
    synced(kernel, result)
}

/// The result of a call that makes a file durable; the call waits if that is not done.
fn synced(kernel: &mut Kernel, result: Result<(), Errno>) -> Result<u64, Errno> {
    match result {
        Err(Errno::EAGAIN) => Err(kernel.await_disk(0)),
        result => result.map(|()| 0),
    }
}

fn fsync(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    sync_file(kernel, a[0], false)
}

fn fdatasync(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    sync_file(kernel, a[0], true)
}

fn sync_file_range(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const FLAGS: u64 =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    let file = kernel.file(a[0])?;
    let end = a[1]
        .checked_add(a[2])
        .filter(|&end| i64::try_from(end).is_ok());
    if a[3] & !FLAGS != 0 || i64::try_from(a[1]).is_err() || end.is_none() {
        return Err(Errno::EINVAL);
    }
    let (object, ino, task) = (Rc::clone(&file.object), file.ino, kernel.task().tid);
    let result = object.sync_file_range(&mut kernel.io().0, ino, task);
    synced(kernel, result)
}

/// Reading ahead has no effect: there is no disk, or the host reads ahead.
fn readahead(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let file = kernel.file(a[0])?;
    file.check_readable()?;
    match file.object.is::<Regular>() {
        true => Ok(0),
        false => Err(Errno::EINVAL),
    }
}

fn fadvise64(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    match kernel.file(a[0])?.object.is::<PipeEnd>() {
        true => Err(Errno::ESPIPE),
        false if a[3] > POSIX_FADV_NOREUSE => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}
