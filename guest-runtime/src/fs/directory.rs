//! Directories: the entries of the image in place, until the first change copies them into memory.
//!
//! Every entry keeps its cookie as long as it exists. So a program that reads a directory while it
//! changes sees each lasting entry exactly once.

use super::budget::{Budget, ENTRY_COST};
use super::tree::Tree;
use super::types::Ino;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use hartline_linux::errno::Errno;

/// Cookie of the first entry after `.` and `..`.
pub const FIRST_COOKIE: u64 = 2;

/// The inode of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Inode of the image, which may not be in memory yet.
    Image(u32),
    /// Inode in memory.
    Memory(Ino),
}

impl Target {
    /// The inode's number.
    pub fn ino(self) -> Ino {
        match self {
            Self::Image(index) => Ino::new(u64::from(index) + 1),
            Self::Memory(ino) => ino,
        }
    }
}

/// An entry: cookie, name, target.
pub type Entry<'a> = (u64, &'a [u8], Target);

/// Entries of one directory.
#[derive(Debug)]
pub enum Directory {
    /// As in the image: the directory's inode there.
    Image(u32),
    /// In memory.
    Memory(Entries),
}

/// Entries in memory.
#[derive(Debug)]
pub struct Entries {
    by_name: BTreeMap<Box<[u8]>, (Ino, u64)>,
    by_cookie: BTreeMap<u64, Box<[u8]>>,
    next_cookie: u64,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
        }
    }
}

fn entry_cost(name: &[u8]) -> u64 {
    ENTRY_COST + 2 * name.len() as u64
}

impl Directory {
    /// An empty directory.
    pub fn empty() -> Self {
        Self::Memory(Entries::default())
    }

    /// Looks `name` up.
    ///
    /// # Errors
    /// `EIO` for a damaged image.
    pub fn find(&self, tree: Option<&Tree>, name: &[u8]) -> Result<Option<Target>, Errno> {
        match self {
            Self::Memory(entries) => Ok(entries
                .by_name
                .get(name)
                .map(|&(ino, _)| Target::Memory(ino))),
            Self::Image(index) => {
                let tree = tree.ok_or(Errno::EIO)?;
                let found = tree.find(&tree.inode(*index)?, name)?;
                Ok(found.map(Target::Image))
            }
        }
    }

    /// The first entry whose cookie is at least `cookie`: its cookie, name and target.
    ///
    /// # Errors
    /// `EIO` for a damaged image.
    pub fn next<'a>(
        &'a self,
        tree: Option<&Tree>,
        cookie: u64,
    ) -> Result<Option<Entry<'a>>, Errno> {
        match self {
            Self::Memory(entries) => Ok(entries.next(cookie)),
            Self::Image(index) => {
                let tree = tree.ok_or(Errno::EIO)?;
                let inode = tree.inode(*index)?;
                let at = cookie.saturating_sub(FIRST_COOKIE);
                if at >= inode.size {
                    return Ok(None);
                }
                let (target, name) = tree.entry(&inode, at)?;
                Ok(Some((at + FIRST_COOKIE, name, Target::Image(target))))
            }
        }
    }

    /// Whether the directory is empty.
    ///
    /// # Errors
    /// `EIO` for a damaged image.
    pub fn is_empty(&self, tree: Option<&Tree>) -> Result<bool, Errno> {
        Ok(self.next(tree, FIRST_COOKIE)?.is_none())
    }
}

impl Entries {
    /// Empty entries with `count` reserved cookies, for entries of the image: there, cookies are
    /// indices.
    pub fn copied(count: u64) -> Self {
        Self {
            next_cookie: count.saturating_add(FIRST_COOKIE),
            ..Self::default()
        }
    }

    /// Adds an entry with its cookie from the image.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn copy(
        &mut self,
        budget: &mut Budget,
        name: &[u8],
        ino: Ino,
        cookie: u64,
    ) -> Result<(), Errno> {
        budget.charge(entry_cost(name))?;
        if let Some((_, old)) = self.by_name.insert(name.into(), (ino, cookie)) {
            self.by_cookie.remove(&old);
            budget.refund(entry_cost(name));
        }
        self.by_cookie.insert(cookie, name.into());
        Ok(())
    }

    /// Adds an entry that does not exist yet.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn insert(&mut self, budget: &mut Budget, name: &[u8], ino: Ino) -> Result<(), Errno> {
        let cookie = self.next_cookie;
        self.copy(budget, name, ino, cookie)?;
        self.next_cookie += 1;
        Ok(())
    }

    /// Changes the inode of an existing entry.
    pub fn replace(&mut self, name: &[u8], ino: Ino) {
        if let Some(entry) = self.by_name.get_mut(name) {
            entry.0 = ino;
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, budget: &mut Budget, name: &[u8]) {
        if let Some((_, cookie)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
            budget.refund(entry_cost(name));
        }
    }

    /// Releases the memory of all entries.
    pub fn clear(&mut self, budget: &mut Budget) {
        for name in self.by_name.keys() {
            budget.refund(entry_cost(name));
        }
        *self = Self::default();
    }

    /// The first entry whose cookie is at least `cookie`.
    pub(super) fn next(&self, cookie: u64) -> Option<Entry<'_>> {
        let (&cookie, name) = self.by_cookie.range(cookie..).next()?;
        let &(ino, _) = self.by_name.get(name)?;
        Some((cookie, name, Target::Memory(ino)))
    }
}
