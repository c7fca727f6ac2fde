//! How much volumes hold, and that they hold no more than they may.
//!
//! What counts is what a guest sees: the lengths of regular files, holes too, and a fixed
//! part for each file, directory and link. So the host's file system needs no quotas, and
//! whether something fits does not depend on it.

use super::host::{self, Errno};
use super::tree;
use hartline_abi::volume::NodeAttributes;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// What a file, directory or link counts besides its contents, bytes.
pub(super) const EACH: u64 = 4096;

/// What a directory of the host holds, bytes, as the limit of a volume counts it.
///
/// # Errors
/// It cannot be read.
pub fn measure(directory: &Path) -> io::Result<u64> {
    tree::measure(File::open(directory)?.as_fd())
}

/// What a volume holds and may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that it holds, as [`measure`] counts them.
    pub used: u64,
    /// Bytes that it may hold.
    pub limit: u64,
}

impl Usage {
    /// Bytes that still fit.
    pub fn left(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    fn take(&mut self, bytes: u64) -> Result<(), Errno> {
        match bytes <= self.left() {
            true => self.used += bytes,
            false if bytes > 0 => return Err(libc::ENOSPC),
            false => {}
        }
        Ok(())
    }

    fn give(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// The usage of each volume that has a limit.
#[derive(Debug)]
pub struct Limits(Vec<Option<Usage>>);

impl Limits {
    pub fn new(volumes: Vec<Option<Usage>>) -> Self {
        Self(volumes)
    }

    /// The usage of a volume, if it has a limit.
    pub fn of(&self, volume: usize) -> Option<Usage> {
        self.0.get(volume).copied().flatten()
    }

    fn of_mut(&mut self, volume: usize) -> Option<&mut Usage> {
        self.0.get_mut(volume)?.as_mut()
    }

    /// Does what changes the length of a file; `end` tells the length that it wants from the
    /// one that there is.
    ///
    /// # Errors
    /// `ENOSPC` if it does not fit; the action's.
    pub fn resize<T>(
        &mut self,
        volume: usize,
        file: BorrowedFd<'_>,
        end: impl FnOnce(u64) -> u64,
        action: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(usage) = self.of_mut(volume) else {
            return action();
        };
        let before = host::attributes(file)?.0.size;
        let most = end(before).max(before);
        usage.take(most - before)?;
        let result = action();
        let after = host::attributes(file).map_or(most, |(attributes, _)| attributes.size);
        usage.give(most.saturating_sub(after));
        result
    }

    /// Does what makes a file, directory or link.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn make<T>(
        &mut self,
        volume: usize,
        action: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(usage) = self.of_mut(volume) else {
            return action();
        };
        usage.take(EACH)?;
        let result = action();
        if result.is_err() {
            usage.give(EACH);
        }
        result
    }

    /// Whether what is in volume `from` may get into volume `to`: what counts for one would not
    /// count for the other.
    ///
    /// # Errors
    /// `EXDEV` if it may not.
    pub fn stay(&self, from: usize, to: usize) -> Result<(), Errno> {
        let is_limited = |volume| self.of(volume).is_some();
        match from != to && (is_limited(from) || is_limited(to)) {
            true => Err(libc::EXDEV),
            false => Ok(()),
        }
    }

    /// A file with these attributes is gone.
    pub fn gone(&mut self, volume: usize, file: &NodeAttributes) {
        let is_regular = file.mode & libc::S_IFMT == libc::S_IFREG;
        let length = if is_regular { file.size } else { 0 };
        if let Some(usage) = self.of_mut(volume) {
            usage.give(EACH.saturating_add(length));
        }
    }
}
