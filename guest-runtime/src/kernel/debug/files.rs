//! Files of the VM for the debugger ("File-I/O", `vFile`), which reads programs and libraries from
//! them. They cannot be changed.

use crate::credentials::Credentials;
use crate::debugger::packet::MAX_PACKET;
use crate::debugger::text::{number, unhex};
use crate::file::Vfs;
use crate::fs::proc;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::kernel::process::FIRST;
use crate::mm::UserSliceMut;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::stat::{S_IFMT, S_IFREG};

/// Most files that are open.
const MAX_FILES: usize = 64;

/// The files that the debugger has opened.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: Vec<Option<Ino>>,
}

impl Files {
    /// Closes all files.
    pub fn close(self, vfs: &mut Vfs) {
        let open = self.open.into_iter().flatten();
        open.for_each(|ino| vfs.fs.release(ino));
    }
}

/// The answer with an error ("Errno Values"): the protocol has some of Linux's numbers.
fn error(error: Errno) -> Vec<u8> {
    const UNKNOWN: u16 = 9999;
    let number = match error {
        Errno::EPERM
        | Errno::ENOENT
        | Errno::EINTR
        | Errno::EBADF
        | Errno::EACCES
        | Errno::EFAULT
        | Errno::EBUSY
        | Errno::EEXIST
        | Errno::ENODEV
        | Errno::ENOTDIR
        | Errno::EISDIR
        | Errno::EINVAL
        | Errno::ENFILE
        | Errno::EMFILE
        | Errno::EFBIG
        | Errno::ENOSPC
        | Errno::ESPIPE
        | Errno::EROFS => error.number(),
        _ => UNKNOWN,
    };
    format!("F-1,{number:x}").into_bytes()
}

/// `struct stat` of the protocol: 64 bytes, big-endian.
fn status(size: u64, mode: u32) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[8..12].copy_from_slice(&mode.to_be_bytes());
    // st_nlink.
    bytes[15] = 1;
    bytes[28..36].copy_from_slice(&size.to_be_bytes());
    bytes[36..44].copy_from_slice(&4096u64.to_be_bytes());
    bytes[44..52].copy_from_slice(&size.div_ceil(512).to_be_bytes());
    bytes
}

/// An answer with data.
fn attached(data: &[u8]) -> Vec<u8> {
    let mut answer = format!("F{:x};", data.len()).into_bytes();
    answer.extend_from_slice(data);
    answer
}

impl Kernel {
    /// Serves `vFile:REQUEST`.
    pub(super) fn file_request(&mut self, request: &[u8]) -> Vec<u8> {
        let at = request.iter().position(|&byte| byte == b':');
        let (name, arguments) = request.split_at(at.unwrap_or(request.len()));
        let arguments = arguments.get(1..).unwrap_or_default();
        let arguments: Vec<&[u8]> = arguments.split(|&byte| byte == b',').collect();
        let result = match (name, arguments.as_slice()) {
            // All processes see the same files.
            (b"setfs", _) => Ok(b"F0".to_vec()),
            (b"open", [path, flags, _]) => self.open_for_debugger(path, flags),
            (b"close", [fd]) => self.close_for_debugger(fd),
            (b"pread", [fd, count, offset]) => self.read_for_debugger(fd, count, offset),
            (b"fstat", [fd]) => self.file_of_debugger(fd).and_then(|ino| {
                let mode = self.vfs.fs.inode(ino)?.mode;
                let size = self.vfs.fs.size(ino)?;
                Ok(attached(&status(size, mode)))
            }),
            (b"readlink", [path]) => self.link_for_debugger(path),
            (b"pwrite" | b"unlink", _) => Err(Errno::EROFS),
            (b"open" | b"close" | b"pread" | b"fstat" | b"readlink", _) => Err(Errno::EINVAL),
            _ => return Vec::new(),
        };
        result.unwrap_or_else(error)
    }

    fn resolve_for_debugger(&mut self, path: &[u8], follow: bool) -> Result<Ino, Errno> {
        let path = unhex(path).ok_or(Errno::EINVAL)?;
        let first = self.processes.get(FIRST).ok_or(Errno::ENOENT)?;
        let registry = first.files.registry.clone();
        let process = Process {
            registry,
            ..Process::new(&mut self.vfs.fs, Credentials::root(), FIRST)
        };
        let options = Options {
            follow,
            ..Options::default()
        };
        let resolved = self.vfs.resolve(&process, AT_FDCWD, &path, options);
        process.inodes().for_each(|ino| self.vfs.fs.release(ino));
        resolved.and_then(|resolved| resolved.target.ok_or(Errno::ENOENT))
    }

    fn open_for_debugger(&mut self, path: &[u8], flags: &[u8]) -> Result<Vec<u8>, Errno> {
        // Flags for reading are 0.
        if number(flags).ok_or(Errno::EINVAL)? & 3 != 0 {
            return Err(Errno::EROFS);
        }
        let ino = self.resolve_for_debugger(path, true)?;
        let inode = self.vfs.fs.inode(ino)?;
        if inode.mode & S_IFMT != S_IFREG || proc::Node::from_ino(ino).is_some() {
            return Err(Errno::EACCES);
        }
        let debugger = self.debugger.as_mut().ok_or(Errno::EINVAL)?;
        let open = &mut debugger.files.open;
        let fd = match open.iter().position(Option::is_none) {
            Some(fd) => fd,
            None if open.len() < MAX_FILES => {
                open.push(None);
                open.len() - 1
            }
            None => return Err(Errno::EMFILE),
        };
        open[fd] = Some(ino);
        self.vfs.fs.retain(ino);
        Ok(format!("F{fd:x}").into_bytes())
    }

    fn file_of_debugger(&mut self, fd: &[u8]) -> Result<Ino, Errno> {
        let fd = number(fd).and_then(|fd| usize::try_from(fd).ok());
        let open = self.debugger.as_ref().map(|debugger| &debugger.files.open);
        let found = open.zip(fd).and_then(|(open, fd)| *open.get(fd)?);
        found.ok_or(Errno::EBADF)
    }

    fn close_for_debugger(&mut self, fd: &[u8]) -> Result<Vec<u8>, Errno> {
        let ino = self.file_of_debugger(fd)?;
        let fd = number(fd).and_then(|fd| usize::try_from(fd).ok());
        if let Some((debugger, fd)) = self.debugger.as_mut().zip(fd) {
            debugger.files.open[fd] = None;
        }
        self.vfs.fs.release(ino);
        Ok(b"F0".to_vec())
    }

    fn read_for_debugger(
        &mut self,
        fd: &[u8],
        count: &[u8],
        offset: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        /// Escaping at most doubles the bytes; the rest is for the number.
        const MOST: usize = MAX_PACKET / 2 - 32;
        let ino = self.file_of_debugger(fd)?;
        let count = number(count).ok_or(Errno::EINVAL)?;
        let offset = number(offset).ok_or(Errno::EINVAL)?;
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(MOST).min(MOST)];
        let to = UserSliceMut::from(&mut bytes[..]);
        let done = self.vfs.fs.read(ino, offset, to)?;
        Ok(attached(&bytes[..done.min(bytes.len())]))
    }

    fn link_for_debugger(&mut self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let ino = self.resolve_for_debugger(path, false)?;
        let target = self.vfs.fs.link_target(ino)?;
        Ok(attached(&target))
    }
}
