//! The file `core` that a process leaves in its working directory, as `RLIMIT_CORE` allows (core(5)).
//! `/proc/sys/kernel/core_pattern` and `core_uses_pid` have their default values and cannot be changed.

use super::Output;
use super::memory::Contents;
use crate::credentials::Credentials;
use crate::file::Io;
use crate::file::open::Request;
use crate::fs::filesystem::FileSystem;
use crate::fs::process::{FdTable, Process};
use crate::fs::types::Ino;
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::mm::UserSlice;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{AT_FDCWD, O_CREAT, O_EXCL, O_WRONLY};
use hartline_linux::resource::{RLIMIT_CORE, RLIMIT_FSIZE};

/// The name of the file.
const NAME: &[u8] = b"core";
/// Permissions of the file: the program's memory may have secrets.
const MODE: u32 = 0o600;
/// Bytes that are written at once.
const PIECE: usize = 64 << 10;

impl Kernel {
    /// Most bytes of the core dump that the running process leaves if a signal ends it, or `None`: it
    /// leaves none. As Linux, it does not if the limit is below one page.
    pub(super) fn core_limit(&self) -> Option<u64> {
        let process = self.process();
        let [limit, size] = [RLIMIT_CORE, RLIMIT_FSIZE].map(|limit| process.limits[limit].rlim_cur);
        (limit >= PAGE_SIZE && process.files.dumpable == 1).then_some(limit.min(size))
    }

    /// Prepares a process for a core dump if its limit allows one: registers are exact at each fault
    /// from now on.
    pub(crate) fn prepare_core(&mut self, pid: u32) {
        let Some(process) = self
            .processes
            .get(pid)
            .filter(|process| !process.is_zombie())
        else {
            return;
        };
        let space = process.space;
        if process.limits[RLIMIT_CORE].rlim_cur < PAGE_SIZE {
            return;
        }
        match space == self.current.space {
            true => self.use_precise_translations(),
            false => self.use_precise_code(space),
        }
    }

    /// Writes the core dump of the running process to its file, of at most `limit` bytes beside holes.
    /// Returns whether there is one, which may end early.
    pub(super) fn leave_core(&mut self, contents: &Contents, limit: u64) -> bool {
        let (mut io, files) = self.io();
        let cred = Rc::clone(&files.cred);
        // Its descriptors may be used up.
        let mut process = Process {
            fds: FdTable::default(),
            registry: files.registry.clone(),
            cred: Rc::clone(&cred),
            fs_sharers: Rc::default(),
            oom_score: Rc::clone(&files.oom_score),
            ..*files
        };
        let Ok(fd) = open(&mut io, &mut process) else {
            return false;
        };
        let ino = io.vfs.file(&process, fd).map(|file| file.ino);
        let ino = ino.and_then(|ino| check(&io.vfs.fs, &process, ino));
        let has_core = ino.is_ok_and(|ino| {
            let mut file = GuestFile {
                fs: &mut self.vfs.fs,
                cred: &cred,
                ino,
                at: 0,
                left: limit,
                buffer: Vec::new(),
            };
            // If space or the limit is used up, the file ends early.
            let _ = contents.write(&mut file, &self.spaces[self.current].memory);
            let _ = file.finish();
            true
        });
        // The descriptor exists.
        let _ = self.io().0.close(&mut process, fd);
        has_core
    }
}

/// Makes the file of a process. As on Linux, it replaces one that is there, or a link.
///
/// # Errors
/// Errors of unlink(2) and open(2).
fn open(io: &mut Io<'_>, process: &mut Process) -> Result<u32, Errno> {
    let options = Options::default();
    let resolved = io.vfs.resolve(process, AT_FDCWD, NAME, options)?;
    if let Some(ino) = resolved.target {
        let dentry = resolved.dentry(Errno::EISDIR)?;
        io.vfs.fs.unlink(dentry, ino, &process.cred)?;
    }
    let request = Request {
        dirfd: AT_FDCWD,
        path: NAME,
        flags: O_CREAT | O_EXCL | O_WRONLY,
        mode: MODE,
        options,
    };
    io.open(process, request)
}

/// Checks that no other user can read the file of a process.
///
/// # Errors
/// `EACCES`: the file system has given it another owner or other permissions.
fn check(fs: &FileSystem, process: &Process, ino: Ino) -> Result<Ino, Errno> {
    let attributes = fs.attributes(ino, process)?;
    let is_own = attributes.mode & 0o677 == MODE && attributes.uid == process.cred.user.files;
    if is_own { Ok(ino) } else { Err(Errno::EACCES) }
}

/// The file.
struct GuestFile<'a> {
    fs: &'a mut FileSystem,
    cred: &'a Credentials,
    ino: Ino,
    /// Offset behind the bytes in the file.
    at: u64,
    /// Bytes that may follow beside holes.
    left: u64,
    /// Bytes that are not in the file yet.
    buffer: Vec<u8>,
}

impl GuestFile<'_> {
    fn flush(&mut self) -> Result<(), Errno> {
        while !self.buffer.is_empty() {
            let bytes = self.buffer.as_slice().into();
            let (done, end) = self.fs.write(self.ino, Some(self.at), bytes, self.cred)?;
            if done == 0 {
                return Err(Errno::ENOSPC);
            }
            self.at = end;
            self.buffer.drain(..done.min(self.buffer.len()));
        }
        Ok(())
    }
}

impl Output for GuestFile<'_> {
    fn put(&mut self, bytes: UserSlice<'_>) -> Result<(), Errno> {
        let length = bytes.len() as u64;
        self.left = self.left.checked_sub(length).ok_or(Errno::EFBIG)?;
        let start = self.buffer.len();
        self.buffer.resize(start + bytes.len(), 0);
        bytes.copy_to(&mut self.buffer[start..]);
        match self.buffer.len() >= PIECE {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn skip(&mut self, length: u64) -> Result<(), Errno> {
        if length > 0 {
            self.flush()?;
            self.at += length;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Errno> {
        let done = self.flush();
        // A hole at the end.
        if self.fs.size(self.ino)? < self.at {
            self.fs.truncate(self.ino, self.at)?;
        }
        done
    }
}
