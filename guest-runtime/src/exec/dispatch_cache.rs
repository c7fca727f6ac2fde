//! A vCPU's cache of the targets of indirect jumps ([`hartline_abi::dispatch`]). Translated code
//! checks the entry of the jump instruction. If the last jump from there had another target, the
//! assembly behind [`Hart::fn_dispatch_site`] looks the guest address up in a direct-mapped cache,
//! which the dispatcher fills, and updates the entry of the jump instruction.
//!
//! [`Hart::fn_dispatch_site`]: hartline_abi::hart::Hart::fn_dispatch_site

use crate::convert::to_usize;
use alloc::boxed::Box;
use alloc::vec;
use core::fmt;
use hartline_abi::dispatch::{ADDRESSES, ENTRIES, Entry};

/// Mask of the bits of a guest address, which is even, that select the entry.
pub const INDEX_MASK: u64 = 2 * (ADDRESSES - 1);
/// Address bits from this one up are mixed in, so that functions at the same offset in their pages
/// do not compete for one entry.
pub const INDEX_SHIFT: u32 = 12;
/// Factor from the masked bits of an address to the byte offset of its entry.
pub const INDEX_SCALE: u64 = size_of::<Entry>() as u64 / 2;

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
        to_usize(((pc ^ pc >> INDEX_SHIFT) & INDEX_MASK) / 2)
    }

    /// Stores `host` as the function for `pc`. An odd `pc`, which no jump leads to, is not stored.
    pub fn insert(&mut self, pc: u64, host: u64) {
        if pc.is_multiple_of(2) {
            self.entries[Self::index(pc)] = Entry { pc, host };
            self.is_empty = false;
        }
    }

    /// The function for `pc`, if it is in the cache.
    #[must_use]
    pub fn get(&self, pc: u64) -> Option<u64> {
        let entry = self.entries[Self::index(pc)];
        (entry.pc == pc).then_some(entry.host)
    }

    /// Clears the cache.
    pub fn clear(&mut self) {
        if !self.is_empty {
            self.entries.fill(Entry::EMPTY);
            self.is_empty = true;
        }
    }
}

impl Default for DispatchCache {
    fn default() -> Self {
        Self {
            entries: vec![Entry::EMPTY; to_usize(ENTRIES)].into_boxed_slice(),
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
        // This address has the same entry: it differs only above the bits that select the entry.
        cache.insert(0x1_0000 | 1 << 37, 4);
        assert_eq!(cache.get(0x1_0000), None);
        assert_eq!(cache.get(0x1_0000 | 1 << 37), Some(4));
        let site = &mut cache.entries[to_usize(ENTRIES) - 1];
        *site = Entry { pc: 2, host: 2 };
        cache.clear();
        assert_eq!(cache.get(0x1_0002), None);
        assert!(cache.entries.iter().all(|&entry| entry == Entry::EMPTY));
        assert_eq!(cache.get(0), None);
    }
}
