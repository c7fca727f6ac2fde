//! Copies of files between the host and the VM (`hartline cp`): the kernel reads and writes tar files
//! ([`hartline_abi::copy`]), so the program needs no `tar`.
//!
//! A copy has root's rights, the root of the mounts as its root directory, and no task. It works in
//! steps between which the program runs: a step ends when the host has no more bytes or takes no
//! more, and after a slice of bytes. Then the host announces when the stream is ready.

// Fuzz targets are other crates: they reach the unpacking by this module only.
#[doc(hidden)]
pub mod fuzzing;
mod read;
mod tar;
mod write;

use self::read::Reader;
use self::write::Writer;
use crate::convert::low_u8;
use crate::credentials::Credentials;
use crate::drivers::spawn::SpawnDevice;
use crate::file::Vfs;
use crate::fs::proc;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::fs::walk::{Last, Options, Resolved};
use crate::kernel::Kernel;
use crate::kernel::process::FIRST;
use alloc::boxed::Box;
use alloc::vec::Vec;
use hartline_abi::copy::{Direction, MAX_REQUEST, Request, TYPE_SHIFT};
use hartline_abi::spawn::{MAX_SPAWNED, stream};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::stat::S_IFMT;

/// Bytes that a step moves.
const SLICE: usize = 256 << 10;

/// The end of a step.
#[derive(Debug)]
enum Step {
    /// The host announces when it can continue.
    Blocked,
    /// The slice is used up. The copy continues with this stream.
    Paused(u64),
    /// The copy has ended.
    Ended(Result<u8, Errno>),
}

/// A copy that the host has started and that it has not been told the end of.
#[derive(Debug)]
pub(super) struct Copy {
    /// The host's number.
    id: u64,
    /// The state with which paths are resolved.
    process: Process,
    work: Box<Work>,
}

#[derive(Debug)]
enum Work {
    Read(Reader),
    Write(Writer),
}

impl Copy {
    /// Does a step. After an error, the host gets the name of the file.
    fn step(&mut self, vfs: &mut Vfs, device: &mut SpawnDevice) -> Step {
        let step = match &mut *self.work {
            Work::Read(reader) => reader.step(self.id, vfs, &self.process, device),
            Work::Write(writer) => writer.step(self.id, vfs, &self.process, device),
        };
        if let Step::Ended(Err(_)) = step {
            let path = match &*self.work {
                Work::Read(reader) => reader.path(),
                Work::Write(writer) => writer.path(),
            };
            let fill = |to: &mut [u8]| to.copy_from_slice(&path[..to.len()]);
            // A path fits the empty socket, and a client that has gone does not need it.
            let _ = device.write((self.id, stream::ERROR), path.len(), fill);
        }
        step
    }

    /// Releases the inodes.
    fn release(mut self, vfs: &mut Vfs) {
        match &mut *self.work {
            Work::Read(reader) => reader.release(vfs),
            Work::Write(writer) => writer.release(vfs, &self.process),
        }
        release(vfs, &self.process);
    }
}

/// Releases the directories of a process that is not in the table.
fn release(vfs: &mut Vfs, process: &Process) {
    process.inodes().for_each(|ino| vfs.fs.release(ino));
}

/// Whether the kernel copies a file: files of `/proc` and `/sys` have no contents of their own.
fn check(ino: Ino) -> Result<Ino, Errno> {
    match proc::Node::from_ino(ino) {
        None => Ok(ino),
        Some(_) => Err(Errno::EOPNOTSUPP),
    }
}

/// The name that a file gets in the archive: the last component of its path, if that is a name.
fn name(resolved: &Resolved, path: &[u8]) -> Vec<u8> {
    // A link may have been followed: the name is the one in the request.
    let mut names = path
        .rsplit(|&byte| byte == b'/')
        .filter(|name| !name.is_empty());
    match names.next() {
        None | Some(b"." | b"..") => b".".to_vec(),
        Some(name) if matches!(resolved.last, Last::Name(_) | Last::Root) => name.to_vec(),
        Some(_) => b".".to_vec(),
    }
}

impl Kernel {
    /// Begins a copy. It continues by [`continue_copy`](Self::continue_copy) at once.
    pub(super) fn begin_copy(&mut self, id: u64, length: u64) {
        let begun = self.prepare_copy(id, length);
        if let Some(device) = &self.spawned.device {
            match begun {
                Ok(None) => {}
                Ok(Some(kind)) => device.report(id, Ok(kind)),
                Err(error) => device.report(id, Err(error)),
            }
        }
    }

    /// Adds a copy; if only the type of the file is requested, returns that.
    fn prepare_copy(&mut self, id: u64, length: u64) -> Result<Option<u8>, Errno> {
        let device = self.spawned.device.as_mut().ok_or(Errno::ENOSYS)?;
        if length > MAX_REQUEST as u64 {
            return Err(Errno::E2BIG);
        }
        let bytes = device.program(id, length)?;
        let request = Request::decode(&bytes).ok_or(Errno::EINVAL)?;
        if self.spawned.copies.len() >= MAX_SPAWNED {
            return Err(Errno::EAGAIN);
        }
        let first = self.processes.get(FIRST).ok_or(Errno::ESRCH)?;
        let registry = first.files.registry.clone();
        // `/proc` shows only processes of the table.
        let process = Process {
            registry,
            ..Process::new(&mut self.vfs.fs, Credentials::root(), FIRST)
        };
        let started = start(&mut self.vfs, &process, &request);
        let started = started.inspect_err(|_| release(&mut self.vfs, &process))?;
        match started {
            Started::Type(kind) => {
                release(&mut self.vfs, &process);
                Ok(Some(kind))
            }
            Started::Work(work) => {
                self.spawned.copies.push(Copy { id, process, work });
                Ok(None)
            }
        }
    }

    /// Continues a copy for a step.
    pub(super) fn continue_copy(&mut self, id: u64) {
        let copies = &mut self.spawned.copies;
        let Some(at) = copies.iter().position(|copy| copy.id == id) else {
            return;
        };
        let mut copy = copies.swap_remove(at);
        // Taken meanwhile: a borrow of the kernel's files excludes one of the device.
        let Some(mut device) = self.spawned.device.take() else {
            return copy.release(&mut self.vfs);
        };
        let ended = match copy.step(&mut self.vfs, &mut device) {
            Step::Blocked => None,
            // The host has forgotten the copy if this fails.
            Step::Paused(stream) => device.await_stream(id, stream).err().map(Err),
            Step::Ended(end) => Some(end),
        };
        match ended {
            None => self.spawned.copies.push(copy),
            Some(end) => {
                copy.release(&mut self.vfs);
                device.report(id, end);
            }
        }
        self.spawned.device = Some(device);
    }

    /// Forgets a copy whose client has gone. Files that were written stay.
    pub(super) fn cancel_copy(&mut self, id: u64) {
        let copies = &mut self.spawned.copies;
        if let Some(at) = copies.iter().position(|copy| copy.id == id) {
            copies.swap_remove(at).release(&mut self.vfs);
        }
    }
}

/// What a request begins.
enum Started {
    /// Nothing: this is the type of the file.
    Type(u8),
    Work(Box<Work>),
}

fn start(vfs: &mut Vfs, process: &Process, request: &Request<'_>) -> Result<Started, Errno> {
    // A directory to unpack in may be behind a link in any case.
    let follow = request.follow || request.direction == Direction::Write;
    let options = Options::following(follow);
    let resolved = vfs.resolve(process, AT_FDCWD, request.path, options)?;
    let ino = check(resolved.existing()?)?;
    vfs.fs.refresh_volume(ino)?;
    let attributes = vfs.fs.attributes(ino, process)?;
    if resolved.trailing_slash && !attributes.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let work = match request.direction {
        Direction::Stat => {
            let kind = (attributes.mode & S_IFMT) >> TYPE_SHIFT;
            return Ok(Started::Type(low_u8(kind.into())));
        }
        Direction::Read => {
            let name = name(&resolved, request.path);
            Work::Read(Reader::new(vfs, ino, &name, request.entries))
        }
        Direction::Write if !attributes.is_directory() => return Err(Errno::ENOTDIR),
        Direction::Write => {
            vfs.fs.check_writable(ino)?;
            Work::Write(Writer::new(vfs, ino, (request.owners, request.entries)))
        }
    };
    Ok(Started::Work(Box::new(work)))
}
