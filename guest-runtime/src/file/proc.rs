//! Files of `/proc`.

use crate::file::Io;
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::fs::process::FileId;
use crate::fs::types::Ino;
use crate::mm::UserSliceMut;
use alloc::vec::Vec;
use core::cell::RefCell;
use hartline_linux::errno::Errno;

/// A file of `/proc`, with the text that a read from the start has generated.
#[derive(Debug, Default)]
pub struct ProcText {
    text: RefCell<Vec<u8>>,
}

impl ProcText {
    /// Whether there is no text yet, or the file has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.borrow().is_empty()
    }

    /// Replaces the text.
    pub fn set(&self, text: Vec<u8>) {
        self.text.replace(text);
    }
}

impl File for ProcText {
    fn mode(&self) -> Mode {
        Mode::PREAD
            .with(Mode::SPLICE_READ)
            .with(Mode::NO_POLL)
            .with(Mode::TEXT)
    }

    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        let text = self.text.borrow();
        let start = usize::try_from(transfer.at()).unwrap_or(usize::MAX);
        let rest = text.get(start..).unwrap_or(&[]);
        let done = to.copy_start(rest);
        transfer.advance(done)
    }

    fn read_limit(&self, _: &Io<'_>, _: Ino, at: u64) -> Result<u64, Errno> {
        Ok((self.text.borrow().len() as u64).saturating_sub(at))
    }

    fn llseek(&self, io: &mut Io<'_>, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        io.vfs.generic_llseek(id, 0, offset, whence)
    }
}
