//! Limits of an address space: `RLIMIT_AS`, `RLIMIT_DATA`, `RLIMIT_STACK` and `RLIMIT_MEMLOCK`.

use super::space::{AddressSpace, Fault};
use super::vma::{Label, STACK_GUARD_GAP, VmFlags, Vma};
use core::ops::Range;
use hartline_abi::layout::{PAGE_SIZE, USER_MIN};
use hartline_linux::errno::Errno;
use hartline_linux::resource::RLIM_INFINITY;

/// The limits of the process that uses an address space, bytes, or `RLIM_INFINITY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `RLIMIT_AS`: mapped addresses.
    pub address_space: u64,
    /// `RLIMIT_DATA`: private writable addresses but for the stack.
    pub data: u64,
    /// `RLIMIT_STACK`: a range that grows down.
    pub stack: u64,
    /// `RLIMIT_MEMLOCK`: locked addresses. A process with `CAP_IPC_LOCK` has no such limit.
    pub locked: u64,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits {
        address_space: RLIM_INFINITY,
        data: RLIM_INFINITY,
        stack: RLIM_INFINITY,
        locked: RLIM_INFINITY,
    };
}

impl AddressSpace {
    /// Sets the limits of the process that uses the address space.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Checks `RLIMIT_AS` and `RLIMIT_DATA` for `length` more bytes of the properties of `vma`, of which
    /// `replaced` has some.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn check_limits(
        &self,
        length: u64,
        is_data: bool,
        replaced: Range<u64>,
    ) -> Result<(), Errno> {
        let Limits {
            address_space,
            data,
            ..
        } = self.limits;
        if address_space != RLIM_INFINITY {
            let overlap = self.sum(replaced.clone(), |_| true);
            if (self.vmas.mapped() - overlap).saturating_add(length) > address_space {
                return Err(Errno::ENOMEM);
            }
        }
        if is_data && data != RLIM_INFINITY {
            let used = self.sum(0..u64::MAX, Vma::is_data) - self.sum(replaced, Vma::is_data);
            if used.saturating_add(length) > data {
                return Err(Errno::ENOMEM);
            }
        }
        Ok(())
    }

    /// Mapped bytes of `range` whose range `counts`.
    pub(super) fn sum(&self, range: Range<u64>, counts: impl Fn(&Vma) -> bool) -> u64 {
        let parts = self.vmas.overlapping(range.clone());
        parts
            .filter(|(_, vma)| counts(vma))
            .map(|(start, vma)| vma.end.min(range.end) - start.max(range.start))
            .sum()
    }

    /// Extends the range above `address` down to its page, if it is a `MAP_GROWSDOWN` range, and
    /// limits and the gap to the range below allow it.
    ///
    /// # Errors
    /// If nothing can be extended.
    pub(super) fn grow_down(&mut self, address: u64) -> Result<(), Fault> {
        let page = address & !(PAGE_SIZE - 1);
        let above = self.vmas.next_above(address);
        let Some((start, vma)) = above.filter(|(_, vma)| vma.flags.contains(VmFlags::VM_GROWSDOWN))
        else {
            return Err(Fault::NotMapped);
        };
        let grown = Vma {
            end: start,
            ..vma.clone()
        };
        let fits = page >= USER_MIN
            && vma.end - page <= self.limits.stack
            && self.is_clear_below(page)
            && self.check_limits(start - page, false, 0..0).is_ok()
            && self.check_locked(start - page, grown.flags).is_ok();
        if !fits {
            return Err(Fault::NotMapped);
        }
        self.vmas.insert(page, grown);
        Ok(())
    }

    /// Start of the stack that contains `address`, the main one or a `MAP_GROWSDOWN` range
    /// (`PROT_GROWSDOWN`).
    ///
    /// # Errors
    /// `ENOMEM` if nothing is mapped there, `EINVAL` if it is no stack.
    pub fn start_of_stack(&self, address: u64) -> Result<u64, Errno> {
        match self.vmas.find(address) {
            None => Err(Errno::ENOMEM),
            Some((start, vma))
                if vma.label == Label::Stack || vma.flags.contains(VmFlags::VM_GROWSDOWN) =>
            {
                Ok(start)
            }
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// Whether the range below `page` leaves the gap to a range that grows down to there.
    fn is_clear_below(&self, page: u64) -> bool {
        let gap = page.saturating_sub(STACK_GUARD_GAP)..page;
        self.vmas.overlapping(gap).all(|(_, below)| {
            below.flags.contains(VmFlags::VM_GROWSDOWN) || !below.protection.readable()
        })
    }
}
