//! What a block device contains: a file or block device of the host.

use hartline_abi::virtio::SECTOR;
use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use vmm_sys_util::fallocate::{FallocateMode, fallocate};
use vmm_sys_util::write_zeroes::WriteZeroesAt;

/// Why a file cannot be a disk.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is neither a file nor a block device, or too short.
    #[error("{path:?} is no file or block device of at least {SECTOR} bytes")]
    Kind {
        /// It.
        path: PathBuf,
    },
    /// Another VM writes it, or has it and this one wants to write.
    #[error("{path:?} is the disk of another virtual machine")]
    Busy {
        /// It.
        path: PathBuf,
    },
    /// Another failure.
    #[error("{path:?}: {source}")]
    Host {
        /// It.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A file or block device of the host. As long as it is open no other VM may write it.
#[derive(Debug)]
pub struct Image {
    file: File,
    sectors: u64,
    read_only: bool,
}

/// What a request came to.
pub(super) type Done = io::Result<()>;

/// How a read went that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadNow {
    /// It is done.
    Done,
    /// Storage has to be waited for.
    Waits,
    /// It has failed, or the host cannot tell.
    Fails,
}

impl Image {
    /// Opens a file, whose length then is that of the disk, in whole sectors.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn open(path: &Path, read_only: bool) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Host {
            path: path.into(),
            source,
        };
        let bad = || ImageError::Kind { path: path.into() };
        // What it is before it is opened: opening a FIFO waits.
        let kind = path.metadata().map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(bad());
        }
        let file = File::options().read(true).write(!read_only).open(path);
        let mut file = file.map_err(failed)?;
        let lock = match read_only {
            true => file.try_lock_shared(),
            false => file.try_lock(),
        };
        lock.map_err(|error| match error {
            TryLockError::WouldBlock => ImageError::Busy { path: path.into() },
            TryLockError::Error(source) => failed(source),
        })?;
        let sectors = file.seek(SeekFrom::End(0)).map_err(failed)? / SECTOR;
        match sectors {
            0 => Err(bad()),
            sectors => Ok(Self {
                file,
                sectors,
                read_only,
            }),
        }
    }

    /// Its length, sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether it cannot be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The position of a range of bytes, if it is inside, in whole sectors.
    pub fn position(&self, sector: u64, length: u64) -> io::Result<u64> {
        let end = length.checked_div(SECTOR).map(|n| sector.checked_add(n));
        let is_inside = end.flatten().is_some_and(|end| end <= self.sectors);
        match is_inside && length.is_multiple_of(SECTOR) {
            true => Ok(sector * SECTOR),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Moves bytes between the image, from `at` on, and all of the buffers.
    ///
    /// # Errors
    /// The host's; `UnexpectedEof` if the file became shorter.
    ///
    /// # Safety
    /// The buffers are memory that may be read (`writes`), or written.
    pub unsafe fn transfer(&self, mut at: u64, buffers: &mut [libc::iovec], writes: bool) -> Done {
        if writes && self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let fd = self.file.as_raw_fd();
        let mut rest = buffers;
        while !rest.is_empty() {
            let (first, count) = (rest.as_ptr(), rest.len() as libc::c_int);
            let offset = at.cast_signed();
            // SAFETY: the caller's contract.
            let result = unsafe {
                match writes {
                    true => libc::pwritev(fd, first, count, offset),
                    false => libc::preadv(fd, first, count, offset),
                }
            };
            let Ok(done) = usize::try_from(result) else {
                match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                }
            };
            if done == 0 && rest.iter().any(|buffer| buffer.iov_len > 0) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += done as u64;
            rest = advance(rest, done);
        }
        Ok(())
    }

    /// Fills all of the buffers from `at` on, if the host has those bytes in memory; if not,
    /// anything may be in the buffers, and the host has begun to read them.
    ///
    /// # Safety
    /// The buffers are memory that may be written.
    pub(super) unsafe fn read_now(&self, at: u64, buffers: &[libc::iovec]) -> ReadNow {
        let wanted: usize = buffers.iter().map(|buffer| buffer.iov_len).sum();
        let (first, count) = (buffers.as_ptr(), buffers.len() as libc::c_int);
        let (fd, at) = (self.file.as_raw_fd(), at.cast_signed());
        // SAFETY: the caller's contract.
        let read = unsafe { libc::preadv2(fd, first, count, at, libc::RWF_NOWAIT) };
        match usize::try_from(read) {
            Ok(read) if read == wanted => ReadNow::Done,
            // The end of the file too, where it became shorter.
            Ok(_) => ReadNow::Waits,
            Err(_) => match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock => ReadNow::Waits,
                // Errors are found again by who reads and waits.
                _ => ReadNow::Fails,
            },
        }
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// The host's.
    pub fn flush(&self) -> Done {
        self.file.sync_data()
    }

    /// The contents of a range are not needed any more.
    ///
    /// # Errors
    /// The host's.
    pub fn discard(&self, at: u64, length: u64) -> Done {
        let result = fallocate(&self.file, FallocateMode::PunchHole, true, at, length);
        match result.map_err(|error| io::Error::from_raw_os_error(error.errno())) {
            // It is advice.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            result => result,
        }
    }

    /// A range becomes zeros; these may be a hole (`unmap`).
    ///
    /// # Errors
    /// The host's.
    pub fn zero(&self, at: u64, length: u64, unmap: bool) -> Done {
        if unmap && fallocate(&self.file, FallocateMode::PunchHole, true, at, length).is_ok() {
            return Ok(());
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.file.try_clone()?.write_all_zeroes_at(at, length)
    }
}

/// The buffers without their first bytes.
fn advance(buffers: &mut [libc::iovec], mut by: usize) -> &mut [libc::iovec] {
    let mut whole = 0;
    for buffer in &*buffers {
        if by < buffer.iov_len {
            break;
        }
        by -= buffer.iov_len;
        whole += 1;
    }
    let rest = &mut buffers[whole..];
    if let Some(first) = rest.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(by);
        first.iov_len -= by;
    }
    rest
}
