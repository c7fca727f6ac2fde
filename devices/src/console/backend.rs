//! The outputs of a console: descriptors of the host.

use crate::poll;
use crate::virtio::buffers::advance;
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The descriptor of a port.
#[derive(Debug)]
pub(super) struct Output {
    descriptor: OwnedFd,
    /// Bytes below the limit that are left.
    left: u64,
    /// Whether a write has failed.
    is_broken: bool,
}

impl Output {
    /// An output of at most `limit` bytes.
    pub fn new(descriptor: OwnedFd, limit: u64) -> Self {
        Self {
            descriptor,
            left: limit,
            is_broken: false,
        }
    }

    /// Writes all bytes of the vectors. After a failed write, bytes are dropped. Returns whether
    /// the output accepts more.
    ///
    /// # Safety
    /// The vectors are mapped for reading, and there are at most 1024 (`IOV_MAX`).
    pub unsafe fn write(&mut self, vectors: &mut [libc::iovec]) -> bool {
        let descriptor = self.descriptor.as_fd();
        // SAFETY: the caller promises what `write_all` needs.
        self.is_broken =
            self.is_broken || unsafe { write_all(descriptor, vectors, &mut self.left) }.is_err();
        !self.is_broken
    }
}

/// Writes all bytes of the vectors, but at most `left` bytes.
///
/// # Errors
/// The host's; `FileTooLarge` if the limit is reached.
///
/// # Safety
/// As [`Output::write`].
unsafe fn write_all(
    descriptor: BorrowedFd<'_>,
    mut vectors: &mut [libc::iovec],
    left: &mut u64,
) -> io::Result<()> {
    let fits = cut(vectors, *left);
    while !vectors.is_empty() {
        let (first, count) = (vectors.as_ptr(), vectors.len() as libc::c_int);
        // SAFETY: `first` and `count` are a slice of vectors, and the caller promises that their
        // memory is mapped for reading. `cut` and `advance` only make them shorter.
        let written = unsafe { libc::writev(descriptor.as_raw_fd(), first, count) };
        if written >= 0 {
            *left -= written.unsigned_abs() as u64;
            vectors = advance(vectors, written.unsigned_abs());
            continue;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => {
                // After a signal or an error, the next write decides.
                poll::wait(descriptor, PollFlags::OUT, None);
            }
            _ => return Err(error),
        }
    }
    match fits {
        true => Ok(()),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Shortens vectors to `left` bytes together. Returns whether all of their bytes fit.
fn cut(vectors: &mut [libc::iovec], mut left: u64) -> bool {
    let mut fits = true;
    for vector in vectors {
        let length = vector
            .iov_len
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        fits &= length == vector.iov_len;
        vector.iov_len = length;
        left -= length as u64;
    }
    fits
}
