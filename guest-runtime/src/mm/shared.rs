//! Memory that several ranges can map: memory shared by processes, and contents of mapped files.

use super::page_table::Exhausted;
use super::space::SharedFrames;
use super::user_slice::{UserSlice, UserSliceMut};
use crate::convert::to_usize;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use core::cell::{Cell, RefCell};
use core::fmt::Debug;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;

/// The backing store of pages: a file outside the VM's memory.
pub trait PageStore: Debug {
    /// Reads at `offset`; bytes beyond the end of the file stay unchanged. Returns whether the read
    /// succeeded.
    fn read(&self, offset: u64, to: &mut [u8]) -> bool;

    /// Writes at `offset`. Returns whether the write succeeded.
    fn write(&self, offset: u64, from: &[u8]) -> bool;
}

/// A page.
#[derive(Debug, Clone, Copy)]
struct Page {
    frame: u64,
    /// A program may have stored to the page since it was read from the store.
    dirty: bool,
}

/// Memory that owns each of its frames, in addition to the address spaces that map it.
#[derive(Debug)]
pub struct SharedMemory {
    allocator: &'static SharedFrames,
    /// Pages by offset, which is a multiple of the page size.
    pages: RefCell<BTreeMap<u64, Page>>,
    /// Length, bytes: there are no pages beyond it.
    size: Cell<u64>,
    store: Option<Box<dyn PageStore>>,
}

impl SharedMemory {
    /// Zeros, without an end.
    #[must_use]
    pub fn anonymous(allocator: &'static SharedFrames) -> SharedMemory {
        SharedMemory::new(allocator, u64::MAX, None)
    }

    /// Memory of `size` bytes with the contents of `store`, or zeros.
    #[must_use]
    pub fn new(
        allocator: &'static SharedFrames,
        size: u64,
        store: Option<Box<dyn PageStore>>,
    ) -> SharedMemory {
        SharedMemory {
            allocator,
            pages: RefCell::default(),
            size: Cell::new(size),
            store,
        }
    }

    /// Whether stores to its pages must be tracked.
    #[must_use]
    pub fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Whether `offset` is beyond the end.
    #[must_use]
    pub fn is_beyond(&self, offset: u64) -> bool {
        offset >= self.size.get()
    }

    /// Sets the length. Later accesses to pages beyond it fault.
    pub fn set_size(&self, size: u64) {
        let old = self.size.replace(size);
        if size >= old {
            return;
        }
        self.discard(size.checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX)..u64::MAX);
        if !size.is_multiple_of(PAGE_SIZE) {
            self.fill(size..size.next_multiple_of(PAGE_SIZE), None);
        }
    }

    /// Frees whole pages; `range` must consist of pages. Returns their number.
    pub fn discard(&self, range: Range<u64>) -> u64 {
        let removed: alloc::vec::Vec<_> = (self.pages.borrow_mut())
            .extract_if(range, |_, _| true)
            .collect();
        let mut allocator = self.allocator.lock();
        for (_, page) in &removed {
            allocator.free_small(page.frame);
        }
        removed.len() as u64
    }

    /// The page at `offset`, if it exists.
    fn present(&self, offset: u64) -> Option<Page> {
        self.pages.borrow().get(&offset).copied()
    }

    /// Whether the page at `offset` exists.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.pages.borrow().contains_key(&offset)
    }

    /// Offset of the first existing page at or after `offset`.
    #[must_use]
    pub fn next(&self, offset: u64) -> Option<u64> {
        let pages = self.pages.borrow();
        pages.range(offset..).next().map(|(&offset, _)| offset)
    }

    /// Number of existing pages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.pages.borrow().len() as u64
    }

    /// The page at `offset`, which is created from the store, or with zeros, if it does not exist.
    ///
    /// # Errors
    /// If RAM is used up, or the store cannot be read.
    fn page(&self, offset: u64) -> Result<Page, Exhausted> {
        if let Some(page) = self.present(offset) {
            return Ok(page);
        }
        // The allocator is not locked below: the map may allocate memory too.
        let frame = self.allocator.lock().allocate_small().ok_or(Exhausted)?;
        let page = Page {
            frame,
            dirty: false,
        };
        if let Some(store) = &self.store {
            let mut bytes = vec![0; to_usize(PAGE_SIZE)];
            if !store.read(offset, &mut bytes) {
                self.allocator.lock().free_small(frame);
                return Err(Exhausted);
            }
            self.copy_to_frame(frame, 0, (&bytes).into());
        }
        self.pages.borrow_mut().insert(offset, page);
        Ok(page)
    }

    /// The frame at `offset`, with the caller as another owner, and whether stores to it need no
    /// further tracking.
    ///
    /// # Errors
    /// If RAM is used up, or the page cannot be read.
    pub(super) fn frame(&self, offset: u64) -> Result<(u64, bool), Exhausted> {
        let page = self.page(offset)?;
        self.allocator.lock().share_small(page.frame);
        Ok((page.frame, page.dirty || self.store.is_none()))
    }

    /// Creates the page at `offset`, if it does not exist.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn insert(&self, offset: u64) -> Result<(), Exhausted> {
        self.page(offset).map(|_| ())
    }

    /// Records that a program may store to the page at `offset`.
    pub(super) fn mark_dirty(&self, offset: u64) {
        if let Some(page) = self.pages.borrow_mut().get_mut(&offset) {
            page.dirty = true;
        }
    }

    /// Adds a frame that a process has mapped at `offset`.
    pub(super) fn adopt(&self, offset: u64, frame: u64) {
        let page = Page { frame, dirty: true };
        if self.pages.borrow_mut().insert(offset, page).is_none() {
            self.allocator.lock().share_small(frame);
        }
    }

    fn copy_to_frame(&self, frame: u64, within: u64, from: UserSlice<'_>) {
        debug_assert!(within + from.len() as u64 <= PAGE_SIZE);
        let ram = self.allocator.lock().ram();
        // SAFETY: inside a frame that this memory owns. The program may have it mapped, and then
        // sees the bytes as stores of another process.
        let mut to =
            unsafe { UserSliceMut::new(ram.pointer(frame).add(to_usize(within)), from.len()) };
        to.copy_from(from);
    }

    /// Copies from the page at `offset`, from byte `within`. Returns whether the page exists.
    pub fn copy_out(&self, offset: u64, within: u64, mut to: UserSliceMut<'_>) -> bool {
        let Some(page) = self.present(offset) else {
            return false;
        };
        debug_assert!(within + to.len() as u64 <= PAGE_SIZE);
        let ram = self.allocator.lock().ram();
        // SAFETY: as in `copy_to_frame`.
        let from =
            unsafe { UserSlice::new(ram.pointer(page.frame).add(to_usize(within)), to.len()) };
        to.copy_from(from);
        true
    }

    /// Copies into the page at `offset`, from byte `within`. Returns whether the page exists.
    pub fn copy_in(&self, offset: u64, within: u64, from: UserSlice<'_>) -> bool {
        let page = self.present(offset);
        if let Some(page) = page {
            self.copy_to_frame(page.frame, within, from);
        }
        page.is_some()
    }

    /// Copies `from`, or zeros, into the existing pages of `range`.
    fn fill(&self, range: Range<u64>, from: Option<UserSlice<'_>>) {
        const ZEROS: [u8; to_usize(PAGE_SIZE)] = [0; to_usize(PAGE_SIZE)];
        let mut at = range.start;
        while at < range.end {
            let (offset, within) = (at & !(PAGE_SIZE - 1), at % PAGE_SIZE);
            let length = (PAGE_SIZE - within).min(range.end - at);
            let part = match from {
                Some(from) => from
                    .skip(to_usize(at - range.start))
                    .first(to_usize(length)),
                None => (&ZEROS[..to_usize(length)]).into(),
            };
            self.copy_in(offset, within, part);
            at += length;
        }
    }

    /// Updates existing pages after a write to the store at `offset`.
    pub fn stored(&self, offset: u64, bytes: UserSlice<'_>) {
        self.fill(offset..offset + bytes.len() as u64, Some(bytes));
    }

    /// Overlays bytes that were read from the store at `offset` with the existing pages.
    pub fn overlay(&self, offset: u64, mut bytes: UserSliceMut<'_>) {
        let end = offset + bytes.len() as u64;
        let first = offset & !(PAGE_SIZE - 1);
        let dirty: alloc::vec::Vec<u64> = (self.pages.borrow().range(first..end))
            .filter(|(_, page)| page.dirty)
            .map(|(&at, _)| at)
            .collect();
        for at in dirty {
            let (from, to) = (at.max(offset), (at + PAGE_SIZE).min(end));
            let part = bytes.part(to_usize(from - offset), to_usize(to - from));
            self.copy_out(at, from - at, part);
        }
    }

    /// Writes the dirty pages of `range` back to the store. They stay dirty, because programs that
    /// have them mapped may continue to store. Returns whether all writes succeeded.
    pub fn write_back(&self, range: Range<u64>) -> bool {
        let Some(store) = &self.store else {
            return true;
        };
        let size = self.size.get();
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return true;
        }
        let dirty: alloc::vec::Vec<u64> = (self.pages.borrow().range(range))
            .filter(|(_, page)| page.dirty)
            .map(|(&at, _)| at)
            .collect();
        let mut bytes = vec![0; to_usize(PAGE_SIZE)];
        let mut complete = true;
        for at in dirty {
            let part = &mut bytes[..to_usize(PAGE_SIZE.min(size - at))];
            complete &= self.copy_out(at, 0, part.into()) && store.write(at, part);
        }
        complete
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // No program is left to report an error to, as on Linux.
        let _ = self.write_back(0..u64::MAX);
        self.discard(0..u64::MAX);
    }
}
