//! Page changes that a program must not notice, made by chaos (`crate::kernel::chaos`).

use super::fork::copy_frame;
use super::page_table::{Exhausted, Leaf, Window};
use super::{AddressSpace, Backing};
use hartline_abi::layout::PAGE_SIZE;

impl AddressSpace {
    /// Hides the page at `address` but keeps its frame: the next access shows the page again.
    ///
    /// # Errors
    /// If RAM is used up.
    pub(crate) fn hide_page(&mut self, address: u64) -> Result<(), Exhausted> {
        self.change_page(address, Leaf::hidden)
    }

    /// Write-protects the page at `address`: the next store faults, as after a fork.
    ///
    /// # Errors
    /// If RAM is used up.
    pub(crate) fn protect_page(&mut self, address: u64) -> Result<(), Exhausted> {
        self.change_page(address, Leaf::read_only)
    }

    fn change_page(
        &mut self,
        address: u64,
        change: impl Fn(Leaf) -> Leaf,
    ) -> Result<(), Exhausted> {
        if let Some((table, leaf)) = self.present_page(address)?
            && change(leaf) != leaf
        {
            self.table.set_small(table, address, Some(change(leaf)));
            self.flush();
        }
        Ok(())
    }

    /// Moves the page at `address` to another frame, if it has one owner.
    ///
    /// # Errors
    /// If RAM is used up.
    pub(crate) fn move_page(&mut self, address: u64) -> Result<(), Exhausted> {
        let vma = self.vmas.find(address);
        let is_shared = |vma: &super::Vma| vma.shared || matches!(vma.backing, Backing::Shared(..));
        if vma.is_none_or(|(_, vma)| is_shared(vma)) {
            return Ok(());
        }
        let Some((table, leaf)) = self.present_page(address)? else {
            return Ok(());
        };
        if self.frames.lock().is_small_shared(leaf.frame()) {
            return Ok(());
        }
        // Other vCPUs may store to the old frame until the TLB flush.
        self.table.set_small(table, address, Some(leaf.hidden()));
        self.flush();
        let frames = self.frames;
        let mut frames = frames.lock();
        let moved = copy_frame(&mut frames, leaf.frame());
        if moved.is_ok() {
            frames.free_small(leaf.frame());
        }
        let frame = moved.unwrap_or(leaf.frame());
        self.table
            .set_small(table, address, Some(leaf.with_frame(frame)));
        Ok(())
    }

    /// The page at `address` and its table, if it is present. A huge page is split.
    fn present_page(&mut self, address: u64) -> Result<Option<(u64, Leaf)>, Exhausted> {
        debug_assert!(address.is_multiple_of(PAGE_SIZE));
        let frames = self.frames;
        self.table.split(&mut frames.lock(), address)?;
        let Window::Table(table) = self.table.window(address) else {
            return Ok(None);
        };
        let leaf = self.table.small(table, address);
        Ok(leaf
            .filter(|leaf| leaf.is_present())
            .map(|leaf| (table, leaf)))
    }
}
