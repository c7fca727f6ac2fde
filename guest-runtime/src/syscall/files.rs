//! Helpers that several of the file system calls use.

use super::files_proc::{page_map, proc_text};
use super::memory_file;
use crate::convert::{low_i32, low_u32};
use crate::credentials::Credentials;
use crate::drivers::streams::Streams;
use crate::file::Io;
use crate::file::proc::ProcText;
use crate::file::regular::Regular;
use crate::file::transfer::Outside;
use crate::fs::inode::Kind;
use crate::fs::proc::{Node, Text};
use crate::fs::process::FileId;
use crate::fs::types::Ino;
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::kernel::random::{self, Random};
use crate::kernel::signals::SigInfo;
use crate::kernel::table::Table;
use crate::kernel::task::Task;
use crate::mm::{AddressSpace, UserSlice, UserSliceMut, user};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_APPEND};
use hartline_linux::resource::{RLIM_INFINITY, RLIMIT_FSIZE};
use hartline_linux::siginfo::SI_USER;
use hartline_linux::signal::SIGXFSZ;

/// State outside the file system that reads and writes need.
struct World<'a> {
    task: u32,
    pid: u32,
    tasks: &'a mut Table<Task>,
    cred: &'a Credentials,
    streams: &'a mut Streams,
    random: &'a mut Random,
}

impl Outside for World<'_> {
    fn task(&self) -> u32 {
        self.task
    }

    fn cred(&self) -> &Credentials {
        self.cred
    }

    fn set_name(&mut self, tid: u32, name: [u8; 16]) -> Result<(), Errno> {
        let task = self.tasks.get_mut(tid).ok_or(Errno::ESRCH)?;
        if task.pid != self.pid {
            return Err(Errno::EINVAL);
        }
        task.name = name;
        Ok(())
    }

    fn read_input(&mut self, to: UserSliceMut<'_>, nonblocking: bool) -> Result<usize, Errno> {
        self.streams.read(to, nonblocking)
    }

    fn write_output(&mut self, stream: u32, from: UserSlice<'_>) -> Result<usize, Errno> {
        self.streams.write(stream, from)
    }

    fn terminal(&self) -> Option<u32> {
        [1, 2]
            .into_iter()
            .find(|&stream| self.streams.is_terminal(stream))
    }

    fn random(&mut self, mut to: UserSliceMut<'_>) {
        to.fill_with(|part| self.random.fill(part));
    }

    fn mix(&mut self, from: UserSlice<'_>) {
        self.random.mix(from);
    }

    fn entropy(&mut self, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        let mut bytes = vec![0; to.len().min(random::MOST)];
        let count = self.random.entropy(&mut bytes)?;
        Ok(to.copy_start(&bytes[..count]))
    }
}

/// Updates the attributes of a standard stream or of a volume's file from the host, before they are
/// shown.
///
/// # Errors
/// The host's error.
pub(super) fn refresh(kernel: &mut Kernel, ino: Ino) -> Result<(), Errno> {
    kernel.vfs.fs.refresh_volume(ino)?;
    let Ok(Kind::Console(stream)) = kernel.vfs.fs.inode(ino).map(|inode| &inode.kind) else {
        return Ok(());
    };
    let status = kernel.streams.status(*stream)?;
    kernel.vfs.set_stream_status(ino, status.mode, status.rdev)
}

/// Borrows what reads and writes need, and the memory of the running process.
#[inline]
fn split(kernel: &mut Kernel) -> (Io<'_>, World<'_>, &mut AddressSpace) {
    let io = Io {
        vfs: &mut kernel.vfs,
        net: &mut kernel.net,
        ptys: &mut kernel.ptys,
        disks: &mut kernel.disks,
    };
    let Task { tid, pid, .. } = kernel.tasks[kernel.current];
    let world = World {
        task: tid,
        pid,
        tasks: &mut kernel.tasks,
        cred: &kernel.processes[kernel.current].files.cred,
        streams: &mut kernel.streams,
        random: &mut kernel.random,
    };
    (io, world, &mut kernel.spaces[kernel.current].memory)
}

/// Reads into the program's memory through [`Io::read`].
pub(super) fn read_into(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    address: u64,
    count: u64,
) -> Result<usize, Errno> {
    let (mut io, mut world, memory) = split(kernel);
    let to = user::slice_mut(memory, address, count)?;
    io.read(id, offset, to, &mut world)
}

/// Reads into kernel memory through [`Io::read`].
pub(super) fn read_file(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    to: UserSliceMut<'_>,
) -> Result<usize, Errno> {
    let (mut io, mut world, _) = split(kernel);
    io.read(id, offset, to, &mut world)
}

/// Writes from the program's memory through [`Io::write`].
pub(super) fn write_from(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    address: u64,
    count: u64,
) -> Result<usize, Errno> {
    let (mut io, mut world, memory) = split(kernel);
    let from = user::slice(memory, address, count)?;
    io.write(id, offset, from, &mut world)
}

/// Writes from kernel memory through [`Io::write`].
pub(super) fn write_file(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    from: UserSlice<'_>,
) -> Result<usize, Errno> {
    let (mut io, mut world, _) = split(kernel);
    io.write(id, offset, from, &mut world)
}

/// Returns how many of `count` bytes the running process may write to a file at `offset`, or at the
/// file position, because of `RLIMIT_FSIZE`. If it is none, sends `SIGXFSZ`, unless the call has
/// written bytes `before`.
///
/// # Errors
/// `EBADF`, `EFBIG`.
pub(super) fn within_file_limit(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
    count: u64,
    before: u64,
) -> Result<u64, Errno> {
    let limit = kernel.process().limits[RLIMIT_FSIZE].rlim_cur;
    if limit == RLIM_INFINITY || count == 0 {
        return Ok(count);
    }
    let file = kernel.vfs.files.get(id)?;
    file.check_writable()?;
    if !file.object.is::<Regular>() {
        return Ok(count);
    }
    let at = match file.flags & O_APPEND {
        0 => offset.unwrap_or(file.offset),
        _ => kernel.vfs.fs.size(file.ino)?,
    };
    match limit.saturating_sub(at) {
        0 if before == 0 => Err(exceed_file_limit(kernel)),
        room => Ok(count.min(room)),
    }
}

/// Checks that a file may have the new length `size` (`RLIMIT_FSIZE`).
///
/// # Errors
/// `EFBIG`, after `SIGXFSZ` was sent.
pub(super) fn check_file_size(kernel: &mut Kernel, ino: Ino, size: u64) -> Result<(), Errno> {
    let limit = kernel.process().limits[RLIMIT_FSIZE].rlim_cur;
    let grows = || kernel.vfs.fs.size(ino).is_ok_and(|now| size > now);
    match size > limit && grows() {
        true => Err(exceed_file_limit(kernel)),
        false => Ok(()),
    }
}

/// Sends the running task the signal of `RLIMIT_FSIZE`; the error of its call.
fn exceed_file_limit(kernel: &mut Kernel) -> Errno {
    let (pid, uid) = (kernel.process().pid, kernel.process().uid());
    let info = SigInfo::sent(SIGXFSZ, SI_USER, pid, uid);
    kernel.signal_thread(kernel.task().tid, info);
    Errno::EFBIG
}

/// Reads the path at `address` in the program.
pub(super) fn read_path(kernel: &mut Kernel, address: u64) -> Result<Vec<u8>, Errno> {
    user::path(kernel.memory_mut(), address)
}

/// The inode that `dirfd` and the path at `address` lead to, or that `dirfd`
/// itself is when the path is empty and [`AT_EMPTY_PATH`] is in `flags`.
pub(super) fn inode_at(
    kernel: &mut Kernel,
    dirfd: u64,
    address: u64,
    flags: u32,
) -> Result<Ino, Errno> {
    // Linux takes a null pointer for an empty path here.
    let path = match address {
        0 if flags & AT_EMPTY_PATH != 0 => Vec::new(),
        _ => read_path(kernel, address)?,
    };
    let (vfs, process) = kernel.file_state();
    if path.is_empty() && flags & AT_EMPTY_PATH != 0 {
        return match low_i32(dirfd) {
            AT_FDCWD => Ok(process.cwd),
            _ => Ok(process.fds.get(low_u32(dirfd))?.ino),
        };
    }
    let options = Options::following(flags & AT_SYMLINK_NOFOLLOW == 0);
    let found = vfs.resolve(process, low_i32(dirfd), &path, options)?;
    let ino = found.existing()?;
    if found.trailing_slash && !vfs.fs.attributes(ino, process)?.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    Ok(ino)
}

/// Regenerates the text of a `/proc` file when it is read from its start.
pub(super) fn refresh_text(
    kernel: &mut Kernel,
    id: FileId,
    offset: Option<u64>,
) -> Result<(), Errno> {
    let file = kernel.vfs.files.get(id)?;
    let (object, ino) = (Rc::clone(&file.object), file.ino);
    let at = offset.unwrap_or(file.offset);
    let Some(text) = object.downcast::<ProcText>() else {
        return Ok(());
    };
    match Node::from_ino(ino).and_then(Node::text) {
        Some(Text::PageMap) => text.set(page_map(kernel, ino, at)?, at),
        Some(Text::Mem) => text.set(memory_file::read(kernel, ino, at)?, at),
        _ if at == 0 || text.is_empty() => text.set(proc_text(kernel, ino)?, 0),
        _ => {}
    }
    Ok(())
}
