//! Processes that the user of this crate starts in a running VM ([`hartline_abi::spawn`]), and copies
//! of files ([`hartline_abi::copy`]).

use hartline_abi::spawn::Event;
use hartline_devices::virtio::Guest;
use std::fmt::Debug;
use std::sync::Arc;

/// A Linux error number; x86-64 and riscv64 use the same numbers.
pub type Errno = i32;

/// The end of a process, as the guest reports it. Nothing in it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process has ended with this exit code, 128 + *n* if signal *n* killed it.
    Exited(u8),
    /// The process was not started because of this error.
    Failed(Errno),
}

impl Ending {
    /// The end that the arguments of [`Call::Ended`](hartline_abi::spawn::Call::Ended) describe.
    #[must_use]
    pub fn of(code: u64, error: u64) -> Self {
        match error {
            0 => Self::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
            error => Self::Failed(Errno::try_from(error).unwrap_or(libc::EIO)),
        }
    }
}

/// Starts processes in a VM, and serves the guest's calls about them. No call may wait. The guest
/// controls all arguments.
pub trait Spawner: Debug + Send + Sync {
    /// Called once, before the guest runs: `guest` is to be interrupted when there is an event.
    fn connect(&self, guest: Arc<dyn Guest>);

    /// Takes the next event.
    fn next(&self) -> Option<Event>;

    /// Reads bytes of a stream; returns their number, 0 at the end.
    ///
    /// # Errors
    /// `EAGAIN`: [`Event::Ready`] follows. `EBADF`: there is no such stream.
    fn read(&self, id: u64, stream: u64, to: &mut [u8]) -> Result<usize, Errno>;

    /// Writes bytes to a stream; returns how many were taken.
    ///
    /// # Errors
    /// As [`read`](Self::read); `EPIPE`.
    fn write(&self, id: u64, stream: u64, from: &[u8]) -> Result<usize, Errno>;

    /// Closes a stream.
    ///
    /// # Errors
    /// `EBADF`.
    fn close(&self, id: u64, stream: u64) -> Result<(), Errno>;

    /// Announces a stream by [`Event::Ready`] as soon as it is ready, which may be at once.
    ///
    /// # Errors
    /// `EBADF`.
    fn await_stream(&self, id: u64, stream: u64) -> Result<(), Errno>;

    /// Notes the end of a process.
    ///
    /// # Errors
    /// `EBADF`.
    fn ended(&self, id: u64, ending: Ending) -> Result<(), Errno>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_of_the_guest_are_bounded() {
        assert_eq!(Ending::of(3, 0), Ending::Exited(3));
        assert_eq!(Ending::of(256, 0), Ending::Exited(255));
        assert_eq!(Ending::of(0, 2), Ending::Failed(2));
        assert_eq!(Ending::of(0, u64::MAX), Ending::Failed(libc::EIO));
    }
}
