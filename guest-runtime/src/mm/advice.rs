//! `madvise`.

use super::map::page_range;
use super::space::{Access, AddressSpace, Fault};
use super::vma::{VmFlags, Vma};
use core::ops::Range;
use hartline_linux::errno::Errno;
use hartline_linux::mman::{
    MADV_COLD, MADV_COLLAPSE, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK,
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_MERGEABLE,
    MADV_NOHUGEPAGE, MADV_NORMAL, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
    MADV_RANDOM, MADV_SEQUENTIAL, MADV_UNMERGEABLE, MADV_WILLNEED, MADV_WIPEONFORK,
};

impl AddressSpace {
    /// Follows an advice about a range of pages (`madvise`).
    ///
    /// # Errors
    /// `EINVAL` for a wrong address or an advice that does not fit the range or is not known,
    /// `ENOMEM` if part of the range is not mapped, `EFAULT` if pages cannot be filled.
    pub fn advise(&mut self, address: u64, length: u64, advice: u64) -> Result<(), Errno> {
        let range = page_range(address, length)?;
        let anonymous = |vma: &Vma| vma.is_private_anonymous();
        match advice {
            MADV_DONTNEED => {
                self.discard(range.clone(), |vma| !vma.flags.contains(VmFlags::VM_LOCKED))?
            }
            MADV_DONTNEED_LOCKED => self.discard(range.clone(), |_| true)?,
            MADV_DONTFORK => self.set_flags(range.clone(), VmFlags::VM_DONTCOPY, true),
            MADV_DOFORK => self.set_flags(range.clone(), VmFlags::VM_DONTCOPY, false),
            MADV_WIPEONFORK => {
                self.check_all(range.clone(), anonymous)?;
                self.set_flags(range.clone(), VmFlags::VM_WIPEONFORK, true);
            }
            MADV_KEEPONFORK => self.set_flags(range.clone(), VmFlags::VM_WIPEONFORK, false),
            MADV_POPULATE_READ => self.populate_for(range.clone(), Access::Read)?,
            MADV_POPULATE_WRITE => self.populate_for(range.clone(), Access::Write)?,
            // The pages keep their contents, which is one of the two allowed results.
            MADV_FREE => self.check_all(range.clone(), anonymous)?,
            MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL | MADV_WILLNEED | MADV_MERGEABLE
            | MADV_UNMERGEABLE | MADV_HUGEPAGE | MADV_NOHUGEPAGE | MADV_DONTDUMP | MADV_DODUMP
            | MADV_COLD | MADV_PAGEOUT | MADV_COLLAPSE => {}
            _ => return Err(Errno::EINVAL),
        }
        match self.vmas.is_covered(range) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Discards the pages of `range`, which get their initial contents again, up to the first range
    /// for which `may` is false.
    fn discard(&mut self, range: Range<u64>, may: impl Fn(&Vma) -> bool) -> Result<(), Errno> {
        let mut refused = self
            .vmas
            .overlapping(range.clone())
            .filter(|(_, vma)| !may(vma));
        let end = refused.next().map(|(start, _)| start.max(range.start));
        drop(refused);
        self.release(range.start..end.unwrap_or(range.end))
            .map_err(|_| Errno::ENOMEM)?;
        match end {
            Some(_) => Err(Errno::EINVAL),
            None => Ok(()),
        }
    }

    fn check_all(&self, range: Range<u64>, fits: impl Fn(&Vma) -> bool) -> Result<(), Errno> {
        match self.vmas.overlapping(range).all(|(_, vma)| fits(vma)) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    fn set_flags(&mut self, range: Range<u64>, flags: VmFlags, set: bool) {
        self.vmas.update(range, |vma| {
            vma.flags = match set {
                true => vma.flags.with(flags),
                false => vma.flags.without(flags),
            };
        });
    }

    fn populate_for(&mut self, range: Range<u64>, access: Access) -> Result<(), Errno> {
        let length = range.end - range.start;
        self.prepare(range.start, length, access)
            .map_err(|fault| match fault {
                Fault::NotMapped | Fault::Exhausted => Errno::ENOMEM,
                Fault::NotPermitted => Errno::EINVAL,
                Fault::BeyondEnd | Fault::OfProgram => Errno::EFAULT,
            })
    }
}
