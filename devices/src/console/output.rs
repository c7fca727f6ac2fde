//! Writing what the guest sent to descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The descriptor of a port.
#[derive(Debug)]
pub(super) struct Output {
    descriptor: OwnedFd,
    /// Bytes that it may still get.
    left: u64,
    broken: bool,
}

impl Output {
    /// It gets `limit` bytes at most.
    pub fn new(descriptor: OwnedFd, limit: u64) -> Self {
        Self {
            descriptor,
            left: limit,
            broken: false,
        }
    }

    /// Writes all that the vectors have. One that failed once swallows the rest. Result:
    /// whether it takes more.
    ///
    /// # Safety
    /// The vectors may be read, and are not more than the kernel takes at a time (1024).
    pub unsafe fn write(&mut self, vectors: &mut [libc::iovec]) -> bool {
        // SAFETY: the caller's contract.
        self.broken = self.broken
            || unsafe { write_all(self.descriptor.as_raw_fd(), vectors, &mut self.left) }.is_err();
        !self.broken
    }
}

/// # Safety
/// As [`Output::write`].
unsafe fn write_all(
    descriptor: RawFd,
    mut vectors: &mut [libc::iovec],
    left: &mut u64,
) -> io::Result<()> {
    let fits = cut(vectors, *left);
    while !vectors.is_empty() {
        // SAFETY: the caller's contract.
        let count =
            unsafe { libc::writev(descriptor, vectors.as_ptr(), vectors.len() as libc::c_int) };
        if count >= 0 {
            *left -= count.unsigned_abs() as u64;
            vectors = advance(vectors, count.unsigned_abs());
            continue;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => wait_writable(descriptor),
            _ => return Err(error),
        }
    }
    match fits {
        true => Ok(()),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Shortens what is to be written to `left` bytes. Result: whether all of it fits.
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

/// What is left after `count` bytes were written.
fn advance(mut vectors: &mut [libc::iovec], mut count: usize) -> &mut [libc::iovec] {
    while let Some(first) = vectors.first_mut() {
        if count < first.iov_len {
            // SAFETY: stays inside the piece.
            first.iov_base = unsafe { first.iov_base.cast::<u8>().add(count) }.cast();
            first.iov_len -= count;
            break;
        }
        count -= first.iov_len;
        vectors = &mut vectors[1..];
    }
    vectors
}

/// Waits until a non-blocking descriptor takes more.
fn wait_writable(descriptor: RawFd) {
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one valid entry. An error makes the caller try again.
    unsafe { libc::poll(&mut poll, 1, -1) };
}
