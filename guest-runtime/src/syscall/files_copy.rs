//! Calls that copy bytes from file to file: `sendfile`, `copy_file_range`.

use super::Entry;
use super::files::{read_file, refresh_text, within_file_limit, write_file};
use super::files_io::{block, check_pipe, position, waits};
use crate::convert::to_usize;
use crate::file::directory::Directory;
use crate::file::operations::Mode;
use crate::file::regular::Regular;
use crate::fs::process::FileId;
use crate::fs::types::MAX_RW_COUNT;
use crate::kernel::Kernel;
use crate::mm::user;
use crate::wait::{READABLE, WRITABLE};
use alloc::vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_APPEND;
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::sendfile, sendfile),
    (nr::copy_file_range, copy_file_range),
];

/// The unit in which files are copied, bytes.
const COPY: usize = 64 << 10;

fn sendfile(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (to, from) = (kernel.file_id(a[0])?, kernel.file_id(a[1])?);
    let start = match a[2] {
        0 => None,
        address => position(user::read(kernel.memory_mut(), address)?)?,
    };
    let mode = kernel.vfs.files.get(from)?.mode;
    if !mode.has(Mode::PREAD.with(Mode::SPLICE_READ)) {
        return Err(Errno::EINVAL);
    }
    if kernel.vfs.files.get(to)?.flags & O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    refresh_text(kernel, from, start)?;
    let done = copy(kernel, (from, start), (to, None), a[3])?;
    if let Some(start) = start {
        user::write(kernel.memory_mut(), a[2], &(start + done))?;
    }
    Ok(done)
}

fn copy_file_range(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (from, to) = (kernel.file_id(a[0])?, kernel.file_id(a[2])?);
    if a[5] != 0 {
        return Err(Errno::EINVAL);
    }
    let mut location = |address| match address {
        0 => Ok(None),
        address => position(user::read(kernel.memory_mut(), address)?),
    };
    let (source, target) = (location(a[1])?, location(a[3])?);
    check_range(kernel, (from, source), (to, target), a[4])?;
    let done = copy(kernel, (from, source), (to, target), a[4])?;
    for (address, start) in [(a[1], source), (a[3], target)] {
        if let Some(start) = start {
            user::write(kernel.memory_mut(), address, &(start + done))?;
        }
    }
    Ok(done)
}

/// Whether `copy_file_range` may copy: two regular files, no overlap in one.
fn check_range(
    kernel: &Kernel,
    (from, source): (FileId, Option<u64>),
    (to, target): (FileId, Option<u64>),
    count: u64,
) -> Result<(), Errno> {
    let files = &kernel.vfs.files;
    let (input, output) = (files.get(from)?, files.get(to)?);
    if input.object.is::<Directory>() || output.object.is::<Directory>() {
        return Err(Errno::EISDIR);
    }
    input.check_readable()?;
    output.check_writable()?;
    if output.flags & O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    if !input.object.is::<Regular>() || !output.object.is::<Regular>() {
        return Err(Errno::EINVAL);
    }
    let process = &kernel.process().files;
    let device = |ino| Ok::<_, Errno>(kernel.vfs.fs.attributes(ino, process)?.device);
    if device(input.ino)? != device(output.ino)? {
        return Err(Errno::EXDEV);
    }
    let source = source.unwrap_or(input.offset);
    let target = target.unwrap_or(output.offset);
    if input.ino == output.ino && source.abs_diff(target) < count {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Copies until the first file ends or the second takes no more.
fn copy(
    kernel: &mut Kernel,
    (from, source): (FileId, Option<u64>),
    (to, target): (FileId, Option<u64>),
    count: u64,
) -> Result<u64, Errno> {
    let count = count.min(MAX_RW_COUNT as u64);
    let first = source.unwrap_or(kernel.vfs.files.get(from)?.offset);
    let mut buffer = vec![0; COPY];
    let mut done = kernel.progress();
    while done < count {
        let wanted = usize::try_from(count - done).map_or(COPY, |n| n.min(COPY));
        let (waiting, events, result) = match read_file(
            kernel,
            from,
            Some(first + done),
            (&mut buffer[..wanted]).into(),
        ) {
            Ok(got) => {
                let at = target.map(|target| target + done);
                let room = within_file_limit(kernel, to, at, got as u64, done);
                let written =
                    room.and_then(|n| write_file(kernel, to, at, (&buffer[..to_usize(n)]).into()));
                (to, WRITABLE, written)
            }
            error => (from, READABLE, error),
        };
        let written = match result {
            Err(Errno::EAGAIN) if waits(kernel, waiting)? => {
                match block(kernel, waiting, events, done)? {
                    Errno::EINTR if done > 0 => break,
                    error => return Err(error),
                }
            }
            Err(_) if done > 0 => break,
            result => check_pipe(kernel, result)?,
        };
        done += written;
        if written == 0 || written < wanted as u64 {
            break;
        }
    }
    if source.is_none() {
        kernel.vfs.files.get_mut(from)?.offset = first + done;
    }
    Ok(done)
}
