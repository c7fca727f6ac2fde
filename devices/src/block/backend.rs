//! The image of a block device: a file or block device of the host.

use crate::virtio::Buffers;
use hartline_abi::virtio::SECTOR;
use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use vmm_sys_util::fallocate::{FallocateMode, fallocate};
use vmm_sys_util::write_zeroes::WriteZeroesAt;

/// Why a file cannot be the image of a disk.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The path is neither a file nor a block device, or the file is too short.
    #[error("{path:?}: not a file or block device of at least {SECTOR} bytes")]
    Kind {
        /// Path of the image.
        path: PathBuf,
    },
    /// Another VM writes the image, or uses an image that this VM wants to write.
    #[error("{path:?} is the disk of another virtual machine")]
    Busy {
        /// Path of the image.
        path: PathBuf,
    },
    /// The host refuses a system call.
    #[error("{path:?}: {source}")]
    Host {
        /// Path of the image.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// A file or block device of the host. While it is open, no other VM can write it.
#[derive(Debug)]
pub struct Image {
    file: File,
    sectors: u64,
    read_only: bool,
}

/// Result of a read that does not wait for storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TryRead {
    /// The read is complete.
    Done,
    /// The read must wait for storage.
    WouldBlock,
    /// The read has failed, or the host's file system cannot read without waiting.
    Failed,
}

impl Image {
    /// Opens a file as an image. The disk has the length of the file in whole sectors.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn open(path: &Path, read_only: bool) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Host {
            path: path.into(),
            source,
        };
        let bad = || ImageError::Kind { path: path.into() };
        // The type is checked before the file is opened, because opening a FIFO waits.
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

    /// Length of the image, sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether the image cannot be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The position of a range in the image, bytes.
    ///
    /// # Errors
    /// `InvalidInput`: the range is not in the image, or its length is not in whole sectors.
    pub fn position(&self, sector: u64, length: u64) -> io::Result<u64> {
        let end = length.checked_div(SECTOR).map(|n| sector.checked_add(n));
        let is_inside = end.flatten().is_some_and(|end| end <= self.sectors);
        match is_inside && length.is_multiple_of(SECTOR) {
            true => Ok(sector * SECTOR),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Writes all of the buffers to the image from `at` on, or reads into all of them.
    ///
    /// # Errors
    /// The host's; `UnexpectedEof` if the file became shorter.
    pub(super) fn transfer(&self, mut at: u64, rest: &mut Buffers, writes: bool) -> io::Result<()> {
        if writes && self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let fd = self.file.as_raw_fd();
        while rest.count() > 0 {
            let (first, count) = (rest.vectors().as_ptr(), rest.vector_count());
            let offset = at.cast_signed();
            // SAFETY: `first` and `count` are the list of buffers, which stay mapped for reading and
            // writing as long as it. The guest may use them meanwhile; the kernel only copies.
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
            if done == 0 && rest.length() > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += done as u64;
            rest.advance(done);
        }
        Ok(())
    }

    /// Fills all of the buffers from `at` on, if these bytes are in the host's page cache. If they
    /// are not, the host starts to read them, and the contents of the buffers are undefined.
    pub(super) fn try_read(&self, at: u64, buffers: &Buffers) -> TryRead {
        let wanted = buffers.length();
        let (first, count) = (buffers.vectors().as_ptr(), buffers.vector_count());
        let (fd, at) = (self.file.as_raw_fd(), at.cast_signed());
        // SAFETY: `first` and `count` are the list of buffers, which stay mapped for writing as long
        // as it. The guest's own writes to them may be overwritten.
        let read = unsafe { libc::preadv2(fd, first, count, at, libc::RWF_NOWAIT) };
        match usize::try_from(read) {
            Ok(read) if read == wanted => TryRead::Done,
            // Also at the end of a file that became shorter.
            Ok(_) => TryRead::WouldBlock,
            Err(_) => match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock => TryRead::WouldBlock,
                // A later read that waits reports the error.
                _ => TryRead::Failed,
            },
        }
    }

    /// Writes all data to storage.
    ///
    /// # Errors
    /// The host's.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Discards the contents of a range.
    ///
    /// # Errors
    /// The host's.
    pub fn discard(&self, at: u64, length: u64) -> io::Result<()> {
        let result = fallocate(&self.file, FallocateMode::PunchHole, true, at, length);
        match result.map_err(|error| io::Error::from_raw_os_error(error.errno())) {
            // A discard is only a hint.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            result => result,
        }
    }

    /// Fills a range with zeros. If `unmap`, the range may become a hole.
    ///
    /// # Errors
    /// The host's.
    pub fn zero(&self, at: u64, length: u64, unmap: bool) -> io::Result<()> {
        if unmap && fallocate(&self.file, FallocateMode::PunchHole, true, at, length).is_ok() {
            return Ok(());
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.file.try_clone()?.write_all_zeroes_at(at, length)
    }
}
