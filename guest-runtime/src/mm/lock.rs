//! `mlock`, `mlockall` and `MAP_LOCKED`. Nothing is ever swapped out: locked pages are filled, and
//! count against `RLIMIT_MEMLOCK`.

use super::map::page_range;
use super::space::{Access, AddressSpace, Fault};
use super::vma::{VmFlags, Vma};
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::errno::Errno;

/// When the pages of a locked range are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populate {
    /// At once.
    Now,
    /// At the first access (`MLOCK_ONFAULT`, `MCL_ONFAULT`).
    OnFault,
}

impl AddressSpace {
    /// Locked addresses, bytes.
    #[must_use]
    pub fn locked(&self) -> u64 {
        self.sum(0..USER_END, |vma| vma.flags.contains(VmFlags::VM_LOCKED))
    }

    /// Checks `RLIMIT_MEMLOCK` for `length` more bytes with `flags`.
    ///
    /// # Errors
    /// `EAGAIN`.
    pub(super) fn check_locked(&self, length: u64, flags: VmFlags) -> Result<(), Errno> {
        let is_locked = flags.contains(VmFlags::VM_LOCKED);
        match is_locked && self.locked().saturating_add(length) > self.limits.locked {
            true => Err(Errno::EAGAIN),
            false => Ok(()),
        }
    }

    /// Checks that the process may lock memory at all.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn may_lock(&self) -> Result<(), Errno> {
        match self.limits.locked {
            0 => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// Locks the pages of `length` bytes at `address` (`mlock2`).
    ///
    /// # Errors
    /// `EPERM`, `ENOMEM`, `EAGAIN` and `EINVAL` as in `mlock(2)`.
    pub fn lock(&mut self, address: u64, length: u64, populate: Populate) -> Result<(), Errno> {
        self.may_lock()?;
        let range = lock_range(address, length)?;
        let is_locked = |vma: &Vma| vma.flags.contains(VmFlags::VM_LOCKED);
        let more = (range.end - range.start) - self.sum(range.clone(), is_locked);
        if self.locked().saturating_add(more) > self.limits.locked {
            return Err(Errno::ENOMEM);
        }
        let mapped = self.mapped_start_of(&range);
        let complete = mapped == range;
        (self.vmas).update(mapped.clone(), |vma| {
            vma.flags = vma.flags.with(VmFlags::VM_LOCKED);
        });
        if !complete {
            return Err(Errno::ENOMEM);
        }
        match populate {
            Populate::Now => self.populate_range(mapped).map_err(|fault| match fault {
                Fault::Exhausted => Errno::EAGAIN,
                Fault::NotMapped | Fault::NotPermitted | Fault::BeyondEnd | Fault::OfProgram => {
                    Errno::ENOMEM
                }
            }),
            Populate::OnFault => Ok(()),
        }
    }

    /// Unlocks the pages of `length` bytes at `address` (`munlock`).
    ///
    /// # Errors
    /// `EINVAL` for a wrong address, `ENOMEM` if part of the range is not mapped.
    pub fn unlock(&mut self, address: u64, length: u64) -> Result<(), Errno> {
        let range = lock_range(address, length)?;
        let mapped = self.mapped_start_of(&range);
        let complete = mapped == range;
        (self.vmas).update(mapped, |vma| {
            vma.flags = vma.flags.without(VmFlags::VM_LOCKED);
        });
        match complete {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Locks all ranges (`current`), and those mapped from now on (`future`), or no longer.
    ///
    /// # Errors
    /// `EPERM` and `ENOMEM` as in `mlockall(2)`.
    pub fn lock_all(
        &mut self,
        current: Option<Populate>,
        future: Option<Populate>,
    ) -> Result<(), Errno> {
        self.may_lock()?;
        if current.is_some() && self.vmas.mapped() > self.limits.locked {
            return Err(Errno::ENOMEM);
        }
        self.future_lock = future;
        let Some(populate) = current else {
            return Ok(());
        };
        (self.vmas).update(0..USER_END, |vma| {
            vma.flags = vma.flags.with(VmFlags::VM_LOCKED);
        });
        if populate == Populate::Now {
            let ranges: Vec<_> = (self.vmas.iter()).map(|(at, vma)| at..vma.end).collect();
            for range in ranges {
                // As on Linux, ranges that cannot be filled are left out.
                let _ = self.populate_range(range);
            }
        }
        Ok(())
    }

    /// Unlocks all ranges (`munlockall`).
    pub fn unlock_all(&mut self) {
        self.future_lock = None;
        (self.vmas).update(0..USER_END, |vma| {
            vma.flags = vma.flags.without(VmFlags::VM_LOCKED);
        });
    }

    /// Checks that caches of a range may be dropped (`MS_INVALIDATE`).
    ///
    /// # Errors
    /// `EBUSY` if part of the range is locked.
    pub fn check_invalidation(&self, address: u64, length: u64) -> Result<(), Errno> {
        let range = address..address.saturating_add(length);
        let is_locked = |vma: &Vma| vma.flags.contains(VmFlags::VM_LOCKED);
        match self.sum(range, is_locked) {
            0 => Ok(()),
            _ => Err(Errno::EBUSY),
        }
    }

    /// The part of `range` from its start that is mapped without a hole.
    fn mapped_start_of(&self, range: &Range<u64>) -> Range<u64> {
        let mut at = range.start;
        for (start, vma) in self.vmas.overlapping(range.clone()) {
            if start > at {
                break;
            }
            at = vma.end.min(range.end);
        }
        range.start..at
    }

    /// Fills the pages of a mapped range, private ones of which that are writable as by a store.
    ///
    /// # Errors
    /// The first access that would fail.
    pub(super) fn populate_range(&mut self, range: Range<u64>) -> Result<(), Fault> {
        let parts: Vec<_> = (self.vmas.overlapping(range.clone()))
            .map(|(start, vma)| {
                let access = match vma.protection.writable() && !vma.shared {
                    true => Access::Write,
                    false => Access::Read,
                };
                (start.max(range.start)..vma.end.min(range.end), access)
            })
            .collect();
        (parts.into_iter())
            .try_for_each(|(part, access)| self.prepare(part.start, part.end - part.start, access))
    }
}

/// The pages that overlap `length` bytes at `address`.
fn lock_range(address: u64, length: u64) -> Result<Range<u64>, Errno> {
    let start = address & !(PAGE_SIZE - 1);
    let length = length.checked_add(address - start).ok_or(Errno::EINVAL)?;
    page_range(start, length)
}
