//! The pages of RAM that the guest uses as page tables in a template.
//!
//! With shadow paging, KVM keeps its own copy of the guest's page tables, and notices the guest's writes to
//! them, but not those of the VMM. So the VMM must know which pages they are.

use crate::platform::{self, Mapping};
use hartline_abi::layout::{PAGE_SIZE, RAM_GPA};
use hartline_abi::paging::{ACCESSED, ADDRESS, DIRTY, HUGE, PRESENT};
use std::collections::BTreeSet;
use std::ops::Range;

const ENTRIES: usize = 512;
/// Levels of the tables below the top-level one.
const LEVELS: u32 = 3;
/// Bits that the processor sets, and that change no mapping.
const USED: u64 = ACCESSED | DIRTY;

/// The entries of a table.
type Table = [u64; ENTRIES];

/// Offsets in RAM of page tables.
#[derive(Debug, Default)]
pub(super) struct Tables(BTreeSet<u64>);

impl Tables {
    /// The tables in `ram`, of which `used` may have contents other than zeros. `root` is the guest-physical
    /// address of one top-level table. Every page that has the same entries outside the program's half
    /// is taken for one too.
    ///
    /// # Errors
    /// The root is not in RAM: the guest runs with page tables that it may not have.
    pub fn of(
        ram: &Mapping,
        root: u64,
        used: &[Range<u64>],
    ) -> Result<Option<Self>, platform::Error> {
        let Some(root) = offset_of(ram, root) else {
            return Ok(None);
        };
        let shared = read(ram, root)?;
        let mut tables = Self::default();
        let pages = used.iter().flat_map(|range| range.clone().step_by(4096));
        for page in pages {
            let last = (ENTRIES - 1) as u64 * 8;
            // Most pages differ in this entry already.
            let entry = ram.read_value::<u64>(page + last)?;
            if (entry ^ shared[ENTRIES - 1]) & !USED == 0 && is_sibling(&read(ram, page)?, &shared)
            {
                tables.add(ram, page, LEVELS)?;
            }
        }
        tables.add(ram, root, LEVELS)?;
        Ok(Some(tables))
    }

    fn add(&mut self, ram: &Mapping, table: u64, levels: u32) -> Result<(), platform::Error> {
        if !self.0.insert(table) || levels == 0 {
            return Ok(());
        }
        for entry in read(ram, table)? {
            let is_table = entry & PRESENT != 0 && (levels == LEVELS || entry & HUGE == 0);
            if let Some(child) = offset_of(ram, entry & ADDRESS).filter(|_| is_table) {
                self.add(ram, child, levels - 1)?;
            }
        }
        Ok(())
    }

    /// Adds the entries of tables in a range of offsets that have other mappings in `ram` than in `before`: their
    /// offsets, and the values that they had before.
    ///
    /// # Errors
    /// The range is not in RAM: a bug.
    pub fn changes(
        &self,
        range: &Range<u64>,
        (ram, before): (&Mapping, &Mapping),
        changes: &mut Vec<(u64, u64)>,
    ) -> Result<(), platform::Error> {
        for &table in self.0.range(range.clone()) {
            let (now, before) = (read(ram, table)?, read(before, table)?);
            let entries = now.iter().zip(before).zip((table..).step_by(8));
            let changed = entries.filter(|((now, before), _)| (*now ^ before) & !USED != 0);
            changes.extend(changed.map(|((_, before), at)| (at, before)));
        }
        Ok(())
    }

    /// Number of tables.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The offset in RAM of a page at a guest-physical address.
fn offset_of(ram: &Mapping, address: u64) -> Option<u64> {
    let offset = address.checked_sub(RAM_GPA)?;
    (offset.is_multiple_of(PAGE_SIZE) && offset < ram.length()).then_some(offset)
}

fn read(ram: &Mapping, table: u64) -> Result<Table, platform::Error> {
    ram.read_value::<Table>(table)
}

/// Whether two top-level tables have the same mappings outside the program's half.
fn is_sibling(one: &Table, other: &Table) -> bool {
    let mut entries = one.iter().zip(other).skip(1);
    entries.all(|(one, other)| (one ^ other) & !USED == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_abi::paging::WRITABLE;

    const PAGE: u64 = PAGE_SIZE;

    fn entry(page: u64) -> u64 {
        (RAM_GPA + page * PAGE) | PRESENT | WRITABLE
    }

    fn set(ram: &Mapping, page: u64, index: u64, entry: u64) {
        ram.write_value(page * PAGE + index * 8, entry).unwrap();
    }

    /// A boot table in page 0 with tables in pages 1 to 3, and one of a process in page 8, with 9.
    fn ram() -> Mapping {
        let ram = Mapping::anonymous("test", 2 << 20).unwrap();
        set(&ram, 0, 511, entry(1));
        set(&ram, 1, 0, entry(2));
        set(&ram, 2, 0, entry(20) | HUGE);
        set(&ram, 2, 1, entry(3));
        set(&ram, 3, 0, entry(21));
        set(&ram, 8, 511, entry(1) | ACCESSED);
        set(&ram, 8, 0, entry(9));
        // Has the last entry, but another one too: no table.
        set(&ram, 10, 511, entry(1));
        set(&ram, 10, 5, entry(11));
        ram
    }

    #[test]
    fn tables_are_those_that_a_root_reaches() {
        let ram = ram();
        let tables = Tables::of(&ram, RAM_GPA, &[0..8 * PAGE, 8 * PAGE..16 * PAGE])
            .unwrap()
            .unwrap();
        let expected = [0, 1, 2, 3, 8, 9].map(|page| page * PAGE);
        assert_eq!(tables.0.iter().copied().collect::<Vec<_>>(), expected);
        assert!(Tables::of(&ram, RAM_GPA - PAGE, &[]).unwrap().is_none());
        assert!(
            Tables::of(&ram, RAM_GPA + (2 << 20), &[])
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn used_bits_are_no_change() {
        let (before, now) = (ram(), ram());
        let tables = Tables::of(&before, RAM_GPA, &[0..8 * PAGE, 8 * PAGE..16 * PAGE])
            .unwrap()
            .unwrap();
        let changes = |range| {
            let mut changes = Vec::new();
            tables
                .changes(&range, (&now, &before), &mut changes)
                .unwrap();
            changes
        };
        set(&now, 3, 0, entry(21) | ACCESSED | DIRTY);
        set(&now, 12, 0, 5);
        assert_eq!(changes(0..16 * PAGE), []);
        set(&now, 9, 7, entry(30));
        assert_eq!(changes(0..16 * PAGE), [(9 * PAGE + 56, 0)]);
        assert_eq!(changes(0..9 * PAGE), []);
    }

    /// Loops and wild entries end.
    #[test]
    fn hostile_tables_end() {
        let ram = ram();
        for index in 0..512 {
            set(&ram, 0, index, entry(0));
            set(&ram, 1, index, u64::MAX);
        }
        assert_eq!(Tables::of(&ram, RAM_GPA, &[]).unwrap().unwrap().count(), 1);
    }
}
