//! Writing batches to descriptors.

use super::ring::Batch;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The descriptors, and which of them no longer take anything.
#[derive(Debug)]
pub(super) struct Output {
    descriptors: [OwnedFd; 3],
    broken: u32,
}

impl Output {
    pub(super) fn new(descriptors: [OwnedFd; 3]) -> Self {
        Self {
            descriptors,
            broken: 0,
        }
    }

    /// Writes a batch completely. A descriptor that failed once swallows the rest.
    /// Result: the set of broken descriptors (bit 0: descriptor 1).
    pub(super) fn write(&mut self, batch: &Batch) -> u32 {
        let index = batch.descriptor as usize - 1;
        if self.broken & 1 << index == 0
            && write_all(self.descriptors[index].as_raw_fd(), &mut batch.vectors()).is_err()
        {
            self.broken |= 1 << index;
        }
        self.broken
    }
}

fn write_all(descriptor: RawFd, mut vectors: &mut [libc::iovec]) -> io::Result<()> {
    while !vectors.is_empty() {
        // SAFETY: the vectors are valid memory of the ring; at most MAX_PIECES of
        // them, far below the kernel's limit.
        let count =
            unsafe { libc::writev(descriptor, vectors.as_ptr(), vectors.len() as libc::c_int) };
        if count >= 0 {
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
    Ok(())
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
