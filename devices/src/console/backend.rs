//! The outputs of a console: descriptors of the host.

use crate::poll;
use crate::virtio::Buffers;
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

    /// Writes all bytes of the buffers, of which there are at most 1024 (`IOV_MAX`). After a failed
    /// write, bytes are dropped. Returns whether the output accepts more.
    pub fn write(&mut self, buffers: &mut Buffers) -> bool {
        let descriptor = self.descriptor.as_fd();
        self.is_broken = self.is_broken || write_all(descriptor, buffers, &mut self.left).is_err();
        !self.is_broken
    }
}

/// Writes all bytes of the buffers, but at most `left` bytes.
///
/// # Errors
/// The host's; `FileTooLarge` if the limit is reached.
fn write_all(descriptor: BorrowedFd<'_>, rest: &mut Buffers, left: &mut u64) -> io::Result<()> {
    let fits = rest.truncate(*left);
    while rest.count() > 0 {
        match rest.write_into(descriptor) {
            Ok(written) => {
                *left -= written as u64;
                rest.advance(written);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => {
                    // After a signal or an error, the next write decides.
                    poll::wait(descriptor, PollFlags::OUT, None);
                }
                _ => return Err(error),
            },
        }
    }
    match fits {
        true => Ok(()),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}
