//! The address space: the map of ranges and the page tables, which are filled when pages are first
//! touched.

use super::frames::Frames;
use super::limits::Limits;
use super::lock::Populate;
use super::made_code::MadeCode;
use super::page_table::{Exhausted, Leaf, PageTable, Window, pages_in};
use super::shared::SharedMemory;
use super::user_slice::UserSliceMut;
use super::userfault::UserFaults;
use super::vma::{Backing, Protection, Vma, VmaTree};
use crate::arch::cpus::Processors;
use crate::convert::to_usize;
use alloc::rc::Rc;
use core::ops::Range;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, USER_END};
use hartline_linux::errno::Errno;
use spin::Mutex;

/// The frame allocator, shared with the runtime's heap.
pub type SharedFrames = Mutex<Frames>;

/// Kind of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

impl Access {
    /// Whether a range with these permissions allows the access.
    #[must_use]
    pub fn allowed_by(self, protection: Protection) -> bool {
        match self {
            Access::Read => protection.readable(),
            Access::Write => protection.writable(),
            Access::Execute => protection.executable(),
        }
    }
}

/// The reason why an access fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The address is not mapped (`SEGV_MAPERR`).
    NotMapped,
    /// The permissions forbid it (`SEGV_ACCERR`).
    NotPermitted,
    /// The mapped file ends before this page (`BUS_ADRERR`).
    BeyondEnd,
    /// RAM is used up.
    Exhausted,
    /// The program handles the fault itself (`userfaultfd`).
    OfProgram,
}

impl From<Exhausted> for Fault {
    fn from(_: Exhausted) -> Fault {
        Fault::Exhausted
    }
}

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Errno {
        match fault {
            Fault::NotMapped | Fault::NotPermitted | Fault::BeyondEnd | Fault::OfProgram => {
                Errno::EFAULT
            }
            Fault::Exhausted => Errno::ENOMEM,
        }
    }
}

/// The address space of a program.
#[derive(Debug)]
pub struct AddressSpace {
    pub(super) vmas: VmaTree,
    pub(super) table: PageTable,
    pub(super) frames: &'static SharedFrames,
    pub(super) processors: &'static Processors,
    pub(super) brk: Range<u64>,
    /// Ranges without a hint are placed below this address.
    pub(super) map_top: u64,
    /// The process's limits.
    pub(super) limits: Limits,
    /// Flags of new ranges (`mlockall(MCL_FUTURE)`), and whether their pages are filled at once.
    pub(super) future_lock: Option<Populate>,
    /// Faults that the program handles.
    pub(super) user_faults: UserFaults,
    /// Code that the program made.
    pub(super) made_code: MadeCode,
    /// Pages have new frames since the last [`take_replaced`](Self::take_replaced).
    pub(super) has_replaced: bool,
}

impl AddressSpace {
    /// An empty address space for use by `processors`.
    #[must_use]
    pub fn new(
        table: PageTable,
        frames: &'static SharedFrames,
        processors: &'static Processors,
    ) -> AddressSpace {
        AddressSpace {
            vmas: VmaTree::default(),
            table,
            frames,
            processors,
            brk: 0..0,
            map_top: USER_END,
            limits: Limits::NONE,
            future_lock: None,
            user_faults: UserFaults::default(),
            made_code: MadeCode::default(),
            has_replaced: false,
        }
    }

    /// Makes this CPU use this address space.
    pub fn load(&self) {
        (self.processors.load)(self.table.address());
    }

    /// Address of the page tables, by which [`crate::arch::cpus`] knows the CPUs that use them.
    pub(crate) fn table_address(&self) -> u64 {
        self.table.address()
    }

    /// Flushes the TLB of all CPUs that use this address space. Frames of removed translations must
    /// not be reused before that.
    pub(super) fn flush(&self) {
        (self.processors.flush)(self.table.address());
    }

    /// The mapped ranges.
    #[must_use]
    pub fn vmas(&self) -> &VmaTree {
        &self.vmas
    }

    /// The frame allocator.
    #[must_use]
    pub fn frames(&self) -> &'static SharedFrames {
        self.frames
    }

    /// Checks that the program may access `length` bytes at `address`, and fills the pages.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn prepare(&mut self, address: u64, length: u64, access: Access) -> Result<(), Fault> {
        let end = address.checked_add(length).ok_or(Fault::NotMapped)?;
        if end > USER_END {
            return Err(Fault::NotMapped);
        }
        let mut at = address;
        while at < end {
            let Some((start, vma)) = self.vmas.find(at) else {
                self.grow_down(at)?;
                continue;
            };
            if !access.allowed_by(vma.protection) {
                return Err(Fault::NotPermitted);
            }
            let (range, vma_end) = (start..vma.end, vma.end);
            let takes_missing = self.user_faults.takes_missing(vma);
            let memory = match &vma.backing {
                Backing::Shared(memory, offset) => Some((Rc::clone(memory), *offset)),
                _ => None,
            };
            let stop = end.min(vma_end);
            while at < stop {
                at = match self.table.page(at) {
                    Some((leaf, _)) if access == Access::Write && !leaf.is_writable() => {
                        if self.user_faults.is_protected(at) {
                            return Err(Fault::OfProgram);
                        }
                        self.made_code.store(at);
                        self.unshare(at)?;
                        at
                    }
                    Some((leaf, page_end)) if !leaf.is_present() => {
                        self.table.show(at);
                        page_end
                    }
                    Some((_, page_end)) => page_end,
                    None if takes_missing => return Err(Fault::OfProgram),
                    None => {
                        match &memory {
                            None => self.populate(at)?,
                            Some((memory, offset)) => {
                                self.populate_shared(at, range.clone(), memory, *offset)?;
                            }
                        }
                        at
                    }
                };
            }
            at = stop;
        }
        Ok(())
    }

    /// Whether prepared stores have replaced frames since the last call. This CPU may still load
    /// from the old frames until it stores to these pages.
    pub(crate) fn take_replaced(&mut self) -> bool {
        core::mem::take(&mut self.has_replaced)
    }

    /// Whether the page tables currently allow the access at `address`.
    #[must_use]
    pub fn is_present(&self, address: u64, access: Access) -> bool {
        let leaf = (address < USER_END).then(|| self.table.leaf(address));
        leaf.flatten().is_some_and(|leaf| match access {
            Access::Write => leaf.is_writable(),
            Access::Read | Access::Execute => leaf.is_present(),
        })
    }

    /// Checks that an access at `address` is allowed, without filling pages.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn check(&self, address: u64, access: Access) -> Result<(), Fault> {
        let (_, vma) = self.vmas.find(address).ok_or(Fault::NotMapped)?;
        if access.allowed_by(vma.protection) {
            Ok(())
        } else {
            Err(Fault::NotPermitted)
        }
    }

    /// Writes the initial contents of a mapped range, whatever its permissions are.
    ///
    /// # Errors
    /// If part of it is not mapped, or RAM is used up.
    pub fn fill(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let ram = self.frames.lock().ram();
        let mut rest = bytes;
        let mut at = address;
        while !rest.is_empty() {
            let (_, vma) = self.vmas.find(at).ok_or(Fault::NotMapped)?;
            let Some(offset) = self.table.translate(at) else {
                debug_assert!(!matches!(vma.backing, Backing::Shared(..)));
                self.populate(at)?;
                continue;
            };
            let room = to_usize(PAGE_SIZE - at % PAGE_SIZE);
            let (part, next) = rest.split_at(room.min(rest.len()));
            // SAFETY: the frame belongs to this page, and the part does not cross its end.
            let mut to = unsafe { UserSliceMut::new(ram.pointer(offset), part.len()) };
            to.copy_from(part);
            at += part.len() as u64;
            rest = next;
        }
        Ok(())
    }

    /// Writes to memory of a program whose address space this vCPU has not loaded: no translation of it is in the way.
    ///
    /// # Errors
    /// The reason why the program may not write there, or RAM is used up.
    #[inline(never)]
    pub fn write_unloaded(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.prepare(address, bytes.len() as u64, Access::Write)?;
        self.take_replaced();
        self.fill(address, bytes)
    }

    /// Offset into RAM of the byte at `address`, if its page is resident.
    #[must_use]
    pub fn ram_offset(&self, address: u64) -> Option<u64> {
        (address < USER_END).then(|| self.table.translate(address))?
    }

    /// Whether the page at `address` is resident.
    #[must_use]
    pub fn is_resident(&self, address: u64) -> bool {
        address < USER_END && self.table.leaf(address).is_some()
    }

    /// Fills pages of the range around the missing page at `address`. If the range covers the whole
    /// 2 MiB window and RAM has a huge frame, that is a huge page; otherwise all missing pages in the
    /// window, since a fault costs more than filling them.
    pub(super) fn populate(&mut self, address: u64) -> Result<(), Fault> {
        let (start, vma) = self.vmas.find(address).ok_or(Fault::NotMapped)?;
        let end = vma.pages_end(start);
        if address >= end {
            return Err(Fault::BeyondEnd);
        }
        let frames = self.frames;
        let mut frames = frames.lock();
        let window = address & !(HUGE_PAGE_SIZE - 1);
        let part = start.max(window)..end.min(window + HUGE_PAGE_SIZE);
        let whole = part == (window..window + HUGE_PAGE_SIZE);
        if whole
            && self.table.window(window) == Window::Empty
            && let Some(frame) = frames.allocate_huge()
        {
            if let Some(bytes) = file_bytes(vma, start, &part) {
                frames.copy_file(bytes, frame);
            }
            let leaf = Leaf::new(frame, vma.protection);
            return Ok(self.table.map_huge(&mut frames, window, leaf)?);
        }
        let table = self.table.small_table(&mut frames, address)?;
        // The requested page first: it is filled, and the others are optional.
        let page = address & !(PAGE_SIZE - 1);
        let frame = frames.allocate_small().ok_or(Exhausted)?;
        let mut run = Run::new(page, frame);
        // Other vCPUs use this table: it gets no frame that is not filled.
        let show = |frames: &mut Frames, run: &Run, map: &mut PageTable| {
            run.copy(frames, vma, start);
            for (page, frame) in run.frames() {
                map.set_small(table, page, Some(Leaf::new(frame, vma.protection)));
            }
        };
        for other in pages_in(part) {
            if other == page || self.table.small(table, other).is_some() {
                continue;
            }
            let Some(frame) = frames.allocate_small() else {
                break;
            };
            if !run.extend(other, frame) {
                show(&mut frames, &run, &mut self.table);
                run = Run::new(other, frame);
            }
        }
        show(&mut frames, &run, &mut self.table);
        Ok(())
    }

    /// Fills pages around the missing page at `address` from `memory`, which the range maps from
    /// `offset`.
    fn populate_shared(
        &mut self,
        address: u64,
        range: Range<u64>,
        memory: &SharedMemory,
        offset: u64,
    ) -> Result<(), Fault> {
        /// Bytes that are filled at once from memory with a store.
        const FETCHED: u64 = 64 << 10;
        let page = address & !(PAGE_SIZE - 1);
        let offset_of = |page: u64| offset + (page - range.start);
        if memory.is_beyond(offset_of(page)) {
            return Err(Fault::BeyondEnd);
        }
        let Some((_, vma)) = self.vmas.find(address) else {
            return Err(Fault::NotMapped);
        };
        let (protection, shared) = (vma.protection, vma.shared);
        let frames = self.frames;
        let table = (self.table).small_table(&mut frames.lock(), address)?;
        let around = match memory.has_store() {
            true => FETCHED,
            false => HUGE_PAGE_SIZE,
        };
        let window = address & !(around - 1);
        let part = range.start.max(window)..range.end.min(window + around);
        let others = pages_in(part).filter(|&at| at != page);
        for at in core::iter::once(page).chain(others) {
            if memory.is_beyond(offset_of(at)) || self.table.small(table, at).is_some() {
                continue;
            }
            let (frame, noticed) = match memory.frame(offset_of(at)) {
                Ok(found) => found,
                // The requested page is filled; the others are optional.
                Err(_) if at != page => break,
                Err(exhausted) => return Err(exhausted.into()),
            };
            let leaf = Leaf::new(frame, protection);
            let leaf = match shared && noticed {
                true => leaf,
                false => leaf.read_only(),
            };
            self.table.set_small(table, at, Some(leaf));
        }
        Ok(())
    }

    /// Maps physical memory of the host outside the program's half ([`PageTable::map_outside`]).
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn map_outside(
        &mut self,
        address: u64,
        physical: Range<u64>,
        executable: bool,
    ) -> Result<(), Exhausted> {
        let frames = self.frames;
        (self.table).map_outside(&mut frames.lock(), address, physical, executable)
    }

    /// Maps a new page of zeros, writable, at `address` outside the program's half.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn map_private_page(&mut self, address: u64) -> Result<(), Exhausted> {
        let frames = self.frames;
        let mut frames = frames.lock();
        let frame = frames.allocate_small().ok_or(Exhausted)?;
        self.table.map_private(&mut frames, address, frame)
    }

    /// Maps a new page, read-only and executable, at `address` outside the program's half. It is a copy of
    /// `original`, which may be mapped there, or of zeros. Result: where the page can be written. All vCPUs
    /// must flush their TLBs before they execute code there (`arch::cpus::flush_all`).
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn map_code_page(
        &mut self,
        address: u64,
        original: &[u8],
    ) -> Result<&'static mut [u8], Exhausted> {
        let frames = self.frames;
        let mut frames = frames.lock();
        let frame = frames.allocate_small().ok_or(Exhausted)?;
        let start = frames.ram().pointer(frame);
        // SAFETY: the frame is new, is never freed, and nothing else refers to its bytes in RAM.
        let page = unsafe { core::slice::from_raw_parts_mut(start, to_usize(PAGE_SIZE)) };
        page[..original.len()].copy_from_slice(original);
        self.table.map_code(&mut frames, address, frame)?;
        Ok(page)
    }

    /// Handles a page fault of the program. If it succeeds, the program repeats the access.
    ///
    /// # Errors
    /// The reason why the access is not allowed.
    pub fn handle_fault(&mut self, address: u64, access: Access) -> Result<(), Fault> {
        if address >= USER_END {
            return Err(Fault::NotMapped);
        }
        self.prepare(address, 1, access)
    }

    /// Removes the pages of `range` and frees their frames. The caller updates the map of ranges.
    pub(super) fn release(&mut self, range: Range<u64>) -> Result<(), Exhausted> {
        self.user_faults.forget(range.clone());
        self.made_code.forget(&range);
        let frames = self.frames;
        let mut frames = frames.lock();
        // Split first: a new table must not use a frame that is freed below, which other CPUs may
        // access until the flush.
        for end in [range.start, range.end] {
            if !end.is_multiple_of(HUGE_PAGE_SIZE) {
                self.table.split(&mut frames, end)?;
            }
        }
        let mut removed = false;
        let mut at = range.start;
        while let Some((part, window)) = self.table.windows(at..range.end).next() {
            at = part.end;
            let whole = part.end - part.start == HUGE_PAGE_SIZE;
            match window {
                Window::Huge(leaf) => {
                    self.table.take_window(part.start);
                    frames.free_huge(leaf.frame());
                    removed = true;
                }
                Window::Table(table) => {
                    for page in pages_in(part.clone()) {
                        if let Some(leaf) = self.table.small(table, page) {
                            self.table.set_small(table, page, None);
                            frames.free_small(leaf.frame());
                            removed = true;
                        }
                    }
                    if whole {
                        self.table.take_window(part.start);
                        frames.free_table(table);
                    }
                }
                Window::Empty => {}
            }
        }
        if removed {
            self.flush();
        }
        Ok(())
    }

    /// Sets the pages of `range` to the permissions `protection`; `shared`: pages with several
    /// owners may be writable.
    pub(super) fn change_leaves(
        &mut self,
        range: Range<u64>,
        protection: Protection,
        shared: bool,
    ) -> Result<(), Exhausted> {
        let frames = self.frames;
        let mut frames = frames.lock();
        let mut lowered = false;
        let mut at = range.start;
        while let Some((part, window)) = self.table.windows(at..range.end).next() {
            at = part.end;
            match window {
                Window::Huge(old) if part.end - part.start == HUGE_PAGE_SIZE => {
                    let mut new = Leaf::new(old.frame(), protection);
                    if !shared && frames.is_huge_shared(old.frame()) {
                        new = new.read_only();
                    }
                    lowered |= is_lowered(old, new);
                    self.table.take_window(part.start);
                    self.table.map_huge(&mut frames, part.start, new)?;
                }
                Window::Huge(_) => {
                    self.table.split(&mut frames, part.start)?;
                    at = part.start;
                }
                Window::Table(table) => {
                    for page in pages_in(part.clone()) {
                        if let Some(old) = self.table.small(table, page) {
                            let mut new = Leaf::new(old.frame(), protection);
                            let is_protected = self.user_faults.is_protected(page)
                                || self.made_code.is_watched(page);
                            if !shared && frames.is_small_shared(old.frame()) || is_protected {
                                new = new.read_only();
                            }
                            lowered |= is_lowered(old, new);
                            self.table.set_small(table, page, Some(new));
                        }
                    }
                }
                Window::Empty => {}
            }
        }
        if lowered {
            self.flush();
        }
        Ok(())
    }

    /// Moves the pages of `from` to `to`, where there are no pages.
    pub(super) fn move_leaves(&mut self, from: Range<u64>, to: u64) -> Result<(), Exhausted> {
        self.user_faults.forget(from.clone());
        self.made_code.forget(&from);
        let frames = self.frames;
        let mut frames = frames.lock();
        let offset = to.wrapping_sub(from.start);
        let together = offset.is_multiple_of(HUGE_PAGE_SIZE);
        let mut at = from.start;
        while let Some((part, window)) = self.table.windows(at..from.end).next() {
            at = part.end;
            let target = part.start.wrapping_add(offset);
            match window {
                Window::Huge(leaf)
                    if together
                        && part.end - part.start == HUGE_PAGE_SIZE
                        && self.table.window(target) == Window::Empty =>
                {
                    self.table.map_huge(&mut frames, target, leaf)?;
                    self.table.take_window(part.start);
                }
                Window::Huge(_) => {
                    self.table.split(&mut frames, part.start)?;
                    at = part.start;
                }
                Window::Table(table) => {
                    for page in pages_in(part.clone()) {
                        if let Some(leaf) = self.table.small(table, page) {
                            let to = page.wrapping_add(offset);
                            let target = self.table.small_table(&mut frames, to)?;
                            self.table.set_small(target, to, Some(leaf));
                            self.table.set_small(table, page, None);
                        }
                    }
                }
                Window::Empty => {}
            }
        }
        self.flush();
        Ok(())
    }
}

/// Whether an old translation allows more than the new one, so that a TLB flush is needed.
fn is_lowered(old: Leaf, new: Leaf) -> bool {
    old.is_present() && (!new.is_present() || old.is_writable() && !new.is_writable())
}

/// The bytes of the file that `range` shows, a part of the range `vma`, which starts at `start`; `None`: it shows
/// zeros only.
fn file_bytes(vma: &Vma, start: u64, range: &Range<u64>) -> Option<&'static [u8]> {
    let Backing::File(bytes) = vma.backing else {
        return None;
    };
    let end = to_usize(range.end - start).min(bytes.len());
    bytes.get(to_usize(range.start - start)..end)
}

/// Adjacent new pages in adjacent frames.
#[derive(Debug)]
struct Run {
    /// Addresses of the pages.
    pages: Range<u64>,
    /// Offset of the first frame.
    frame: u64,
}

impl Run {
    /// A page.
    fn new(page: u64, frame: u64) -> Self {
        Self {
            pages: page..page + PAGE_SIZE,
            frame,
        }
    }

    /// Adds a page, if it is the next one in both.
    fn extend(&mut self, page: u64, frame: u64) -> bool {
        let is_next = page == self.pages.end && frame == self.frame + (page - self.pages.start);
        self.pages.end += if is_next { PAGE_SIZE } else { 0 };
        is_next
    }

    /// The pages and their frames.
    fn frames(&self) -> impl Iterator<Item = (u64, u64)> {
        pages_in(self.pages.clone()).zip((self.frame..).step_by(to_usize(PAGE_SIZE)))
    }

    /// Fills the frames with the file's bytes, if the range `vma`, which starts at `start`, has a file.
    fn copy(&self, frames: &mut Frames, vma: &Vma, start: u64) {
        if let Some(bytes) = file_bytes(vma, start, &self.pages) {
            frames.copy_file(bytes, self.frame);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
