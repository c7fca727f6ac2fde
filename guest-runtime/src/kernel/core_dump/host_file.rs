//! The file of a core dump that the host writes (`--core`).

use super::Output;
use crate::arch::host::Host;
use crate::mm::UserSlice;
use hartline_abi::call::{CALL_DATA, Operation};
use hartline_linux::errno::Errno;

/// The file of a core dump, which the host writes. Bytes collect in the buffer of host calls.
#[derive(Debug)]
pub(crate) struct HostFile {
    host: Host,
    /// Bytes in the buffer.
    used: usize,
    /// Length of the hole after them.
    hole: u64,
}

impl HostFile {
    /// The file that the host has for the first core dump, if it has one.
    pub fn of(host: Host) -> Option<Self> {
        (host.boot().core != 0).then_some(Self {
            host,
            used: 0,
            hole: 0,
        })
    }

    /// Hands the bytes and the hole to the host.
    fn flush(&mut self) -> Result<(), Errno> {
        let mut args = [self.used as u64, self.hole, 0, 0, 0, 0];
        (self.used, self.hole) = (0, 0);
        self.host.call(Operation::Core, &mut args).map(|_| ())
    }
}

impl Output for HostFile {
    fn put(&mut self, bytes: UserSlice<'_>) -> Result<(), Errno> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.hole > 0 || self.used == CALL_DATA {
                self.flush()?;
            }
            let count = rest.len().min(CALL_DATA - self.used);
            let (part, after) = rest.split_at(count);
            part.copy_to(&mut self.host.call_data()[self.used..self.used + count]);
            self.used += count;
            rest = after;
        }
        Ok(())
    }

    fn skip(&mut self, length: u64) -> Result<(), Errno> {
        self.hole += length;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Errno> {
        self.flush()
    }
}
