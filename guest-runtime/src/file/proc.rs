//! Files of `/proc`.

use crate::file::Io;
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::fs::proc::{Node, Text};
use crate::fs::process::{FileId, OomScore};
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use hartline_linux::capability::CAP_SYS_RESOURCE;
use hartline_linux::errno::Errno;

/// A file of `/proc`, with the text that a read from the start has generated.
#[derive(Debug, Default)]
pub struct ProcText {
    text: RefCell<Vec<u8>>,
    /// Position of the text in the file; 0 except in `pagemap` and `mem`.
    start: Cell<u64>,
    /// What a write to `oom_score_adj` sets.
    oom_score: Option<Rc<Cell<OomScore>>>,
}

impl ProcText {
    /// The file `oom_score_adj` of a process.
    #[must_use]
    pub fn of_oom_score(score: Rc<Cell<OomScore>>) -> Self {
        Self {
            text: RefCell::default(),
            start: Cell::new(0),
            oom_score: Some(score),
        }
    }

    /// Whether there is no text yet, or the file has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.borrow().is_empty()
    }

    /// Replaces the text, which is at `start` in the file.
    pub fn set(&self, text: Vec<u8>, start: u64) {
        self.text.replace(text);
        self.start.set(start);
    }

    /// Returns the position in the text of a position in the file.
    fn position(&self, at: u64) -> usize {
        let inside = at.checked_sub(self.start.get());
        let inside = inside.and_then(|inside| usize::try_from(inside).ok());
        inside.unwrap_or(usize::MAX)
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
        let start = self.position(transfer.at());
        let rest = text.get(start..).unwrap_or(&[]);
        let done = to.copy_start(rest);
        transfer.advance(done)
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        match &self.oom_score {
            Some(score) => adjust(score, transfer, &from)?,
            None => rename(transfer, &from)?,
        }
        transfer.advance(from.len())
    }

    fn read_limit(&self, _: &Io<'_>, _: Ino, at: u64) -> Result<u64, Errno> {
        let length = self.text.borrow().len();
        Ok(length.saturating_sub(self.position(at)) as u64)
    }

    fn llseek(&self, io: &mut Io<'_>, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        io.vfs.generic_llseek(id, 0, offset, whence)
    }
}

/// Sets `oom_score_adj` to the decimal number.
fn adjust(
    score: &Cell<OomScore>,
    transfer: &Transfer<'_>,
    from: &UserSlice<'_>,
) -> Result<(), Errno> {
    /// Longest text, bytes.
    const LONGEST: usize = 13;
    let text = from.first(from.len().min(LONGEST)).to_vec();
    let text = str::from_utf8(&text).map_err(|_| Errno::EINVAL)?;
    let adjustment = match text.trim().parse::<i16>() {
        Ok(adjustment @ -1000..=1000) => adjustment,
        _ => return Err(Errno::EINVAL),
    };
    let is_privileged = transfer.outside.cred().has(CAP_SYS_RESOURCE);
    let OomScore { least, .. } = score.get();
    if adjustment < least && !is_privileged {
        return Err(Errno::EACCES);
    }
    let least = if is_privileged { adjustment } else { least };
    score.set(OomScore { adjustment, least });
    Ok(())
}

/// Sets the name of the task that a file `comm` is about. As on Linux, a longer text is truncated,
/// and a line feed at its end is a part of the name.
fn rename(transfer: &mut Transfer<'_>, from: &UserSlice<'_>) -> Result<(), Errno> {
    const LONGEST: usize = 15;
    let node = Node::from_ino(transfer.ino).filter(|node| node.text() == Some(Text::Comm));
    let tid = node.and_then(Node::task).ok_or(Errno::EINVAL)?;
    let text = from.first(from.len().min(LONGEST)).to_vec();
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut name = [0; LONGEST + 1];
    name[..text.len()].copy_from_slice(text);
    transfer.outside.set_name(tid, name)
}
