//! Moving bytes through pipes without the program's memory: `splice`, `tee`, `vmsplice`.

use super::Entry;
use super::files::{read_file, refresh_text, within_file_limit, write_file};
use super::files_io::{self, position, read_vectors};
use crate::convert::{low_u32, to_usize};
use crate::file::operations::Mode;
use crate::file::pipe::PipeEnd;
use crate::file::regular::Regular;
use crate::fs::inode::Kind;
use crate::fs::pipe::Pipe;
use crate::fs::process::FileId;
use crate::fs::types::{Ino, MAX_RW_COUNT};
use crate::kernel::Kernel;
use crate::mm::user;
use crate::wait::time::NEVER;
use crate::wait::{READABLE, Registration, WRITABLE};
use alloc::vec;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_APPEND;
use hartline_linux::fs::{SPLICE_F_GIFT, SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::vmsplice, vmsplice),
    (nr::splice, splice),
    (nr::tee, tee),
];

/// All flags.
const SPLICE_F_ALL: u32 = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;

/// The most bytes that go through a pipe at once.
const PIECE: usize = 64 << 10;

fn check_flags(flags: u64) -> Result<u32, Errno> {
    match low_u32(flags) {
        flags if flags & !SPLICE_F_ALL == 0 => Ok(flags),
        _ => Err(Errno::EINVAL),
    }
}

/// An end of a pipe.
#[derive(Debug, Clone, Copy)]
struct End {
    ino: Ino,
    /// Calls on this end block.
    waits: bool,
}

/// Returns the pipe end that a description refers to, if it is a pipe.
fn pipe_end(kernel: &Kernel, id: FileId, flags: u32) -> Result<Option<End>, Errno> {
    let file = kernel.vfs.files.get(id)?;
    let waits = flags & SPLICE_F_NONBLOCK == 0 && !file.is_nonblocking();
    let ino = file.ino;
    let is_pipe = file.object.is::<PipeEnd>();
    Ok(is_pipe.then_some(End { ino, waits }))
}

fn pipe_mut(kernel: &mut Kernel, end: End) -> Result<&mut Pipe, Errno> {
    match &mut kernel.vfs.fs.inode_mut(end.ino)?.kind {
        Kind::Fifo(pipe) => Ok(pipe),
        _ => Err(Errno::EINVAL),
    }
}

/// Waits at a queue of a pipe for `events`.
fn wait_for_pipe(kernel: &mut Kernel, end: End, events: u32) -> Result<Errno, Errno> {
    let pipe = pipe_mut(kernel, end)?;
    let waiters = match events {
        READABLE => &pipe.read_waiters,
        _ => &pipe.write_waiters,
    };
    let registration = Registration::new(waiters, events);
    Ok(match end.waits {
        true => kernel.block_at(registration, NEVER, 0),
        false => Errno::EAGAIN,
    })
}

/// Returns the number of bytes readable from a pipe; 0 only at its end.
fn filled(kernel: &mut Kernel, end: End) -> Result<usize, Errno> {
    let pipe = pipe_mut(kernel, end)?;
    match pipe.len() {
        0 if pipe.writers > 0 => Err(wait_for_pipe(kernel, end, READABLE)?),
        length => Ok(length),
    }
}

/// Returns the number of bytes a pipe has room for.
fn room(kernel: &mut Kernel, end: End, id: FileId) -> Result<usize, Errno> {
    let pipe = pipe_mut(kernel, end)?;
    if pipe.readers == 0 {
        return files_io::check_pipe(kernel, Err(Errno::EPIPE)).map(|_| 0);
    }
    match pipe.room() {
        0 => {
            let waits = end.waits && !kernel.vfs.files.get(id)?.is_nonblocking();
            Err(wait_for_pipe(kernel, End { waits, ..end }, WRITABLE)?)
        }
        room => Ok(room),
    }
}

/// Reads the position at `address`, if the program passes one.
fn offset(kernel: &mut Kernel, address: u64) -> Result<Option<u64>, Errno> {
    match address {
        0 => Ok(None),
        address => position(user::read(kernel.memory_mut(), address)?),
    }
}

fn splice(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if a[4] == 0 {
        return Ok(0);
    }
    let flags = check_flags(a[5])?;
    let (from, to) = (kernel.file_id(a[0])?, kernel.file_id(a[2])?);
    kernel.vfs.files.get(from)?.check_readable()?;
    kernel.vfs.files.get(to)?.check_writable()?;
    let ends = [pipe_end(kernel, from, flags)?, pipe_end(kernel, to, flags)?];
    for (end, address) in ends.iter().zip([a[1], a[3]]) {
        if end.is_some() && address != 0 {
            return Err(Errno::ESPIPE);
        }
    }
    let count = to_usize(a[4].min(MAX_RW_COUNT as u64));
    match ends {
        [Some(input), Some(output)] if input.ino == output.ino => Err(Errno::EINVAL),
        [Some(input), Some(output)] => {
            let done = between(kernel, input, (output, to), count)?;
            consume(pipe_mut(kernel, input)?, done);
            Ok(done as u64)
        }
        [Some(input), None] => from_pipe(kernel, input, (to, a[3]), count),
        [None, Some(output)] => to_pipe(kernel, (from, a[1]), (output, to), count),
        [None, None] => Err(Errno::EINVAL),
    }
}

/// Takes the first `count` bytes out of a pipe.
fn consume(pipe: &mut Pipe, count: usize) {
    pipe.consume(count);
    pipe.note_rest();
}

/// Copies bytes of one pipe into another; they stay in the first.
fn between(
    kernel: &mut Kernel,
    input: End,
    (output, to): (End, FileId),
    count: usize,
) -> Result<usize, Errno> {
    let filled = filled(kernel, input)?;
    if filled == 0 {
        return Ok(0);
    }
    let length = count.min(filled).min(room(kernel, output, to)?);
    let mut bytes = vec![0; length];
    pipe_mut(kernel, input)?.peek(&mut bytes);
    pipe_mut(kernel, output)?.fill(&bytes)
}

/// Moves bytes of a pipe to a file, at the position stored at `address`.
fn from_pipe(
    kernel: &mut Kernel,
    input: End,
    (to, address): (FileId, u64),
    count: usize,
) -> Result<u64, Errno> {
    let file = kernel.vfs.files.get(to)?;
    let appends = file.flags & O_APPEND != 0 && file.object.is::<Regular>();
    if appends || !file.mode.has(Mode::SPLICE_WRITE) {
        return Err(Errno::EINVAL);
    }
    let start = offset(kernel, address)?;
    let length = filled(kernel, input)?.min(count).min(PIECE);
    let length = within_file_limit(kernel, to, start, length as u64, 0)?;
    let mut bytes = vec![0; to_usize(length)];
    pipe_mut(kernel, input)?.peek(&mut bytes);
    let done = match write_file(kernel, to, start, (&bytes).into()) {
        Err(Errno::EAGAIN) if may_wait(kernel, input, to)? => {
            return Err(files_io::block(kernel, to, WRITABLE, 0)?);
        }
        result => files_io::check_pipe(kernel, result)?,
    };
    consume(pipe_mut(kernel, input)?, to_usize(done));
    tell_offset(kernel, address, start, done)
}

/// Moves bytes of a file, from the position stored at `address`, to a pipe.
fn to_pipe(
    kernel: &mut Kernel,
    (from, address): (FileId, u64),
    (output, to): (End, FileId),
    count: usize,
) -> Result<u64, Errno> {
    if !kernel.vfs.files.get(from)?.mode.has(Mode::SPLICE_READ) {
        return Err(Errno::EINVAL);
    }
    let start = offset(kernel, address)?;
    refresh_text(kernel, from, start)?;
    let length = room(kernel, output, to)?.min(count).min(PIECE);
    let mut bytes = vec![0; length];
    let got = match read_file(kernel, from, start, (&mut bytes).into()) {
        Err(Errno::EAGAIN) if may_wait(kernel, output, from)? => {
            return Err(files_io::block(kernel, from, READABLE, 0)?);
        }
        result => result?,
    };
    if got > 0 {
        pipe_mut(kernel, output)?.fill(&bytes[..got])?;
    }
    tell_offset(kernel, address, start, got as u64)
}

/// Whether a call between a pipe and a file may wait; for storage it always may.
fn may_wait(kernel: &Kernel, pipe: End, file: FileId) -> Result<bool, Errno> {
    let is_storage = kernel.vfs.files.get(file)?.mode.has(Mode::STORAGE);
    Ok(is_storage || pipe.waits && files_io::waits(kernel, file)?)
}

/// Stores the position after `done` bytes from `start` in the program.
fn tell_offset(
    kernel: &mut Kernel,
    address: u64,
    start: Option<u64>,
    done: u64,
) -> Result<u64, Errno> {
    if let Some(start) = start {
        user::write(kernel.memory_mut(), address, &(start + done))?;
    }
    Ok(done)
}

fn tee(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = check_flags(a[3])?;
    if a[2] == 0 {
        return Ok(0);
    }
    let (from, to) = (kernel.file_id(a[0])?, kernel.file_id(a[1])?);
    kernel.vfs.files.get(from)?.check_readable()?;
    kernel.vfs.files.get(to)?.check_writable()?;
    let (input, output) = (pipe_end(kernel, from, flags)?, pipe_end(kernel, to, flags)?);
    let count = to_usize(a[2].min(MAX_RW_COUNT as u64));
    match (input, output) {
        (Some(input), Some(output)) if input.ino != output.ino => {
            Ok(between(kernel, input, (output, to), count)? as u64)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn vmsplice(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = check_flags(a[3])?;
    let id = kernel.file_id(a[0])?;
    let end = pipe_end(kernel, id, flags)?.ok_or(Errno::EBADF)?;
    if kernel.vfs.files.get(id)?.check_writable().is_ok() {
        return splice_vectors(kernel, (end, id), a);
    }
    // A call that would block is refused here: the call below checks only the description's flags.
    if flags & SPLICE_F_NONBLOCK != 0 && a[2] != 0 {
        filled(kernel, end)?;
    }
    read_vectors(kernel, a, None)
}

/// Puts as many bytes of the vector that the arguments of `vmsplice` describe into a pipe as it has
/// room for.
fn splice_vectors(
    kernel: &mut Kernel,
    (output, id): (End, FileId),
    a: &[u64; 6],
) -> Result<u64, Errno> {
    let vectors = user::iovecs(kernel.memory_mut(), a[1], a[2])?;
    if vectors.iter().all(|vector| vector.iov_len == 0) {
        return Ok(0);
    }
    let room = room(kernel, output, id)?;
    let mut bytes = Vec::new();
    for vector in vectors {
        let left = (room - bytes.len()) as u64;
        let length = vector.iov_len.min(left);
        match user::slice(kernel.memory_mut(), vector.iov_base, length) {
            Ok(part) => part.append_to(&mut bytes),
            // The bytes before a bad address are put into the pipe.
            Err(_) if !bytes.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(pipe_mut(kernel, output)?.fill(&bytes)? as u64)
}
