//! Pages of a file in memory: on the heap, or in memory that programs can map.

use super::data::{PAGE, PAGE_LENGTH};
use crate::mm::{SharedFrames, SharedMemory, UserSlice, UserSliceMut};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;

/// Pages by their index in the file.
#[derive(Debug)]
pub enum Pages {
    /// On the heap.
    Heap(BTreeMap<u64, Box<[u8]>>),
    /// In mappable memory: programs have mapped the file at some time.
    Shared(Rc<SharedMemory>),
}

impl Default for Pages {
    fn default() -> Self {
        Self::Heap(BTreeMap::new())
    }
}

fn new_page() -> Result<Box<[u8]>, Errno> {
    let mut page = Vec::new();
    page.try_reserve_exact(PAGE_LENGTH)
        .map_err(|_| Errno::ENOSPC)?;
    page.resize(PAGE_LENGTH, 0);
    Ok(page.into_boxed_slice())
}

impl Pages {
    /// Whether page `index` exists.
    pub fn contains(&self, index: u64) -> bool {
        match self {
            Self::Heap(pages) => pages.contains_key(&index),
            Self::Shared(memory) => memory.contains(index * PAGE),
        }
    }

    /// The first existing page at or after `index`.
    pub fn next(&self, index: u64) -> Option<u64> {
        match self {
            Self::Heap(pages) => pages.range(index..).next().map(|(&index, _)| index),
            Self::Shared(memory) => memory.next(index.checked_mul(PAGE)?).map(|at| at / PAGE),
        }
    }

    /// Number of existing pages.
    pub fn count(&self) -> u64 {
        match self {
            Self::Heap(pages) => pages.len() as u64,
            Self::Shared(memory) => memory.count(),
        }
    }

    /// Number of existing pages below `index`.
    pub fn count_below(&self, index: u64) -> u64 {
        let (mut at, mut count) = (0, 0);
        while let Some(found) = self.next(at).filter(|&found| found < index) {
            (at, count) = (found + 1, count + 1);
        }
        count
    }

    /// Creates page `index`, which must not exist, with zeros.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn insert(&mut self, index: u64) -> Result<(), Errno> {
        match self {
            Self::Heap(pages) => {
                pages.insert(index, new_page()?);
                Ok(())
            }
            Self::Shared(memory) => memory.insert(index * PAGE).map_err(|_| Errno::ENOSPC),
        }
    }

    /// Removes pages from `first` up to `end`. Returns the number of removed pages.
    pub fn remove(&mut self, first: u64, end: u64) -> u64 {
        match self {
            Self::Heap(pages) => pages.extract_if(first..end, |_, _| true).count() as u64,
            Self::Shared(memory) => {
                memory.discard(first.saturating_mul(PAGE)..end.saturating_mul(PAGE))
            }
        }
    }

    /// Copies from page `index`. Returns whether it exists.
    pub fn copy_out(&self, index: u64, within: usize, mut to: UserSliceMut<'_>) -> bool {
        match self {
            Self::Heap(pages) => match pages.get(&index) {
                Some(page) => {
                    to.copy_from(&page[within..within + to.len()]);
                    true
                }
                None => false,
            },
            Self::Shared(memory) => memory.copy_out(index * PAGE, within as u64, to),
        }
    }

    /// Copies into page `index`, which must exist.
    pub fn copy_in(&mut self, index: u64, within: usize, from: UserSlice<'_>) {
        match self {
            Self::Heap(pages) => {
                if let Some(page) = pages.get_mut(&index) {
                    from.copy_to(&mut page[within..within + from.len()]);
                }
            }
            Self::Shared(memory) => {
                memory.copy_in(index * PAGE, within as u64, from);
            }
        }
    }

    /// Zeroes bytes `from` up to `to` of page `index`, if it exists.
    pub fn clear(&mut self, index: u64, from: usize, to: usize) {
        const ZEROS: [u8; PAGE_LENGTH] = [0; PAGE_LENGTH];
        self.copy_in(index, from, (&ZEROS[..to - from]).into());
    }

    /// The pages as memory that programs can map; `size` is the length of the file.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn share(
        &mut self,
        frames: &'static SharedFrames,
        size: u64,
    ) -> Result<Rc<SharedMemory>, Errno> {
        let pages = match self {
            Self::Shared(memory) => return Ok(Rc::clone(memory)),
            Self::Heap(pages) => pages,
        };
        let memory = Rc::new(SharedMemory::new(frames, size, None));
        for (&index, page) in pages.iter() {
            memory.insert(index * PAGE).map_err(|_| Errno::ENOMEM)?;
            memory.copy_in(index * PAGE, 0, (&**page).into());
        }
        *self = Self::Shared(Rc::clone(&memory));
        Ok(memory)
    }

    /// Sets the file length that mappings of the file see.
    pub fn set_size(&self, size: u64) {
        if let Self::Shared(memory) = self {
            memory.set_size(size);
        }
    }

    /// The memory that programs have mapped at some time.
    pub fn memory(&self) -> Option<&Rc<SharedMemory>> {
        match self {
            Self::Heap(_) => None,
            Self::Shared(memory) => Some(memory),
        }
    }
}
