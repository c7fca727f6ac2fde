//! Stores to code that the program made, if the program does not announce them.
//!
//! RISC-V lets a store to code take effect at the next `fence.i` ("Zifencei"), and Linux has
//! `riscv_flush_icache` for all harts. Some JIT compilers use neither of them: on most harts, much other code is
//! executed before the patched code, and displaces it from the instruction cache. Decoded instructions and
//! translations are kept much longer. So the pages that a program may store to and whose code is decoded or
//! translated are write-protected here, unless the program has announced new code there once. The first store to
//! such a page ends its protection and is noticed.

use super::page_table::{Window, pages_in};
use super::space::{Access, AddressSpace, Fault};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;

/// Most ranges in which stores are announced that are known. If there are more, all are.
const MOST_ANNOUNCED: usize = 64;

/// What an address space knows of the code that its program made.
#[derive(Debug, Clone, Default)]
pub struct MadeCode {
    /// Start addresses of write-protected pages. Their leaves are small and not writable.
    watched: BTreeSet<u64>,
    /// Whole pages in which the program announces new code. No two ranges overlap or touch.
    announced: Vec<Range<u64>>,
    /// The program announces all new code: it executes `fence.i`, or uses many places.
    announces_all: bool,
    /// The program has stored to watched pages.
    has_changed: bool,
}

impl MadeCode {
    /// Whether stores to the page at `address` are noticed.
    pub(super) fn is_watched(&self, address: u64) -> bool {
        !self.watched.is_empty() && self.watched.contains(&(address & !(PAGE_SIZE - 1)))
    }

    /// Notices a store to the page at `address`, which becomes writable.
    pub(super) fn store(&mut self, address: u64) {
        if !self.watched.is_empty() && self.watched.remove(&(address & !(PAGE_SIZE - 1))) {
            self.has_changed = true;
        }
    }

    /// Forgets the pages of `range`, which are removed.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.unwatch(range.clone());
        let is_apart = |known: &Range<u64>| known.end <= range.start || range.end <= known.start;
        if self.announced.iter().all(is_apart) {
            return;
        }
        let rest = self.announced.drain(..).flat_map(|known| {
            let before = known.start..known.end.min(range.start);
            let after = known.start.max(range.end)..known.end;
            [before, after]
        });
        self.announced = rest.filter(|rest| !rest.is_empty()).collect();
        if self.announced.len() > MOST_ANNOUNCED {
            self.announce_all();
        }
    }

    fn unwatch(&mut self, range: Range<u64>) {
        self.watched.extract_if(range, |_| true).for_each(drop);
    }

    /// Whether the program announces new code in all of `range`.
    fn announces(&self, range: &Range<u64>) -> bool {
        let holds = |known: &Range<u64>| known.start <= range.start && range.end <= known.end;
        self.announces_all || self.announced.iter().any(holds)
    }

    /// Records that the program announces new code in `range`, whole pages.
    fn announce(&mut self, range: Range<u64>) {
        self.unwatch(range.clone());
        let mut whole = range;
        self.announced.retain(|known| {
            let touches = known.start <= whole.end && whole.start <= known.end;
            if touches {
                whole = known.start.min(whole.start)..known.end.max(whole.end);
            }
            !touches
        });
        match self.announced.len() {
            MOST_ANNOUNCED.. => self.announce_all(),
            _ => self.announced.push(whole),
        }
    }

    /// Records that the program announces all new code.
    fn announce_all(&mut self) {
        self.announced.clear();
        self.watched.clear();
        self.announces_all = true;
    }
}

impl AddressSpace {
    /// Notices stores from now on to the pages of `range` that the program may store to, unless it announces new code
    /// there. Returns whether there are such pages.
    ///
    /// # Errors
    /// If part of it is not readable, or RAM is used up.
    pub fn watch_code(&mut self, range: Range<u64>) -> Result<bool, Fault> {
        let before = self.made_code.watched.len();
        let pages = pages_in(range.start & !(PAGE_SIZE - 1)..range.end);
        let watched = pages.into_iter().try_fold(false, |is_watched, page| {
            let is_to_watch = self.is_to_watch(page)?;
            if is_to_watch && !self.made_code.is_watched(page) {
                self.protect_code(page)?;
            }
            Ok(is_watched || is_to_watch)
        });
        // After an error too: the pages before it are protected.
        if self.made_code.watched.len() != before {
            self.flush();
        }
        watched
    }

    /// Whether the program may store to the page, and does not announce new code there.
    fn is_to_watch(&self, page: u64) -> Result<bool, Fault> {
        let (_, vma) = self.vmas.find(page).ok_or(Fault::NotMapped)?;
        let is_silent = !self.made_code.announces(&(page..page + PAGE_SIZE));
        Ok(vma.protection.writable() && is_silent)
    }

    /// Write-protects a page. The caller flushes.
    fn protect_code(&mut self, page: u64) -> Result<(), Fault> {
        self.prepare(page, 1, Access::Read)?;
        let frames = self.frames;
        self.table.split(&mut frames.lock(), page)?;
        if let Window::Table(table) = self.table.window(page)
            && let Some(leaf) = self.table.small(table, page)
        {
            self.table.set_small(table, page, Some(leaf.read_only()));
            self.made_code.watched.insert(page);
        }
        Ok(())
    }

    /// Records that the program announces new code everywhere.
    pub fn announce_all_code(&mut self) {
        if !self.made_code.announces_all {
            self.made_code.announce_all();
        }
    }

    /// Records that the program announces new code in the pages of `range`.
    pub fn announce_code(&mut self, range: Range<u64>) {
        let pages = range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE);
        if !self.made_code.announces(&pages) {
            self.made_code.announce(pages);
        }
    }

    /// Whether the program has stored to watched pages.
    #[must_use]
    #[inline]
    pub fn has_changed_code(&self) -> bool {
        self.made_code.has_changed
    }

    /// As [`has_changed_code`](Self::has_changed_code), since the last call.
    pub fn take_changed_code(&mut self) -> bool {
        core::mem::take(&mut self.made_code.has_changed)
    }
}
