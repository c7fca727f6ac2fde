//! A direct-mapped cache of host functions by guest address, for jumps between images
//! and others that an image's own table does not know. The assembly behind
//! [`Hart::fn_dispatch`](hartline_abi::hart::Hart::fn_dispatch) reads it; the dispatcher
//! fills it.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

/// Number of entries, a power of two.
const ENTRIES: u64 = 4096;
/// Mask of the bits of a guest address, which is even, that choose the entry.
pub const INDEX_MASK: u64 = 2 * (ENTRIES - 1);
/// Higher bits of the address from here on are mixed in, so that functions at the same
/// place of their pages do not all want one entry.
pub const INDEX_SHIFT: u32 = 12;
/// An entry is at 8 times the masked bits.
pub const INDEX_SCALE: u64 = size_of::<Entry>() as u64 / 2;

/// An entry.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    pc: u64,
    host: u64,
}

/// An odd address, which no jump goes to. (Programs do jump to 0.)
const EMPTY: Entry = Entry { pc: 1, host: 0 };

/// The cache.
pub struct DispatchCache {
    entries: Box<[Entry]>,
    is_empty: bool,
}

impl DispatchCache {
    /// Address of the first entry.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.entries.as_ptr() as u64
    }

    fn index(pc: u64) -> usize {
        (((pc ^ pc >> INDEX_SHIFT) & INDEX_MASK) / 2) as usize
    }

    /// Remembers that `host` is the function for `pc`. An odd `pc`, which no jump goes
    /// to, is not remembered.
    pub fn insert(&mut self, pc: u64, host: u64) {
        if pc.is_multiple_of(2) {
            self.entries[Self::index(pc)] = Entry { pc, host };
            self.is_empty = false;
        }
    }

    /// The function for `pc`, if it is remembered.
    #[must_use]
    pub fn get(&self, pc: u64) -> Option<u64> {
        let entry = self.entries[Self::index(pc)];
        (entry.pc == pc).then_some(entry.host)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if !self.is_empty {
            self.entries.fill(EMPTY);
            self.is_empty = true;
        }
    }
}

impl Default for DispatchCache {
    fn default() -> Self {
        Self {
            entries: vec![EMPTY; ENTRIES as usize].into_boxed_slice(),
            is_empty: true,
        }
    }
}

impl fmt::Debug for DispatchCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchCache")
            .field("is_empty", &self.is_empty)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_last_is_found() {
        let mut cache = DispatchCache::default();
        assert_eq!(cache.get(0), None);
        assert_eq!(cache.get(0x1_0000), None);
        cache.insert(0x1_0000, 1);
        cache.insert(0x1_0002, 2);
        cache.insert(0x1_0003, 3);
        assert_eq!(cache.get(0x1_0000), Some(1));
        assert_eq!(cache.get(0x1_0002), Some(2));
        assert_eq!(cache.get(0x1_0003), None);
        // The same entry: the difference is above all bits that choose it.
        cache.insert(0x1_0000 | 1 << 37, 4);
        assert_eq!(cache.get(0x1_0000), None);
        assert_eq!(cache.get(0x1_0000 | 1 << 37), Some(4));
        cache.clear();
        assert_eq!(cache.get(0x1_0002), None);
        assert_eq!(cache.get(0), None);
    }
}
