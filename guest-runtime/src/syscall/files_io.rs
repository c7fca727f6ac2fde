//! Calls that move bytes between files and memory: `read`, `write` and their like; `lseek`.

use super::Entry;
use super::files::{read_into, refresh_text, within_file_limit, write_file, write_from};
use super::memory_file;
use super::poll::is_readable;
use super::socket_io::{read_socket, write_socket};
use crate::convert::{low_u32, to_usize};
use crate::file::operations::{File, Mode, Storage};
use crate::fs::process::FileId;
use crate::fs::types::MAX_RW_COUNT;
use crate::kernel::Kernel;
use crate::kernel::signals::SigInfo;
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, Registration, WRITABLE};
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fs::{RWF_DSYNC, RWF_HIPRI, RWF_SYNC};
use hartline_linux::siginfo::SI_USER;
use hartline_linux::signal::SIGPIPE;
use hartline_linux::syscall::nr;
use hartline_linux::uio::Iovec;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::lseek, lseek),
    (nr::read, read),
    (nr::write, write),
    (nr::readv, readv),
    (nr::writev, writev),
    (nr::pread64, pread64),
    (nr::pwrite64, pwrite64),
    (nr::preadv, preadv),
    (nr::pwritev, pwritev),
    (nr::preadv2, preadv2),
    (nr::pwritev2, pwritev2),
];

/// Vectors up to this many bytes are gathered and written in one piece.
const GATHER: u64 = 64 << 10;
/// Flags that have no effect here.
const RWF_HARMLESS: u64 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC;

/// Checks a file position given by the program.
pub(super) fn position(offset: u64) -> Result<Option<u64>, Errno> {
    match i64::try_from(offset) {
        Ok(_) => Ok(Some(offset)),
        Err(_) => Err(Errno::EINVAL),
    }
}

/// Checks the position of `pread64` and its like; `ESPIPE` if the file has no position.
fn pread_position(kernel: &Kernel, a: &[u64; 6]) -> Result<Option<u64>, Errno> {
    let at = position(a[3])?;
    match kernel.file(a[0])?.mode.has(Mode::PREAD) {
        true => Ok(at),
        false => Err(Errno::ESPIPE),
    }
}

/// Whether a call that would block waits. For storage it always does.
pub(super) fn waits(kernel: &Kernel, id: FileId) -> Result<bool, Errno> {
    let file = kernel.vfs.files.get(id)?;
    Ok(!file.is_nonblocking() || file.mode.has(Mode::STORAGE))
}

/// The operations of an open file description.
fn object(kernel: &Kernel, id: FileId) -> Result<Rc<dyn File>, Errno> {
    Ok(Rc::clone(&kernel.vfs.files.get(id)?.object))
}

/// Reads; waits if there is nothing to read.
fn read_at(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    address: u64,
    count: u64,
) -> Result<u64, Errno> {
    let mode = kernel.vfs.files.get(id)?.mode;
    if mode.has(Mode::STORAGE) {
        return read_storage(kernel, id, offset, &[whole(address, count)]);
    }
    if mode.has(Mode::TEXT) {
        refresh_text(kernel, id, offset)?;
    }
    if mode.has(Mode::TERMINAL) {
        object(kernel, id)?.check_input(kernel.calling())?;
    }
    let limit = kernel.io().0.read_limit(id, offset, count)?;
    match read_into(kernel, id, offset, address, limit) {
        Err(Errno::EAGAIN) if waits(kernel, id)? => {
            if mode.has(Mode::TERMINAL) {
                let timed = object(kernel, id)?.read_timed(kernel.calling(), address, limit)?;
                if let Some(done) = timed {
                    return Ok(done);
                }
            }
            Err(block(kernel, id, READABLE, 0)?)
        }
        result => result.map(|done| done as u64),
    }
}

/// Reads from a disk or a file of a volume, part by part, up to its end.
fn read_storage(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    vectors: &[Iovec],
) -> Result<u64, Errno> {
    let file = kernel.vfs.files.get(id)?;
    file.check_readable()?;
    let Storage { window, short_ends } = file.object.storage().ok_or(Errno::EINVAL)?;
    let mut skipped = kernel.progress();
    let mut done = skipped;
    for &Iovec {
        iov_base: base,
        iov_len: length,
    } in vectors
    {
        let mut inside = skipped.min(length);
        skipped -= inside;
        while inside < length {
            let at = offset.map(|offset| offset.saturating_add(done));
            let most = (length - inside).min(window as u64);
            match read_into(kernel, id, at, base.wrapping_add(inside), most) {
                Ok(0) => return Ok(done),
                Ok(got) if short_ends && (got as u64) < most => return Ok(done + got as u64),
                Ok(got) => (done, inside) = (done + got as u64, inside + got as u64),
                Err(Errno::EAGAIN) => return Err(kernel.await_disk(done)),
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(done)
}

/// Waits until reading (`events` is [`READABLE`]) or writing ([`WRITABLE`]) may continue; the caller
/// passes the result on.
pub(super) fn block(
    kernel: &mut Kernel,
    id: FileId,
    events: u32,
    progress: u64,
) -> Result<Errno, Errno> {
    if kernel.vfs.files.get(id)?.mode.has(Mode::STORAGE) {
        return Ok(kernel.await_disk(progress));
    }
    let mut table = PollTable::collecting(events, kernel.take_registrations());
    let file = kernel.vfs.files.get(id)?;
    file.object.poll(&kernel.view(), file, &mut table);
    let mut registrations = table.into_registrations();
    if events == READABLE && file.mode.has(Mode::WAKE_ONE) {
        registrations
            .iter_mut()
            .for_each(Registration::set_exclusive);
    }
    let wait = Wait {
        input: file.mode.has(Mode::INPUT),
        ..Wait::for_event(Event::File)
    };
    Ok(kernel.block_in(registrations, wait, progress))
}

/// Sends `SIGPIPE` if the result is `EPIPE`.
pub(super) fn check_pipe(kernel: &mut Kernel, result: Result<usize, Errno>) -> Result<u64, Errno> {
    if result == Err(Errno::EPIPE) {
        let (pid, uid) = (kernel.process().pid, kernel.process().uid());
        let info = SigInfo::sent(SIGPIPE, SI_USER, pid, uid);
        kernel.signal_thread(kernel.task().tid, info);
    }
    result.map(|done| done as u64)
}

/// Writes all bytes; waits if there is no room. `before` bytes were written by earlier tries.
fn write_at(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    address: u64,
    count: u64,
    before: u64,
) -> Result<u64, Errno> {
    let mode = kernel.vfs.files.get(id)?.mode;
    if mode.has(Mode::TERMINAL) {
        object(kernel, id)?.check_output(kernel.calling())?;
    }
    if mode.has(Mode::TEXT)
        && let Some(ino) = memory_file::of(kernel, id)
    {
        return memory_file::write(kernel, (id, ino), offset, (address, count));
    }
    let count = count.min(MAX_RW_COUNT as u64);
    let count = within_file_limit(kernel, id, offset, count, before)?;
    let most = match mode.has(Mode::STORAGE) {
        true => object(kernel, id)?.write_window(),
        false => count,
    };
    let mut done = 0;
    loop {
        let at = offset.map(|offset| offset.saturating_add(done));
        let length = (count - done).min(most);
        let result = write_from(kernel, id, at, address.wrapping_add(done), length);
        match result {
            Ok(n) => done += n as u64,
            Err(Errno::EAGAIN) if waits(kernel, id)? => {
                let error = block(kernel, id, WRITABLE, before + done)?;
                return match error {
                    Errno::EINTR if done > 0 => Ok(done),
                    error => Err(error),
                };
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return check_pipe(kernel, Err(error)),
        }
        if done == count || !mode.has(Mode::PARTIAL) || !waits(kernel, id)? {
            return Ok(done);
        }
    }
}

/// Adds the bytes that earlier tries of a call wrote: they are the result even if this try fails,
/// unless the call has to wait again.
fn with_progress(before: u64, result: Result<u64, Errno>) -> Result<u64, Errno> {
    match result {
        Ok(done) => Ok(before + done),
        Err(Errno::ERESTARTSYS) => result,
        Err(_) if before > 0 => Ok(before),
        error => error,
    }
}

/// The memory of a call that takes a single buffer.
fn whole(base: u64, length: u64) -> Iovec {
    let length = length.min(user::MAX_TRANSFER);
    Iovec {
        iov_base: base,
        iov_len: length,
    }
}

fn is_socket(kernel: &Kernel, id: FileId) -> Result<bool, Errno> {
    Ok(kernel.vfs.files.get(id)?.mode.has(Mode::SOCKET))
}

/// Reads from a socket, or by [`File::read_iter`]; `None` if [`Io::read`] is to follow.
///
/// [`Io::read`]: crate::file::Io::read
fn read_special(
    kernel: &mut Kernel,
    id: FileId,
    fd: u64,
    vectors: &[Iovec],
) -> Result<Option<u64>, Errno> {
    let file = kernel.vfs.files.get(id)?;
    if file.mode.has(Mode::SOCKET) {
        return read_socket(kernel, fd, vectors).map(Some);
    }
    if !file.mode.has(Mode::READ_ITER) {
        return Ok(None);
    }
    let (object, flags) = (Rc::clone(&file.object), file.flags);
    object.read_iter(kernel.calling(), flags, vectors)
}

pub(super) fn read(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.file_id(a[0])?;
    if let Some(result) = read_special(kernel, id, a[0], &[whole(a[1], a[2])])? {
        return Ok(result);
    }
    read_at(kernel, id, None, a[1], a[2])
}

pub(super) fn write(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (id, before) = (kernel.file_id(a[0])?, kernel.progress());
    if is_socket(kernel, id)? {
        return write_socket(kernel, a[0], &[whole(a[1], a[2])]);
    }
    let (address, count) = (a[1].wrapping_add(before), a[2].saturating_sub(before));
    let result = write_at(kernel, id, None, address, count, before);
    with_progress(before, result)
}

pub(super) fn pread64(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let at = pread_position(kernel, a)?;
    let id = kernel.file_id(a[0])?;
    read_at(kernel, id, at, a[1], a[2])
}

pub(super) fn pwrite64(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let at = pread_position(kernel, a)?;
    let (id, before) = (kernel.file_id(a[0])?, kernel.progress());
    let at = at.map(|at| at.saturating_add(before));
    let (address, count) = (a[1].wrapping_add(before), a[2].saturating_sub(before));
    let result = write_at(kernel, id, at, address, count, before);
    with_progress(before, result)
}

/// Reads into the vector that the arguments of `readv` describe.
pub(super) fn read_vectors(
    kernel: &mut Kernel,
    a: &[u64; 6],
    mut offset: Option<u64>,
) -> Result<u64, Errno> {
    let id = kernel.file_id(a[0])?;
    if kernel.vfs.files.get(id)?.mode.has(Mode::STORAGE) {
        let vectors = user::iovecs(kernel.memory_mut(), a[1], a[2])?;
        return read_storage(kernel, id, offset, &vectors);
    }
    if offset.is_none() {
        let vectors = user::iovecs(kernel.memory_mut(), a[1], a[2])?;
        if let Some(result) = read_special(kernel, id, a[0], &vectors)? {
            return Ok(result);
        }
    }
    let mut total = 0;
    for Iovec {
        iov_base: base,
        iov_len: length,
    } in user::iovecs(kernel.memory_mut(), a[1], a[2])?
    {
        if length == 0 {
            continue;
        }
        // The bytes already read are returned, so no further part waits.
        if total > 0 && !is_readable(kernel, id) {
            break;
        }
        let done = match read_at(kernel, id, offset, base, length) {
            Ok(done) => done,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        };
        total += done;
        offset = offset.map(|offset| offset + done);
        if done < length {
            break;
        }
    }
    Ok(total)
}

/// Writes from the vector that the arguments of `writev` describe.
pub(super) fn write_vectors(
    kernel: &mut Kernel,
    a: &[u64; 6],
    mut offset: Option<u64>,
) -> Result<u64, Errno> {
    let id = kernel.file_id(a[0])?;
    let vectors = user::iovecs(kernel.memory_mut(), a[1], a[2])?;
    if offset.is_none() && is_socket(kernel, id)? {
        return write_socket(kernel, a[0], &vectors);
    }
    let total: u64 = vectors.iter().map(|vector| vector.iov_len).sum();
    if vectors.len() > 1 && total <= GATHER && !waits_for_room(kernel, id)? {
        let room = within_file_limit(kernel, id, offset, total, 0)?;
        let mut bytes = gather(kernel, &vectors)?;
        bytes.truncate(to_usize(room));
        let result = write_file(kernel, id, offset, (&bytes).into());
        return check_pipe(kernel, result);
    }
    let before = kernel.progress();
    let (mut skipped, mut written) = (before, 0);
    offset = offset.map(|offset| offset.saturating_add(before));
    for Iovec {
        iov_base: base,
        iov_len: length,
    } in vectors
    {
        let skip = skipped.min(length);
        skipped -= skip;
        let (base, length) = (base.wrapping_add(skip), length - skip);
        if length == 0 {
            continue;
        }
        let done = match write_at(kernel, id, offset, base, length, before + written) {
            Ok(done) => done,
            Err(Errno::ERESTARTSYS) => return Err(Errno::ERESTARTSYS),
            Err(_) if written > 0 => break,
            Err(error) => return with_progress(before, Err(error)),
        };
        written += done;
        offset = offset.map(|offset| offset + done);
        if done < length {
            break;
        }
    }
    Ok(before + written)
}

/// Whether a write may have to wait for room and is therefore done in parts.
fn waits_for_room(kernel: &Kernel, id: FileId) -> Result<bool, Errno> {
    let mode = kernel.vfs.files.get(id)?.mode;
    Ok(mode.has_any(Mode::PARTIAL.with(Mode::SINGLE)))
}

fn gather(kernel: &mut Kernel, vectors: &[Iovec]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for vector in vectors {
        user::slice(kernel.memory_mut(), vector.iov_base, vector.iov_len)?.append_to(&mut bytes);
    }
    Ok(bytes)
}

pub(super) fn readv(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    read_vectors(kernel, a, None)
}

pub(super) fn writev(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    write_vectors(kernel, a, None)
}

pub(super) fn preadv(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let at = pread_position(kernel, a)?;
    read_vectors(kernel, a, at)
}

pub(super) fn pwritev(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let at = pread_position(kernel, a)?;
    write_vectors(kernel, a, at)
}

/// Checks the flags of `preadv2` and `pwritev2`, and returns the position.
fn second_version(kernel: &Kernel, a: &[u64; 6]) -> Result<Option<u64>, Errno> {
    let at = match a[3] {
        u64::MAX => None,
        _ => pread_position(kernel, a)?,
    };
    match a[5] & !RWF_HARMLESS {
        0 => Ok(at),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn preadv2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let at = second_version(kernel, a)?;
    read_vectors(kernel, a, at)
}

fn pwritev2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let at = second_version(kernel, a)?;
    write_vectors(kernel, a, at)
}

fn lseek(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (mut io, process) = kernel.io();
    let id = process.fds.get(low_u32(a[0]))?.file;
    io.seek(id, a[1].cast_signed(), low_u32(a[2]))
}
