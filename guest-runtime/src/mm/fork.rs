//! Copies of an address space: private pages are shared until one side stores to them; shared
//! mappings stay shared.

use super::frames::Frames;
use super::page_table::{Exhausted, Leaf, Window, pages_in};
use super::shared::SharedMemory;
use super::space::AddressSpace;
use super::vma::{Backing, VmFlags, Vma, VmaTree};
use crate::convert::to_usize;
use alloc::rc::Rc;
use core::ops::Range;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, USER_END};

impl AddressSpace {
    /// An empty address space for another program, with page tables of its own.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn sibling(&self) -> Result<AddressSpace, Exhausted> {
        let table = self.table.sibling(&mut self.frames.lock())?;
        Ok(AddressSpace::new(table, self.frames, self.processors))
    }

    /// Copies this address space. Private pages in `hot`, where both sides will store soon, are
    /// copied at once, as are the pages of short ranges: a copy is much cheaper than two page
    /// faults.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn fork(&mut self, hot: Range<u64>) -> Result<AddressSpace, Exhausted> {
        let mut child = self.sibling()?;
        self.share_memory();
        child.vmas = self.vmas.for_child();
        child.brk = self.brk.clone();
        child.map_top = self.map_top;
        child.limits = self.limits;
        child.made_code = self.made_code.clone();
        let ranges: alloc::vec::Vec<_> = (child.vmas.iter())
            .filter(|(_, vma)| !vma.flags.contains(VmFlags::VM_WIPEONFORK))
            .map(|(start, vma)| (start..vma.end, Sharing::of(start, vma, &hot)))
            .collect();
        let copied = (ranges.into_iter())
            .try_for_each(|(range, sharing)| self.copy_leaves(&mut child, range, &sharing));
        self.flush();
        match copied {
            Ok(()) => Ok(child),
            Err(exhausted) => {
                child.tear_down();
                Err(exhausted)
            }
        }
    }

    /// Makes the ranges zero that a child of `fork` does not inherit. No CPU uses this address space.
    ///
    /// # Errors
    /// If RAM is used up.
    pub fn wipe_on_fork(&mut self) -> Result<(), Exhausted> {
        let ranges: alloc::vec::Vec<_> = (self.vmas.iter())
            .filter(|(_, vma)| vma.flags.contains(VmFlags::VM_WIPEONFORK))
            .map(|(start, vma)| start..vma.end)
            .collect();
        (ranges.into_iter()).try_for_each(|range| self.release(range))
    }

    /// Frees all memory. No CPU may use the page tables any more.
    pub fn tear_down(self) {
        (self.processors.release)(self.table.address());
        // The ranges first: dropping memory that owns frames takes the allocator's lock.
        drop::<VmaTree>(self.vmas);
        self.table.tear_down(&mut self.frames.lock());
    }

    /// Records the frames of anonymous `MAP_SHARED` ranges, so that pages touched later are the
    /// same in all copies.
    fn share_memory(&mut self) {
        let (frames, table) = (self.frames, &self.table);
        self.vmas.change_backings(|start, vma| {
            if !vma.shared || !matches!(vma.backing, Backing::Zero) {
                return;
            }
            let memory = SharedMemory::anonymous(frames);
            let mut pages = start;
            while let Some((part, _)) = table.windows(pages..vma.end).next() {
                pages = part.end;
                for page in pages_in(part) {
                    if let Some(frame) = table.translate(page) {
                        memory.adopt(page - start, frame);
                    }
                }
            }
            vma.backing = Backing::Shared(Rc::new(memory), 0);
        });
    }

    /// Maps the pages of `range` in `child`. Private pages that are not copied become read-only on
    /// both sides. The caller flushes.
    fn copy_leaves(
        &mut self,
        child: &mut AddressSpace,
        range: Range<u64>,
        sharing: &Sharing,
    ) -> Result<(), Exhausted> {
        let frames = self.frames;
        let mut frames = frames.lock();
        let lower = |leaf: Leaf| match sharing {
            Sharing::Shared => leaf,
            Sharing::Private { .. } => leaf.read_only(),
        };
        let mut at = range.start;
        while let Some((part, window)) = self.table.windows(at..range.end).next() {
            at = part.end;
            match window {
                Window::Huge(leaf)
                    if part.end - part.start == HUGE_PAGE_SIZE && !sharing.copies_in(&part) =>
                {
                    child.table.map_huge(&mut frames, part.start, lower(leaf))?;
                    frames.share_huge(leaf.frame());
                    if lower(leaf) != leaf {
                        self.table.take_window(part.start);
                        self.table.map_huge(&mut frames, part.start, lower(leaf))?;
                    }
                }
                Window::Huge(_) => {
                    self.table.split(&mut frames, part.start)?;
                    at = part.start;
                }
                Window::Table(table) => {
                    let copy = child.table.small_table(&mut frames, part.start)?;
                    for page in pages_in(part) {
                        let Some(leaf) = self.table.small(table, page) else {
                            continue;
                        };
                        if leaf.is_writable() && sharing.copies_in(&(page..page + PAGE_SIZE)) {
                            let own = leaf.with_frame(copy_frame(&mut frames, leaf.frame())?);
                            child.table.set_small(copy, page, Some(own));
                            continue;
                        }
                        child.table.set_small(copy, page, Some(lower(leaf)));
                        frames.share_small(leaf.frame());
                        if lower(leaf) != leaf {
                            self.table.set_small(table, page, Some(lower(leaf)));
                        }
                    }
                }
                Window::Empty => {}
            }
        }
        Ok(())
    }

    /// Makes the page at `address`, in a writable range but with a read-only leaf, this address
    /// space's own.
    ///
    /// This CPU may use the old translation, which only allows loads, until it stores to the page:
    /// the store faults and reloads the translation. The caller must make the store first
    /// ([`take_replaced`](Self::take_replaced)). The TLBs of other CPUs, which would not see the
    /// store, are flushed at once.
    pub(super) fn unshare(&mut self, address: u64) -> Result<(), Exhausted> {
        debug_assert!(address < USER_END);
        let Some((start, vma)) = self.vmas.find(address) else {
            return Ok(());
        };
        let protection = vma.protection;
        let shared = vma.shared;
        if let (true, Backing::Shared(memory, offset)) = (shared, &vma.backing) {
            memory.mark_dirty(offset + ((address & !(PAGE_SIZE - 1)) - start));
        }
        let frames = self.frames;
        let mut frames = frames.lock();
        match self.table.window(address) {
            Window::Empty => {}
            Window::Huge(leaf) if frames.is_huge_shared(leaf.frame()) => {
                self.table.split(&mut frames, address)?;
            }
            Window::Huge(leaf) => {
                let leaf = Leaf::new(leaf.frame(), protection);
                self.table.take_window(address);
                self.table
                    .map_huge(&mut frames, address & !(HUGE_PAGE_SIZE - 1), leaf)?;
            }
            Window::Table(table) => {
                let Some(old) = self.table.small(table, address) else {
                    return Ok(());
                };
                let mut frame = old.frame();
                if !shared && frames.is_small_shared(frame) {
                    frame = copy_frame(&mut frames, frame)?;
                    frames.free_small(old.frame());
                }
                let leaf = Leaf::new(frame, protection);
                self.table.set_small(table, address, Some(leaf));
                if frame != old.frame() {
                    self.has_replaced = true;
                    (self.processors.flush_others)(self.table.address());
                }
            }
        }
        Ok(())
    }
}

/// The sharing of a range's pages when their address space is copied.
enum Sharing {
    /// Both sides use the same pages.
    Shared,
    /// Both sides use the same pages until a store, but pages in `copied` are copied at once.
    Private { copied: Range<u64> },
}

impl Sharing {
    /// Longest range that is copied at once, bytes.
    const SHORT: u64 = 64 << 10;

    fn of(start: u64, vma: &Vma, hot: &Range<u64>) -> Sharing {
        match vma.shared {
            true => Sharing::Shared,
            false => Sharing::Private {
                copied: match vma.end - start <= Self::SHORT {
                    true => start..vma.end,
                    false => hot.start.max(start)..hot.end.min(vma.end),
                },
            },
        }
    }

    /// Whether a page in `range` is copied at once.
    fn copies_in(&self, range: &Range<u64>) -> bool {
        match self {
            Sharing::Shared => false,
            Sharing::Private { copied } => {
                copied.start.max(range.start) < copied.end.min(range.end)
            }
        }
    }
}

/// Allocates a frame with the contents of another frame.
pub(super) fn copy_frame(frames: &mut Frames, from: u64) -> Result<u64, Exhausted> {
    let copy = frames.allocate_small().ok_or(Exhausted)?;
    let ram = frames.ram();
    // SAFETY: two different frames, of which one was just allocated. The other one has several
    // owners, so nothing writes to it while the library OS runs.
    unsafe {
        core::ptr::copy_nonoverlapping(ram.pointer(from), ram.pointer(copy), to_usize(PAGE_SIZE));
    }
    Ok(copy)
}
