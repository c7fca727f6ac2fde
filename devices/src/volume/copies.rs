//! Copies of files that the guest executes. The files of a volume may change at any time, but the
//! copies do not, so a translation of a copy stays valid.

use super::backend::{self, Errno};
use super::nodes::Identity;
use hartline_abi::volume::NodeAttributes;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest file that can be copied, bytes.
const MAX_LENGTH: u64 = 256 << 20;
/// Total length of all copies of a VM, bytes. They are kept until the VM ends.
const MAX_TOTAL: u64 = 1 << 30;
/// Most copies of a VM.
const MAX_COPIES: usize = 1024;
/// If a change follows another one within this time, the file's times may stay the same.
const SETTLED: Duration = Duration::from_secs(2);

/// A copy of a file.
#[derive(Debug)]
pub struct FileCopy {
    /// A memory file that is sealed against all changes.
    pub file: File,
    /// Length of the file, bytes. It is not 0.
    pub length: u64,
}

/// All copies of a VM.
#[derive(Debug, Default)]
pub struct Copies {
    copies: Mutex<Vec<Arc<FileCopy>>>,
}

/// The newest copy of each file, and the total length.
#[derive(Debug, Default)]
pub(super) struct Taken {
    newest: HashMap<Identity, Newest>,
    total: u64,
}

/// The newest copy of a file.
#[derive(Debug)]
struct Newest {
    number: u64,
    stamp: Stamp,
    /// Whether a later change of the file changes the stamp.
    settled: bool,
}

/// Length and times of a file, which change when its contents change.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Stamp {
    fn of(attributes: &NodeAttributes) -> Self {
        let time = |at: usize| (attributes.seconds[at], attributes.nanoseconds[at]);
        Self {
            size: attributes.size,
            modified: time(1),
            changed: time(2),
        }
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.saturating_sub(SETTLED).as_secs());
        u64::try_from(self.changed.0).is_ok_and(|changed| changed < seconds)
    }
}

impl Copies {
    /// The copy with a number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<Arc<FileCopy>> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.get(usize::try_from(number).ok()?).cloned()
    }

    /// Adds a copy. Returns its number.
    fn add(&self, copy: FileCopy) -> Result<u64, Errno> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if copies.len() >= MAX_COPIES {
            return Err(libc::ENOSPC);
        }
        copies.push(Arc::new(copy));
        Ok(copies.len() as u64 - 1)
    }
}

impl Taken {
    /// Copies a regular file, unless it has not changed since its last copy. Returns the number and
    /// the length of the copy.
    ///
    /// # Errors
    /// `EISDIR`, `ENOEXEC` for an empty file, `EFBIG`, `ENOSPC` if there are too many copies,
    /// `ETXTBSY` if the file changes meanwhile, or the host's.
    pub(super) fn take(
        &mut self,
        copies: &Copies,
        file: BorrowedFd<'_>,
        identity: Identity,
    ) -> Result<(u64, u64), Errno> {
        let (attributes, _) = backend::attributes(file)?;
        if attributes.mode & libc::S_IFMT == libc::S_IFDIR {
            return Err(libc::EISDIR);
        }
        let stamp = Stamp::of(&attributes);
        let settled = stamp.is_settled();
        let length = attributes.size;
        let last = self.newest.get(&identity);
        if let Some(last) = last
            && last.settled
            && last.stamp == stamp
        {
            return Ok((last.number, length));
        }
        match length {
            0 => return Err(libc::ENOEXEC),
            1..=MAX_LENGTH => {}
            _ => return Err(libc::EFBIG),
        }
        let size = usize::try_from(length).map_err(|_| libc::EFBIG)?;
        let bytes = backend::read_all(file, size)?;
        let (after, _) = backend::attributes(file)?;
        if bytes.len() != size || Stamp::of(&after) != stamp {
            return Err(libc::ETXTBSY);
        }
        let same = last.map(|last| last.number).filter(|&number| {
            let copy = copies.get(number).filter(|copy| copy.length == length);
            let old = copy.and_then(|copy| {
                use std::os::fd::AsFd;
                backend::read_all(copy.file.as_fd(), size).ok()
            });
            old.is_some_and(|old| old == bytes)
        });
        let number = match same {
            Some(number) => number,
            None => {
                let total = self.total + length;
                if total > MAX_TOTAL {
                    return Err(libc::ENOSPC);
                }
                let file = backend::sealed_memory_file(&bytes)?;
                let number = copies.add(FileCopy { file, length })?;
                self.total = total;
                number
            }
        };
        let newest = Newest {
            number,
            stamp,
            settled,
        };
        self.newest.insert(identity, newest);
        Ok((number, length))
    }
}
