//! Contents of a regular file: pages in memory over the bytes of the root file system image, if the
//! file is from the image.
//!
//! A page is copied when it is first written. A range in neither a page nor the image is a hole and
//! reads as zeros.

use super::budget::Budget;
use super::pages::Pages;
use crate::convert::to_usize;
use crate::mm::{SharedFrames, SharedMemory};
use crate::mm::{UserSlice, UserSliceMut};
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;

/// Page size, bytes.
pub const PAGE: u64 = 4096;

/// [`PAGE`] as the length of a slice.
pub(super) const PAGE_LENGTH: usize = to_usize(PAGE);

/// Cost of a page in memory with its entry in the map, bytes.
pub(super) const PAGE_COST: u64 = PAGE + 64;

/// Largest file (`MAX_LFS_FILESIZE`).
pub const MAX_SIZE: u64 = i64::MAX as u64;

/// File contents.
#[derive(Debug, Default)]
pub struct FileData {
    /// Bytes in the image, which pages override. Never longer than `size`.
    base: &'static [u8],
    size: u64,
    pages: Pages,
    /// Number of charged pages. Programs that have the file mapped add pages.
    charged: u64,
}

impl FileData {
    /// File contents that consist of `base`.
    pub fn from_image(base: &'static [u8]) -> Self {
        Self {
            base,
            size: base.len() as u64,
            ..Self::default()
        }
    }

    /// A copy of the contents. The bytes of the image are shared.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn copy(&self, budget: &mut Budget) -> Result<Self, Errno> {
        let mut copy = Self {
            base: self.base,
            size: self.size,
            ..Self::default()
        };
        let mut page = alloc::vec![0; PAGE_LENGTH];
        let mut from = 0;
        while let Some(index) = self.pages.next(from) {
            self.pages.copy_out(index, 0, (&mut page).into());
            if let Err(error) = copy.make_page(budget, index, true) {
                copy.clear(budget);
                return Err(error);
            }
            copy.pages.copy_in(index, 0, (&*page).into());
            from = index + 1;
        }
        Ok(copy)
    }

    /// Length, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Memory and image space in use, in units of 512 bytes (`st_blocks`).
    pub fn blocks(&self) -> u64 {
        let base_pages = (self.base.len() as u64).div_ceil(PAGE);
        let hidden = self.pages.count_below(base_pages);
        (base_pages - hidden + self.pages.count()) * (PAGE / 512)
    }

    /// The whole contents as one slice, if no page overrides a part of the image.
    pub fn as_image(&self) -> Option<&'static [u8]> {
        (self.pages.count() == 0 && self.base.len() as u64 == self.size).then_some(self.base)
    }

    /// Reads from `offset`. Returns how many bytes of `to` were filled: fewer than all only at the
    /// end of the file.
    pub fn read<'a>(&self, offset: u64, to: impl Into<UserSliceMut<'a>>) -> usize {
        let mut to = to.into();
        let available = self.size.saturating_sub(offset);
        let length = usize::try_from(available).map_or(to.len(), |n| n.min(to.len()));
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, to_usize(at % PAGE));
            let mut part = to.part(done, length - done);
            let n = part.len().min(PAGE_LENGTH - within);
            done += match self.pages.copy_out(index, within, part.part(0, n)) {
                true => n,
                false => self.read_base(index, at, part),
            };
        }
        length
    }

    /// Reads at `at`, in page `index`, up to the next page in memory.
    fn read_base(&self, index: u64, at: u64, mut to: UserSliceMut<'_>) -> usize {
        let next = self.pages.next(index);
        let limit = next.map_or(u64::MAX, |index| index * PAGE - at);
        let n = usize::try_from(limit).map_or(to.len(), |n| n.min(to.len()));
        let mut to = to.part(0, n);
        let base = usize::try_from(at).ok().and_then(|at| self.base.get(at..));
        let base = base.unwrap_or(&[]);
        let copied = to.copy_start(base);
        to.part(copied, n - copied).fill(0);
        n
    }

    /// Writes at `offset`. Returns the number of bytes written: fewer than all if space ran out.
    ///
    /// # Errors
    /// `EFBIG` beyond [`MAX_SIZE`], `ENOSPC` if there is no space for the first byte.
    pub fn write<'a>(
        &mut self,
        budget: &mut Budget,
        offset: u64,
        from: impl Into<UserSlice<'a>>,
    ) -> Result<usize, Errno> {
        let from = from.into();
        if from.is_empty() {
            return Ok(0);
        }
        let room = MAX_SIZE.saturating_sub(offset);
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        let length = usize::try_from(room).map_or(from.len(), |n| n.min(from.len()));
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = to_usize(at % PAGE);
            let n = (length - done).min(PAGE_LENGTH - within);
            let whole = n == PAGE_LENGTH;
            match self.make_page(budget, at / PAGE, whole) {
                Ok(()) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            self.pages
                .copy_in(at / PAGE, within, from.skip(done).first(n));
            done += n;
        }
        self.size = self.size.max(offset + done as u64);
        self.pages.set_size(self.size);
        Ok(done)
    }

    /// Creates page `index` as a copy, if it is not in memory. `overwritten`: the caller replaces
    /// all of it, so nothing is copied.
    fn make_page(
        &mut self,
        budget: &mut Budget,
        index: u64,
        overwritten: bool,
    ) -> Result<(), Errno> {
        if self.pages.contains(index) {
            return Ok(());
        }
        budget.charge(PAGE_COST)?;
        self.pages
            .insert(index)
            .inspect_err(|_| budget.refund(PAGE_COST))?;
        self.charged += 1;
        let start = usize::try_from(index * PAGE).ok();
        let base = start.and_then(|start| self.base.get(start..));
        if let (Some(base), false) = (base, overwritten) {
            let n = base.len().min(PAGE_LENGTH);
            self.pages.copy_in(index, 0, (&base[..n]).into());
        }
        Ok(())
    }

    /// Removes pages and releases their memory.
    fn drop_pages(&mut self, budget: &mut Budget, first: u64, end: u64) {
        let refunded = self.pages.remove(first, end).min(self.charged);
        self.charged -= refunded;
        budget.refund(refunded * PAGE_COST);
    }

    /// The contents as memory that programs can map.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn share(
        &mut self,
        budget: &mut Budget,
        frames: &'static SharedFrames,
    ) -> Result<Rc<SharedMemory>, Errno> {
        for index in 0..(self.base.len() as u64).div_ceil(PAGE) {
            self.make_page(budget, index, false)
                .map_err(|_| Errno::ENOMEM)?;
        }
        self.base = &[];
        self.pages.share(frames, self.size)
    }

    /// The memory that programs have mapped at some time.
    pub fn memory(&self) -> Option<&Rc<SharedMemory>> {
        self.pages.memory()
    }

    /// Sets the length; new bytes read as zeros.
    ///
    /// # Errors
    /// `EFBIG` beyond [`MAX_SIZE`].
    pub fn truncate(&mut self, budget: &mut Budget, size: u64) -> Result<(), Errno> {
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        if size < self.size {
            self.drop_pages(budget, size.div_ceil(PAGE), u64::MAX);
            self.pages
                .clear(size / PAGE, to_usize(size % PAGE), PAGE_LENGTH);
            let keep = usize::try_from(size).unwrap_or(usize::MAX);
            self.base = &self.base[..self.base.len().min(keep)];
        }
        self.size = size;
        self.pages.set_size(size);
        Ok(())
    }

    /// Reserves pages for a range (`fallocate`); the length does not change.
    ///
    /// # Errors
    /// `ENOSPC` if they do not all fit; none of them is reserved then.
    pub fn allocate(&mut self, budget: &mut Budget, from: u64, to: u64) -> Result<(), Errno> {
        let (first, last) = (from / PAGE, to.div_ceil(PAGE));
        let base_pages = (self.base.len() as u64).div_ceil(PAGE);
        let first = first.max(base_pages.min(last));
        if (last - first).saturating_mul(PAGE_COST) > budget.limit() {
            return Err(Errno::ENOSPC);
        }
        let mut added = Vec::new();
        for index in first..last {
            if self.pages.contains(index) {
                continue;
            }
            if let Err(error) = self.make_page(budget, index, false) {
                for &index in &added {
                    self.drop_pages(budget, index, index + 1);
                }
                return Err(error);
            }
            added.push(index);
        }
        Ok(())
    }

    /// Makes a range read as zeros, and releases its memory where possible.
    ///
    /// # Errors
    /// `ENOSPC` if overriding bytes of the image needs more memory than is available.
    pub fn punch(&mut self, budget: &mut Budget, from: u64, to: u64) -> Result<(), Errno> {
        let base_pages = (self.base.len() as u64).div_ceil(PAGE);
        let first_whole = from.div_ceil(PAGE);
        let last_whole = (to / PAGE).max(first_whole);
        let beyond = first_whole.max(base_pages);
        self.drop_pages(budget, beyond, last_whole.max(beyond));
        for index in first_whole..last_whole.min(base_pages) {
            self.make_page(budget, index, true)?;
            self.pages.clear(index, 0, PAGE_LENGTH);
        }
        self.zero_edge(budget, from, to.min(first_whole * PAGE))?;
        self.zero_edge(budget, from.max(last_whole * PAGE), to)
    }

    /// Zeroes a range within one page.
    fn zero_edge(&mut self, budget: &mut Budget, from: u64, to: u64) -> Result<(), Errno> {
        let index = from / PAGE;
        let is_hole = !self.pages.contains(index) && from >= self.base.len() as u64;
        if from >= to || is_hole {
            return Ok(());
        }
        let start = index * PAGE;
        self.make_page(budget, index, false)?;
        let within = to_usize(from - start)..to_usize(to - start);
        self.pages.clear(index, within.start, within.end);
        Ok(())
    }

    /// Start of the data at or after `offset` (`SEEK_DATA`).
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        if offset < self.base.len() as u64 || self.pages.contains(offset / PAGE) {
            return Some(offset);
        }
        let next = self.pages.next(offset / PAGE);
        next.map(|index| index * PAGE).filter(|&at| at < self.size)
    }

    /// Start of the hole at or after `offset` (`SEEK_HOLE`); the end of the file counts as one.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let base_pages = (self.base.len() as u64).div_ceil(PAGE);
        let mut index = offset / PAGE;
        while index < base_pages || self.pages.contains(index) {
            index = (index + 1).max(base_pages);
        }
        Some((index * PAGE).clamp(offset, self.size))
    }

    /// Releases all memory.
    pub fn clear(&mut self, budget: &mut Budget) {
        budget.refund(self.charged * PAGE_COST);
        *self = Self::default();
    }
}
