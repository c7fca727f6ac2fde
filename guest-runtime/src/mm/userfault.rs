//! Page faults that the program handles (`userfaultfd(2)`): registered ranges, and the pages in
//! them that are write-protected.
//!
//! A range is registered by flags, which are of no effect when the open file that registered it is
//! closed: the address space has a token of that file. Of the files that a process opens, the first
//! registers ranges of its address space, until it is closed.

use super::map::page_range;
use super::page_table::{Leaf, Window, pages_in};
use super::space::{Access, AddressSpace, Fault};
use super::vma::{VmFlags, Vma};
use alloc::collections::BTreeSet;
use alloc::rc::Weak;
use core::ops::Range;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::errno::Errno;

/// The flags of registered ranges.
pub(super) const REGISTERED: VmFlags = VmFlags::VM_UFFD_MISSING.with(VmFlags::VM_UFFD_WP);

/// What an address space knows of its faults that the program handles.
#[derive(Debug, Default)]
pub struct UserFaults {
    /// The open file; dead if there is none.
    owner: Weak<()>,
    /// Start addresses of write-protected pages. Their leaves are small and not writable.
    protected: BTreeSet<u64>,
}

impl UserFaults {
    /// Whether the program handles a fault of a missing page in `vma`.
    pub(super) fn takes_missing(&self, vma: &Vma) -> bool {
        vma.flags.contains(VmFlags::VM_UFFD_MISSING) && self.owner.strong_count() > 0
    }

    /// Whether the page at `address` is write-protected.
    pub(super) fn is_protected(&self, address: u64) -> bool {
        !self.protected.is_empty()
            && self.protected.contains(&(address & !(PAGE_SIZE - 1)))
            && self.owner.strong_count() > 0
    }

    /// Forgets the pages of `range`, which are removed.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        if !self.protected.is_empty() {
            self.protected.retain(|page| !range.contains(page));
        }
    }
}

/// The range of a request.
fn request_range(start: u64, length: u64) -> Result<Range<u64>, Errno> {
    match length % PAGE_SIZE {
        0 if length > 0 => page_range(start, length),
        _ => Err(Errno::EINVAL),
    }
}

impl AddressSpace {
    /// Makes the new open file with the token `owner` the one that registers ranges. Returns whether
    /// it is: another one may be open.
    pub fn own_faults(&mut self, owner: &Weak<()>) -> bool {
        if self.user_faults.owner.strong_count() > 0 {
            return false;
        }
        self.vmas.update(0..USER_END, |vma| {
            vma.flags = vma.flags.without(REGISTERED);
        });
        self.user_faults = UserFaults {
            owner: owner.clone(),
            protected: BTreeSet::new(),
        };
        true
    }

    /// Whether the program may handle faults.
    #[must_use]
    pub fn has_user_faults(&self) -> bool {
        self.user_faults.owner.strong_count() > 0
    }

    /// Whether the open file with the token `owner` registers ranges.
    #[must_use]
    pub fn are_faults_of(&self, owner: &Weak<()>) -> bool {
        self.user_faults.owner.ptr_eq(owner)
    }

    /// Registers a range, whose missing pages and stores to protected pages the program handles as
    /// `flags` say.
    ///
    /// # Errors
    /// `EINVAL` for a bad range, or memory that is not private and anonymous; `ENOMEM` if nothing is
    /// mapped at its start.
    pub fn register_faults(
        &mut self,
        start: u64,
        length: u64,
        flags: VmFlags,
    ) -> Result<(), Errno> {
        let range = request_range(start, length)?;
        if self.vmas.overlapping(range.clone()).next().is_none() {
            return Err(Errno::ENOMEM);
        }
        let mut overlapping = self.vmas.overlapping(range.clone());
        if !overlapping.all(|(_, vma)| vma.is_private_anonymous()) {
            return Err(Errno::EINVAL);
        }
        drop(overlapping);
        self.vmas.update(range, |vma| {
            vma.flags = vma.flags.without(REGISTERED).with(flags);
        });
        Ok(())
    }

    /// Ends the registration of a range.
    ///
    /// # Errors
    /// `EINVAL` for a bad range.
    pub fn unregister_faults(&mut self, start: u64, length: u64) -> Result<(), Errno> {
        let range = request_range(start, length)?;
        self.user_faults.forget(range.clone());
        self.vmas.update(range, |vma| {
            vma.flags = vma.flags.without(REGISTERED);
        });
        Ok(())
    }

    /// Fills the missing page at `address` of a registered range with `bytes`, or with zeros;
    /// `protect`: stores to it are handled by the program.
    ///
    /// # Errors
    /// `ENOENT` outside registered ranges, `EEXIST` if the page is not missing, `ENOMEM`.
    pub fn install_page(
        &mut self,
        address: u64,
        bytes: Option<&[u8]>,
        protect: bool,
    ) -> Result<(), Errno> {
        let found = self.vmas.find(address);
        let (_, vma) = found.ok_or(Errno::ENOENT)?;
        if vma.flags.without(REGISTERED) == vma.flags
            || protect && !vma.flags.contains(VmFlags::VM_UFFD_WP)
        {
            return Err(Errno::ENOENT);
        }
        let protection = vma.protection;
        if self.table.page(address).is_some() {
            return Err(Errno::EEXIST);
        }
        {
            let frames = self.frames;
            let mut frames = frames.lock();
            let table = (self.table.small_table(&mut frames, address)).map_err(Fault::from)?;
            let frame = frames.allocate_small().ok_or(Errno::ENOMEM)?;
            let leaf = Leaf::new(frame, protection);
            let leaf = if protect { leaf.read_only() } else { leaf };
            self.table.set_small(table, address, Some(leaf));
        }
        if protect {
            self.user_faults.protected.insert(address);
        }
        match bytes {
            Some(bytes) => Ok(self.fill(address, bytes)?),
            None => Ok(()),
        }
    }

    /// Protects the present pages of a registered range from stores, or no longer.
    ///
    /// # Errors
    /// `EINVAL` for a bad range; `ENOENT` if part of it is not registered for that; `ENOMEM`.
    pub fn protect_faults(&mut self, start: u64, length: u64, on: bool) -> Result<(), Errno> {
        let range = request_range(start, length)?;
        let is_registered = |vma: &Vma| vma.flags.contains(VmFlags::VM_UFFD_WP);
        let mut overlapping = self.vmas.overlapping(range.clone());
        if !self.vmas.is_covered(range.clone()) || !overlapping.all(|(_, vma)| is_registered(vma)) {
            return Err(Errno::ENOENT);
        }
        drop(overlapping);
        if !on {
            // The next store finds a leaf that is not writable, and makes it so.
            self.user_faults.forget(range);
            return Ok(());
        }
        let frames = self.frames;
        let mut at = range.start;
        while let Some((part, window)) = self.table.windows(at..range.end).next() {
            at = part.end;
            match window {
                Window::Huge(_) => {
                    let split = self.table.split(&mut frames.lock(), part.start);
                    split.map_err(Fault::from)?;
                    at = part.start;
                }
                Window::Table(table) => {
                    for page in pages_in(part) {
                        if let Some(leaf) = self.table.small(table, page) {
                            self.table.set_small(table, page, Some(leaf.read_only()));
                            self.user_faults.protected.insert(page);
                        }
                    }
                }
                Window::Empty => {}
            }
        }
        self.flush();
        Ok(())
    }

    /// Whether a store to the page at `address` was refused because it is write-protected, not
    /// because it is missing.
    #[must_use]
    pub fn is_store_protected(&self, address: u64, access: Access) -> bool {
        access == Access::Write && self.user_faults.is_protected(address)
    }
}
