//! Writing batches to descriptors.

use super::ring::Batch;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The descriptors, and which of them no longer take anything.
#[derive(Debug)]
pub(super) struct Output {
    descriptors: [OwnedFd; 3],
    /// Bytes that each may still get.
    left: [u64; 3],
    broken: u32,
}

impl Output {
    /// Each descriptor gets `limit` bytes at most.
    pub(super) fn new(descriptors: [OwnedFd; 3], limit: u64) -> Self {
        Self {
            descriptors,
            left: [limit; 3],
            broken: 0,
        }
    }

    /// Writes a batch completely. A descriptor that failed once swallows the rest.
    /// Result: the set of broken descriptors (bit 0: descriptor 1).
    pub(super) fn write(&mut self, batch: &Batch) -> u32 {
        let index = batch.descriptor as usize - 1;
        if self.broken & 1 << index == 0
            && write_all(
                self.descriptors[index].as_raw_fd(),
                &mut batch.vectors(),
                &mut self.left[index],
            )
            .is_err()
        {
            self.broken |= 1 << index;
        }
        self.broken
    }
}

fn write_all(descriptor: RawFd, mut vectors: &mut [libc::iovec], left: &mut u64) -> io::Result<()> {
    let fits = cut(vectors, *left);
    while !vectors.is_empty() {
        // SAFETY: the vectors are valid memory of the ring; at most MAX_PIECES of
        // them, far below the kernel's limit.
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
