//! Parts of a [`Mapping`] that are mapped anew: files in their place, or zeros.

use super::{ALIGNMENT, Error, Mapping, Owner, failed, map_file, start_of, whole_pages};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Mapping {
    /// Replaces the memory from `offset` on, a multiple of 2 MiB, by the first `length` bytes of a
    /// file, shared, read-only.
    ///
    /// # Errors
    /// [`Error::Bounds`] if it does not fit, is misaligned, or this is not [`empty`](Self::empty)
    /// memory; [`Error::Memory`] if the host refuses.
    pub fn show(
        &self,
        what: &'static str,
        offset: u64,
        file: &File,
        length: u64,
    ) -> Result<(), Error> {
        let outside = || self.out_of_bounds(offset, usize::try_from(length).unwrap_or(usize::MAX));
        let size = whole_pages(length).ok_or_else(outside)?;
        let start = start_of(self.region.size(), offset, size).ok_or_else(outside)?;
        let is_own = matches!(self.owner, Owner::Reservation { .. });
        if !start.is_multiple_of(ALIGNMENT) || !is_own || self.writable() {
            return Err(outside());
        }
        let at = self.base().as_ptr().wrapping_add(start);
        // SAFETY: the range is inside this mapping, whose address space belongs to its reservation.
        // Its contents may change at any time, so no reference to them exists.
        unsafe { map_file(at, size, ProtFlags::READ, file) }.map_err(failed(what, length))
    }

    /// Replaces the memory from `offset` on by `length` bytes of a file from its byte `from` on, copied
    /// when they are written. Offset and length are multiples of 2 MiB, `from` of 4 KiB. The file must
    /// not be truncated while the memory is used.
    ///
    /// # Errors
    /// [`Error::Bounds`] if it does not fit, is misaligned, or this memory is read-only;
    /// [`Error::Memory`] if the host refuses.
    pub fn overlay(
        &self,
        what: &'static str,
        offset: u64,
        (file, from): (&File, u64),
        length: u64,
    ) -> Result<(), Error> {
        let (at, size) = self.own_blocks(offset, length)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range is inside this mapping, whose address space belongs to its reservation.
        // Its contents may change at any time, so no reference to them exists.
        let mapped = unsafe { mmap(at.cast(), size, protection, flags, file, from) };
        let mapped = mapped.map(drop).map_err(io::Error::from);
        self.is_overlaid.store(true, Ordering::Relaxed);
        mapped.map_err(failed(what, length))
    }

    /// Replaces a range of the memory, whose ends are multiples of 2 MiB, by zeros in small pages, which are
    /// allocated when they are written.
    ///
    /// # Errors
    /// As [`overlay`](Self::overlay).
    pub fn replace(&self, what: &'static str, range: Range<u64>) -> Result<(), Error> {
        let length = range.end.saturating_sub(range.start);
        let (at, size) = self.own_blocks(range.start, length)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `overlay`.
        let mapped = unsafe { mmap_anonymous(at.cast(), size, protection, flags) };
        mapped.map_err(|error| failed(what, length)(error.into()))?;
        // SAFETY: advice for the mapping above changes no contents. Without it, pages are only larger.
        let _ = unsafe { madvise(at.cast(), size, Advice::LinuxNoHugepage) };
        Ok(())
    }

    /// Drops what was written since the memory was mapped.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn drop_written(&self, what: &'static str) -> Result<(), Error> {
        let (at, size) = self.own_blocks(0, self.length())?;
        // SAFETY: the range is this mapping's own, and no reference to its contents exists.
        let dropped = unsafe { madvise(at.cast(), size, Advice::LinuxDontNeed) };
        dropped.map_err(|error| failed(what, self.length())(error.into()))
    }

    /// Start and size of a part of this writable memory, in whole blocks of 2 MiB, that may be mapped anew.
    fn own_blocks(&self, offset: u64, length: u64) -> Result<(*mut u8, usize), Error> {
        let outside = || self.out_of_bounds(offset, usize::try_from(length).unwrap_or(usize::MAX));
        let size = usize::try_from(length).map_err(|_| outside())?;
        let start = start_of(self.region.size(), offset, size).ok_or_else(outside)?;
        let is_own = matches!(self.owner, Owner::Reservation { .. });
        let is_aligned = start.is_multiple_of(ALIGNMENT) && size.is_multiple_of(ALIGNMENT);
        if size == 0 || !is_aligned || !is_own || !self.writable() {
            return Err(outside());
        }
        Ok((self.base().as_ptr().wrapping_add(start), size))
    }

    /// Whether pages that were never touched may have other contents than zeros: those of a file.
    #[must_use]
    pub fn is_overlaid(&self) -> bool {
        self.is_overlaid.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory_file;
    use super::*;

    #[test]
    fn files_are_shown_in_empty_memory() {
        let file = memory_file(c"test", &[7; 5000]).unwrap();
        let m = Mapping::empty("test", 4 << 20).unwrap();
        let byte = |at| {
            let mut byte = [1];
            m.read(at, &mut byte).map(|()| byte[0])
        };
        assert_eq!(byte(2 << 20).unwrap(), 0);
        m.show("test", 2 << 20, &file, 5000).unwrap();
        assert_eq!(byte((2 << 20) + 4999).unwrap(), 7);
        // The rest of the last page, the next page, and what is before the file.
        for at in [5000, 8191, 8192] {
            assert_eq!(byte((2 << 20) + at).unwrap(), 0);
        }
        assert_eq!(byte((2 << 20) - 1).unwrap(), 0);
        assert!(m.write(0, &[1]).is_err());
        for (at, length) in [
            (4096, 5000),
            (4 << 20, 5000),
            (2 << 20, (2 << 20) + 1),
            (u64::MAX << 21, 4096),
            (0, 0),
            (0, u64::MAX),
        ] {
            assert!(m.show("test", at, &file, length).is_err(), "{at}, {length}");
        }
        let writable = Mapping::anonymous("test", 2 << 20).unwrap();
        assert!(writable.show("test", 0, &file, 5000).is_err());
    }
}
