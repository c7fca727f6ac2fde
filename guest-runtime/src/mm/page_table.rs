//! x86-64 page tables of the program's half of the address space, edited through the linear map of
//! RAM.
//!
//! Entries have the accessed and dirty bits set, are never executable, and are writable if the
//! program may write. A page without permissions keeps its frame in an entry that is not present.

use super::Protection;
use super::frames::{Frames, Ram};
use crate::convert::to_usize;
use core::ops::Range;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, RAM_GPA, USER_END};
use hartline_abi::paging::{ACCESSED, ADDRESS, DIRTY, HUGE, NO_EXECUTE, PRESENT, USER, WRITABLE};

/// Software bit: the entry has a frame, present or not.
const OWNED: u64 = 1 << 9;

const TABLE: u64 = PRESENT | WRITABLE | USER | ACCESSED;

/// A leaf entry: a frame and the permissions of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf(u64);

impl Leaf {
    /// The leaf for the frame at `frame`.
    #[must_use]
    pub fn new(frame: u64, protection: Protection) -> Leaf {
        let mut bits = (RAM_GPA + frame) | OWNED | USER | ACCESSED | DIRTY | NO_EXECUTE;
        if protection.readable() {
            bits |= PRESENT;
        }
        if protection.writable() {
            bits |= WRITABLE;
        }
        Leaf(bits)
    }

    /// The frame.
    #[must_use]
    pub fn frame(self) -> u64 {
        (self.0 & ADDRESS) - RAM_GPA
    }

    /// This leaf with another frame.
    #[must_use]
    pub fn with_frame(self, frame: u64) -> Leaf {
        Leaf(self.0 & !ADDRESS | (RAM_GPA + frame))
    }

    /// This leaf without write permission, for a frame with several owners.
    #[must_use]
    pub fn read_only(self) -> Leaf {
        Leaf(self.0 & !WRITABLE)
    }

    /// This leaf, not present.
    #[must_use]
    pub fn hidden(self) -> Leaf {
        Leaf(self.0 & !PRESENT)
    }

    /// This leaf, present.
    #[must_use]
    pub fn shown(self) -> Leaf {
        Leaf(self.0 | PRESENT)
    }

    /// Whether the CPU can load through this leaf.
    #[must_use]
    pub fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Whether the CPU can store through this leaf.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.0 & (PRESENT | WRITABLE) == PRESENT | WRITABLE
    }
}

/// The contents of a 2 MiB window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// No pages.
    Empty,
    /// One huge leaf.
    Huge(Leaf),
    /// Small leaves: the offset of their table of 512 entries.
    Table(u64),
}

/// The page tables of an address space.
#[derive(Debug)]
pub struct PageTable {
    ram: Ram,
    root: u64,
}

/// RAM is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// The addresses of the pages that begin in `range`, which starts at a page boundary.
pub(super) fn pages_in(range: Range<u64>) -> impl Iterator<Item = u64> {
    range.step_by(to_usize(PAGE_SIZE))
}

impl PageTable {
    /// The tables under the top-level table at `root`, an offset into RAM.
    ///
    /// # Safety
    /// `root` must be a top-level table whose entries for the program's half were made by this
    /// type.
    #[must_use]
    pub const unsafe fn new(ram: Ram, root: u64) -> PageTable {
        PageTable { ram, root }
    }

    /// Creates another top-level table with the same mappings outside the program's half.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn sibling(&self, frames: &mut Frames) -> Result<PageTable, Exhausted> {
        let root = frames.allocate_small().ok_or(Exhausted)?;
        let mut sibling = PageTable {
            ram: self.ram,
            root,
        };
        // The first entry maps the whole program's half.
        const _: () = assert!(USER_END <= 1 << 39);
        for index in 1..512 {
            sibling.store(root, index, self.load(self.root, index));
        }
        Ok(sibling)
    }

    /// Creates the tables for `range`, outside the program's half, that all
    /// [siblings](Self::sibling) share, so that later mappings there are visible in all of them.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn share_outside(
        &mut self,
        frames: &mut Frames,
        range: Range<u64>,
    ) -> Result<(), Exhausted> {
        for index in range.start >> 39..=(range.end - 1) >> 39 {
            self.child_or_new(frames, self.root, index)?;
        }
        Ok(())
    }

    /// Guest-physical address of the top-level table, for CR3.
    #[must_use]
    pub fn address(&self) -> u64 {
        RAM_GPA + self.root
    }

    /// Frees all frames and tables of the program's half, and the top-level table. No CPU may use
    /// them any more.
    pub fn tear_down(self, frames: &mut Frames) {
        if let Some(pointers) = self.child(self.root, 0) {
            for index in 0..512 {
                if let Some(directory) = self.child(pointers, index) {
                    self.tear_down_directory(frames, directory);
                }
            }
            frames.free_table(pointers);
        }
        frames.free_table(self.root);
    }

    fn tear_down_directory(&self, frames: &mut Frames, directory: u64) {
        for index in 0..512 {
            match decode(self.load(directory, index)) {
                Window::Empty => {}
                Window::Huge(leaf) => frames.free_huge(leaf.frame()),
                Window::Table(table) => {
                    for page in 0..512 {
                        let entry = self.load(table, page);
                        if entry != 0 {
                            frames.free_small(Leaf(entry).frame());
                        }
                    }
                    frames.free_table(table);
                }
            }
        }
        frames.free_table(directory);
    }

    fn slot(&self, table: u64, index: u64) -> *mut u64 {
        self.ram.pointer(table + index % 512 * 8).cast()
    }

    fn load(&self, table: u64, index: u64) -> u64 {
        // SAFETY: a table is a frame that this type owns; the CPU writes only accessed and dirty
        // bits, which are already set.
        unsafe { self.slot(table, index).read_volatile() }
    }

    fn store(&mut self, table: u64, index: u64, entry: u64) {
        // SAFETY: as `load`; the change concerns the program's half only.
        unsafe { self.slot(table, index).write_volatile(entry) }
    }

    /// The table that entry `index` of `table` points to.
    fn child(&self, table: u64, index: u64) -> Option<u64> {
        let entry = self.load(table, index);
        (entry & PRESENT != 0).then(|| (entry & ADDRESS) - RAM_GPA)
    }

    fn child_or_new(
        &mut self,
        frames: &mut Frames,
        table: u64,
        index: u64,
    ) -> Result<u64, Exhausted> {
        if let Some(child) = self.child(table, index) {
            return Ok(child);
        }
        let child = frames.allocate_small().ok_or(Exhausted)?;
        self.store(table, index, (RAM_GPA + child) | TABLE);
        Ok(child)
    }

    /// The page directory (one entry per 2 MiB) for `address`.
    fn directory(&self, address: u64) -> Option<u64> {
        debug_assert!(address < USER_END);
        let pointers = self.child(self.root, address >> 39)?;
        self.child(pointers, address >> 30)
    }

    fn directory_or_new(&mut self, frames: &mut Frames, address: u64) -> Result<u64, Exhausted> {
        debug_assert!(address < USER_END);
        let pointers = self.child_or_new(frames, self.root, address >> 39)?;
        self.child_or_new(frames, pointers, address >> 30)
    }

    /// The contents of the window of `address`.
    #[must_use]
    pub fn window(&self, address: u64) -> Window {
        match self.directory(address) {
            None => Window::Empty,
            Some(directory) => decode(self.load(directory, address >> 21)),
        }
    }

    /// The leaf for `address`, if it has a frame.
    #[must_use]
    pub fn leaf(&self, address: u64) -> Option<Leaf> {
        self.page(address).map(|(leaf, _)| leaf)
    }

    /// The leaf for `address`, if it has a frame, with the end of its page.
    #[must_use]
    pub fn page(&self, address: u64) -> Option<(Leaf, u64)> {
        let (leaf, size) = match self.window(address) {
            Window::Empty => return None,
            Window::Huge(leaf) => (leaf, HUGE_PAGE_SIZE),
            Window::Table(table) => (self.small(table, address)?, PAGE_SIZE),
        };
        Some((leaf, (address & !(size - 1)) + size))
    }

    /// Offset into RAM of the byte at `address`, if it has a frame.
    #[must_use]
    pub fn translate(&self, address: u64) -> Option<u64> {
        let size = match self.window(address) {
            Window::Huge(_) => HUGE_PAGE_SIZE,
            _ => PAGE_SIZE,
        };
        Some(self.leaf(address)?.frame() + address % size)
    }

    /// Maps a huge leaf in the empty window of `address`.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn map_huge(
        &mut self,
        frames: &mut Frames,
        address: u64,
        leaf: Leaf,
    ) -> Result<(), Exhausted> {
        let directory = self.directory_or_new(frames, address)?;
        debug_assert_eq!(self.load(directory, address >> 21), 0);
        self.store(directory, address >> 21, leaf.0 | HUGE);
        Ok(())
    }

    /// The table of small leaves for the window of `address`, which must not contain a huge leaf.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn small_table(&mut self, frames: &mut Frames, address: u64) -> Result<u64, Exhausted> {
        let directory = self.directory_or_new(frames, address)?;
        self.child_or_new(frames, directory, address >> 21)
    }

    /// Maps `length` bytes of physical memory outside RAM, from `physical`, read-only at `address`
    /// outside the program's half, with huge pages where they fit. All values are multiples of the
    /// page size; nothing may be mapped there.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn map_outside(
        &mut self,
        frames: &mut Frames,
        address: u64,
        physical: Range<u64>,
        executable: bool,
    ) -> Result<(), Exhausted> {
        let flags = PRESENT | USER | ACCESSED | DIRTY | if executable { 0 } else { NO_EXECUTE };
        let mut at = physical.start;
        while at < physical.end {
            let virt = address + (at - physical.start);
            let pointers = self.child_or_new(frames, self.root, virt >> 39)?;
            let directory = self.child_or_new(frames, pointers, virt >> 30)?;
            let is_aligned = (at | virt).is_multiple_of(HUGE_PAGE_SIZE);
            if is_aligned && physical.end - at >= HUGE_PAGE_SIZE {
                self.store(directory, virt >> 21, at | flags | HUGE);
                at += HUGE_PAGE_SIZE;
            } else {
                let table = self.child_or_new(frames, directory, virt >> 21)?;
                self.store(table, virt >> 12, at | flags);
                at += PAGE_SIZE;
            }
        }
        Ok(())
    }

    /// Maps a frame of RAM writable at `address` outside the program's half.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn map_private(
        &mut self,
        frames: &mut Frames,
        address: u64,
        frame: u64,
    ) -> Result<(), Exhausted> {
        let pointers = self.child_or_new(frames, self.root, address >> 39)?;
        let directory = self.child_or_new(frames, pointers, address >> 30)?;
        let table = self.child_or_new(frames, directory, address >> 21)?;
        self.store(
            table,
            address >> 12,
            Leaf::new(frame, Protection::READ_WRITE).0,
        );
        Ok(())
    }

    /// Maps a frame of RAM read-only and executable at `address` outside the program's half, where
    /// something may be mapped: then TLBs must be flushed.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn map_code(
        &mut self,
        frames: &mut Frames,
        address: u64,
        frame: u64,
    ) -> Result<(), Exhausted> {
        let pointers = self.child_or_new(frames, self.root, address >> 39)?;
        let directory = self.child_or_new(frames, pointers, address >> 30)?;
        let entry = self.load(directory, address >> 21);
        if entry & PRESENT != 0 && entry & HUGE != 0 {
            let table = frames.allocate_small().ok_or(Exhausted)?;
            for index in 0..512 {
                self.store(table, index, (entry & !HUGE) + index * PAGE_SIZE);
            }
            self.store(directory, address >> 21, (RAM_GPA + table) | TABLE);
        }
        let physical = RAM_GPA + frame;
        let page = physical..physical + PAGE_SIZE;
        self.map_outside(frames, address, page, true)
    }

    /// The small leaf for `address` in the table of its window.
    #[must_use]
    pub fn small(&self, table: u64, address: u64) -> Option<Leaf> {
        let entry = self.load(table, address >> 12);
        (entry != 0).then_some(Leaf(entry))
    }

    /// Sets or clears the small leaf for `address` in the table of its window.
    pub fn set_small(&mut self, table: u64, address: u64, leaf: Option<Leaf>) {
        self.store(table, address >> 12, leaf.map_or(0, |leaf| leaf.0));
    }

    /// Makes the leaf for `address` present again, if it is a small one.
    pub fn show(&mut self, address: u64) {
        if let Window::Table(table) = self.window(address)
            && let Some(leaf) = self.small(table, address)
        {
            self.set_small(table, address, Some(leaf.shown()));
        }
    }

    /// Replaces a huge leaf by 512 small ones with the same frames.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn split(&mut self, frames: &mut Frames, address: u64) -> Result<(), Exhausted> {
        let Window::Huge(leaf) = self.window(address) else {
            return Ok(());
        };
        let table = frames.allocate_small().ok_or(Exhausted)?;
        for index in 0..512 {
            self.store(table, index, (leaf.0 & !HUGE) + index * PAGE_SIZE);
        }
        let directory = self.directory_or_new(frames, address)?;
        self.store(directory, address >> 21, (RAM_GPA + table) | TABLE);
        Ok(())
    }

    /// Removes the contents of the window of `address`; the caller owns them.
    pub fn take_window(&mut self, address: u64) -> Window {
        let Some(directory) = self.directory(address) else {
            return Window::Empty;
        };
        let entry = self.load(directory, address >> 21);
        if entry != 0 {
            self.store(directory, address >> 21, 0);
        }
        decode(entry)
    }

    /// The 2 MiB windows that overlap `range` and are not empty: the part of the range in each, and
    /// its contents.
    pub fn windows(&self, range: Range<u64>) -> Windows<'_> {
        Windows { table: self, range }
    }
}

fn decode(entry: u64) -> Window {
    if entry == 0 {
        Window::Empty
    } else if entry & HUGE != 0 {
        Window::Huge(Leaf(entry & !HUGE))
    } else {
        Window::Table((entry & ADDRESS) - RAM_GPA)
    }
}

/// Iterator of [`PageTable::windows`].
#[derive(Debug)]
pub struct Windows<'a> {
    table: &'a PageTable,
    range: Range<u64>,
}

impl Iterator for Windows<'_> {
    type Item = (Range<u64>, Window);

    fn next(&mut self) -> Option<Self::Item> {
        while self.range.start < self.range.end {
            let start = self.range.start;
            let directory = self.table.directory(start);
            let step = match directory {
                None => 1 << 30,
                Some(_) => HUGE_PAGE_SIZE,
            };
            self.range.start = (start & !(step - 1)) + step;
            let window = self.table.window(start);
            if window != Window::Empty {
                return Some((start..self.range.start.min(self.range.end), window));
            }
        }
        None
    }
}
