//! `mmap`, `munmap`, `mprotect`, `mremap` and `brk` as Linux defines them.

use super::lock::Populate;
use super::shared::SharedMemory;
use super::space::AddressSpace;
use super::userfault::REGISTERED;
use super::vma::{Backing, Label, Protection, VmFlags, Vma};
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, USER_END, USER_MIN};
use hartline_linux::errno::Errno;

/// Most ranges of one address space (`vm.max_map_count`).
const MAX_RANGES: usize = 65530;

/// The address of a new range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapLocation {
    /// This address if it is free, otherwise any (0: no hint).
    Hint(u64),
    /// This address; existing mappings are replaced (`MAP_FIXED`).
    Fixed(u64),
    /// This address, or `EEXIST` (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(u64),
}

/// A new range.
#[derive(Debug, Clone)]
pub struct MapRequest {
    /// The address.
    pub location: MapLocation,
    /// Length, bytes, not 0; rounded up to pages.
    pub length: u64,
    /// Permissions.
    pub protection: Protection,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// `MAP_NORESERVE`: a writable range may be longer than RAM.
    pub no_reserve: bool,
    /// Initial contents.
    pub backing: Backing,
    /// Purpose of the range.
    pub label: Label,
    /// Other properties.
    pub flags: VmFlags,
}

/// `length` rounded up to pages.
fn page_align(length: u64) -> Option<u64> {
    length.checked_next_multiple_of(PAGE_SIZE)
}

/// The pages of `length` bytes at `address`, which is a multiple of the page size.
pub(super) fn page_range(address: u64, length: u64) -> Result<Range<u64>, Errno> {
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let length = page_align(length).ok_or(Errno::EINVAL)?;
    match address.checked_add(length) {
        Some(end) if end <= USER_END => Ok(address..end),
        _ => Err(Errno::EINVAL),
    }
}

impl AddressSpace {
    /// Sets the addresses that depend on the program: the start of the break area, and the upper
    /// end of the area for [`MapLocation::Hint`].
    pub fn set_layout(&mut self, brk: u64, map_top: u64) {
        let brk = brk.next_multiple_of(PAGE_SIZE);
        self.brk = brk..brk;
        self.map_top = map_top;
    }

    /// Start and end of the break area.
    #[must_use]
    pub fn break_area(&self) -> Range<u64> {
        self.brk.clone()
    }

    /// Maps a range; returns its address.
    ///
    /// # Errors
    /// `EINVAL`, `ENOMEM`, `EEXIST`, `EPERM` as in `mmap(2)`.
    pub fn map(&mut self, request: MapRequest) -> Result<u64, Errno> {
        if request.length == 0 {
            return Err(Errno::EINVAL);
        }
        let length = page_align(request.length).ok_or(Errno::ENOMEM)?;
        self.admit(length, request.protection, request.no_reserve)?;
        let start = self.location(request.location, length)?;
        let range = start..start + length;
        let flags = request.flags.with(self.future_flags());
        let mut vma = Vma {
            end: range.end,
            protection: request.protection,
            shared: request.shared,
            backing: request.backing,
            label: request.label,
            flags,
        };
        vma.set_protection(request.protection);
        self.check_locked(length, flags)?;
        self.check_limits(length, vma.is_data(), range.clone())?;
        if let MapLocation::Fixed(_) = request.location {
            self.unmap_range(range.clone())?;
        }
        self.vmas.insert(start, vma);
        let explicit = request.flags.contains(VmFlags::VM_LOCKED);
        if explicit || self.future_lock == Some(Populate::Now) {
            // As on Linux, the mapping exists even if its pages cannot be filled now.
            let _ = self.populate_range(range);
        }
        Ok(start)
    }

    /// Flags of each new range.
    fn future_flags(&self) -> VmFlags {
        match self.future_lock {
            Some(_) => VmFlags::VM_LOCKED,
            None => VmFlags::NONE,
        }
    }

    /// Refuses mappings that could never be filled: Linux's heuristic overcommit.
    fn admit(&self, length: u64, protection: Protection, no_reserve: bool) -> Result<(), Errno> {
        let ram = self.frames.lock().ram().length();
        let too_long = protection.writable() && !no_reserve && length > ram;
        if too_long || length > USER_END || self.vmas.count() >= MAX_RANGES {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Chooses the address of `length` bytes.
    fn location(&self, location: MapLocation, length: u64) -> Result<u64, Errno> {
        match location {
            MapLocation::Hint(hint) => {
                let hint = hint & !(PAGE_SIZE - 1);
                let free = |at: u64| {
                    at >= USER_MIN
                        && at.checked_add(length).is_some_and(|end| {
                            end <= USER_END && self.vmas.is_free_with_gap(at..end)
                        })
                };
                if free(hint) {
                    return Ok(hint);
                }
                self.find_place(length).ok_or(Errno::ENOMEM)
            }
            MapLocation::Fixed(address) | MapLocation::FixedNoReplace(address) => {
                let range = page_range(address, length).map_err(|error| {
                    match address.is_multiple_of(PAGE_SIZE) {
                        true => Errno::ENOMEM,
                        false => error,
                    }
                })?;
                if address < USER_MIN {
                    return Err(Errno::EPERM);
                }
                if matches!(location, MapLocation::FixedNoReplace(_)) && !self.vmas.is_free(range) {
                    return Err(Errno::EEXIST);
                }
                Ok(address)
            }
        }
    }

    /// The highest free address for `length` bytes, aligned to a huge page if the range can contain
    /// one.
    fn find_place(&self, length: u64) -> Option<u64> {
        let window = USER_MIN..self.map_top;
        let find = |align| self.vmas.find_free_down(length, align, window.clone());
        if length >= HUGE_PAGE_SIZE
            && let Some(at) = find(HUGE_PAGE_SIZE)
        {
            return Some(at);
        }
        find(PAGE_SIZE)
    }

    fn unmap_range(&mut self, range: Range<u64>) -> Result<(), Errno> {
        if self.vmas.is_free(range.clone()) {
            return Ok(());
        }
        self.release(range.clone()).map_err(|_| Errno::ENOMEM)?;
        self.vmas.remove(range);
        Ok(())
    }

    /// Unmaps pages (`munmap`).
    ///
    /// # Errors
    /// `EINVAL` as in `munmap(2)`, `ENOMEM` if there are too many ranges.
    pub fn unmap(&mut self, address: u64, length: u64) -> Result<(), Errno> {
        let range = page_range(address, length)?;
        if range.is_empty() {
            return Err(Errno::EINVAL);
        }
        if self.vmas.count() >= MAX_RANGES {
            return Err(Errno::ENOMEM);
        }
        self.unmap_range(range)
    }

    /// Changes permissions (`mprotect`).
    ///
    /// # Errors
    /// `EINVAL` for a wrong address, `ENOMEM` if part of the range is not mapped, `EACCES`
    /// for a shared mapping of a file that may not be written, or a file that may not be executed.
    pub fn protect(
        &mut self,
        address: u64,
        length: u64,
        protection: Protection,
    ) -> Result<(), Errno> {
        let range = page_range(address, length).map_err(|error| {
            match address.is_multiple_of(PAGE_SIZE) {
                true => Errno::ENOMEM,
                false => error,
            }
        })?;
        if range.is_empty() {
            return Ok(());
        }
        if !self.vmas.is_covered(range.clone()) || self.vmas.count() >= MAX_RANGES {
            return Err(Errno::ENOMEM);
        }
        let mut overlapping = self.vmas.overlapping(range.clone());
        let is_refused = |vma: &Vma| {
            protection.writable() && vma.is_read_only()
                || protection.executable() && vma.flags.contains(VmFlags::NO_MAYEXEC)
        };
        if overlapping.any(|(_, vma)| is_refused(vma)) {
            return Err(Errno::EACCES);
        }
        drop(overlapping);
        let parts: Vec<_> = (self.vmas.overlapping(range.clone()))
            .map(|(start, vma)| {
                let part = start.max(range.start)..vma.end.min(range.end);
                (part, vma.stores_are_shared())
            })
            .collect();
        for (part, shared) in parts {
            self.change_leaves(part, protection, shared)
                .map_err(|_| Errno::ENOMEM)?;
        }
        self.vmas.protect(range, protection);
        Ok(())
    }

    /// Writes stores to mapped files in a range back to the files (`msync`).
    ///
    /// # Errors
    /// `EINVAL` for a wrong address, `ENOMEM` if part of the range is not mapped, `EIO`.
    pub fn write_back(&self, address: u64, length: u64) -> Result<(), Errno> {
        let range = page_range(address, length).map_err(|error| {
            match address.is_multiple_of(PAGE_SIZE) {
                true => Errno::ENOMEM,
                false => error,
            }
        })?;
        let mut complete = true;
        for (start, vma) in self.vmas.overlapping(range.clone()) {
            if let (true, Backing::Shared(memory, offset)) = (vma.shared, &vma.backing) {
                let part = start.max(range.start)..vma.end.min(range.end);
                let at = offset + (part.start - start);
                complete &= memory.write_back(at..at + (part.end - part.start));
            }
        }
        match (self.vmas.is_covered(range), complete) {
            (false, _) => Err(Errno::ENOMEM),
            (true, false) => Err(Errno::EIO),
            (true, true) => Ok(()),
        }
    }

    /// Whether a shared range of `memory` is writable, or can become so by `mprotect`.
    #[must_use]
    pub fn stores_to(&self, memory: &SharedMemory) -> bool {
        self.vmas.iter().any(|(_, vma)| {
            let shows = matches!(&vma.backing,
                Backing::Shared(other, _) if core::ptr::eq(&raw const **other, memory));
            shows && vma.shared && !vma.is_read_only()
        })
    }

    /// Removes pages beyond the end of `memory`.
    pub fn forget_beyond(&mut self, memory: &SharedMemory) {
        let shown: Vec<(Range<u64>, u64)> = (self.vmas.iter())
            .filter_map(|(start, vma)| match &vma.backing {
                Backing::Shared(other, offset) if core::ptr::eq(&raw const **other, memory) => {
                    Some((start..vma.end, *offset))
                }
                _ => None,
            })
            .collect();
        for (range, offset) in shown {
            let mut first = range.start;
            while first < range.end && !memory.is_beyond(offset + (first - range.start)) {
                first += PAGE_SIZE;
            }
            // This needs memory only to split a huge page, and these ranges have none.
            let _ = self.release(first..range.end);
        }
    }

    /// Checks that all pages of `length` bytes at `address` are mapped.
    ///
    /// # Errors
    /// `EINVAL` for a wrong address, `ENOMEM` if part of the range is not mapped.
    pub fn check_mapped(&self, address: u64, length: u64) -> Result<(), Errno> {
        let range = page_range(address, length)?;
        match self.vmas.is_covered(range) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Sets the end of the break area (`brk`) if possible; returns the current end.
    pub fn set_break(&mut self, end: u64) -> u64 {
        if end < self.brk.start || self.try_set_break(end).is_err() {
            return self.brk.end;
        }
        self.brk.end = end;
        end
    }

    fn try_set_break(&mut self, end: u64) -> Result<(), Errno> {
        let new = page_align(end).ok_or(Errno::ENOMEM)?;
        let old = self.brk.end.next_multiple_of(PAGE_SIZE);
        if new < old {
            return self.unmap_range(new..old);
        }
        if new == old {
            return Ok(());
        }
        if new > USER_END || !self.vmas.is_free(old..new) {
            return Err(Errno::ENOMEM);
        }
        self.admit(new - self.brk.start, Protection::READ_WRITE, false)?;
        self.check_limits(new - old, true, 0..0)?;
        self.check_locked(new - old, self.future_flags())?;
        self.vmas.insert(
            old,
            Vma {
                end: new,
                protection: Protection::READ_WRITE,
                shared: false,
                backing: Backing::Zero,
                label: Label::Heap,
                flags: self.future_flags(),
            },
        );
        if self.future_lock == Some(Populate::Now) {
            // As on Linux, the area grows even if its pages cannot be filled now.
            let _ = self.populate_range(old..new);
        }
        Ok(())
    }

    /// Moves or resizes a mapping (`mremap`). `may_move` and `fixed` are `MREMAP_MAYMOVE` and the
    /// new address of `MREMAP_FIXED`.
    ///
    /// # Errors
    /// `EINVAL`, `EFAULT`, `ENOMEM` as in `mremap(2)`.
    pub fn remap(
        &mut self,
        address: u64,
        old_length: u64,
        new_length: u64,
        may_move: bool,
        fixed: Option<u64>,
    ) -> Result<u64, Errno> {
        if new_length == 0 || old_length == 0 || (fixed.is_some() && !may_move) {
            return Err(Errno::EINVAL);
        }
        let old = page_range(address, old_length)?;
        let length = page_align(new_length).ok_or(Errno::EINVAL)?;
        let old_size = old.end - old.start;
        let (start, vma) = self.vmas.find(address).ok_or(Errno::EFAULT)?;
        if vma.end < old.end {
            return Err(Errno::EFAULT);
        }
        let vma = vma_part(start, vma, address);
        if let Some(target) = fixed {
            let new = page_range(target, length)?;
            if new.start < old.end && old.start < new.end {
                return Err(Errno::EINVAL);
            }
            self.unmap_range(new)?;
            return self.relocate(old, target, length, vma);
        }
        if length <= old_size {
            self.unmap_range(old.start + length..old.end)?;
            return Ok(address);
        }
        let more = length - old_size;
        self.admit(more, vma.protection, false)?;
        self.check_locked(more, vma.flags)?;
        self.check_limits(more, vma.is_data(), 0..0)?;
        let grown = old.end..address.checked_add(length).ok_or(Errno::ENOMEM)?;
        if grown.end <= USER_END && self.vmas.is_free(grown.clone()) {
            self.vmas.insert(
                grown.start,
                Vma {
                    end: grown.end,
                    ..vma_part(address, &vma, grown.start)
                },
            );
            self.populate_locked(grown, vma.flags);
            return Ok(address);
        }
        if !may_move {
            return Err(Errno::ENOMEM);
        }
        let target = self.find_place(length).ok_or(Errno::ENOMEM)?;
        let flags = vma.flags;
        self.relocate(old, target, length, vma)?;
        self.populate_locked(target..target + length, flags);
        Ok(target)
    }

    /// Fills the pages of a range that has grown, if it is locked. As on Linux, it has grown even if
    /// that fails.
    fn populate_locked(&mut self, range: Range<u64>, flags: VmFlags) {
        if flags.contains(VmFlags::VM_LOCKED) {
            let _ = self.populate_range(range);
        }
    }

    /// Moves `old`, described by `vma` from its start, to `target` with a new length.
    fn relocate(
        &mut self,
        old: Range<u64>,
        target: u64,
        length: u64,
        vma: Vma,
    ) -> Result<u64, Errno> {
        let kept = length.min(old.end - old.start);
        let moved = old.start..old.start + kept;
        self.move_leaves(moved, target).map_err(|_| Errno::ENOMEM)?;
        self.unmap_range(old)?;
        self.vmas.insert(
            target,
            Vma {
                end: target + length,
                // As on Linux, the registration for a userfaultfd stays behind.
                flags: vma.flags.without(REGISTERED),
                ..vma
            },
        );
        Ok(target)
    }
}

/// The part of `vma`, which starts at `start`, from address `at`.
fn vma_part(start: u64, vma: &Vma, at: u64) -> Vma {
    if at == start {
        vma.clone()
    } else {
        vma.tail(start, at)
    }
}
