//! The outputs of a console: descriptors of the host.

use super::log::Cursor;
use crate::poll;
use crate::virtio::Buffers;
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The descriptor of a port.
#[derive(Debug)]
pub(super) struct Output {
    /// `None`: bytes are discarded.
    descriptor: Option<OwnedFd>,
    /// The position in a file of limited length.
    cursor: Option<Cursor>,
    /// Whether a write has failed.
    is_broken: bool,
}

impl Output {
    /// An output; without a descriptor it discards all bytes. If `limit` is not `u64::MAX`, the descriptor is an empty
    /// file, which gets no longer than `limit` bytes ([`super::log`]).
    pub fn new(descriptor: Option<OwnedFd>, limit: u64) -> Self {
        Self {
            descriptor,
            cursor: (limit != u64::MAX).then(|| Cursor::new(limit)),
            is_broken: false,
        }
    }

    /// Writes all bytes of the buffers, of which there are at most 1024 (`IOV_MAX`). After a failed
    /// write, bytes are dropped. Returns whether the output accepts more.
    pub fn write(&mut self, buffers: Buffers) -> bool {
        let Some(descriptor) = self.descriptor.as_ref().map(AsFd::as_fd) else {
            return true;
        };
        let write = || match &mut self.cursor {
            None => write_all(descriptor, buffers),
            Some(cursor) => write_around(descriptor, buffers, cursor),
        };
        self.is_broken = self.is_broken || write().is_err();
        !self.is_broken
    }
}

/// Writes all bytes of the buffers to a file of limited length.
///
/// # Errors
/// The host's.
fn write_around(
    descriptor: BorrowedFd<'_>,
    mut rest: Buffers,
    cursor: &mut Cursor,
) -> io::Result<()> {
    while rest.length() > 0 {
        let room = usize::try_from(cursor.room()).unwrap_or(usize::MAX);
        let length = rest.length().min(room);
        // The buffers have this length.
        let Some((now, later)) = rest.split(length) else {
            break;
        };
        cursor.announce(descriptor, length as u64)?;
        write_all(descriptor, now)?;
        cursor.advance(descriptor, length as u64)?;
        rest = later;
    }
    Ok(())
}

/// Writes all bytes of the buffers.
///
/// # Errors
/// The host's.
fn write_all(descriptor: BorrowedFd<'_>, mut rest: Buffers) -> io::Result<()> {
    while rest.count() > 0 {
        match rest.write_into(descriptor) {
            Ok(written) => rest.advance(written),
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
    Ok(())
}
