//! The memory of a program in a VM that stands still or has ended, through the page tables that its runtime left. Both
//! may have any contents.

use crate::platform::Mapping;
use hartline_abi::boot::Shared;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, RAM_GPA, USER_END};
use hartline_abi::paging::{ADDRESS, HUGE, PRESENT};
use hartline_abi::report::{FileMapping, FileMappings, MAX_FILE_MAPPINGS};
use std::mem::offset_of;
use std::sync::Arc;

/// The code that a program has mapped, as the guest reports it in the shared pages.
pub(crate) fn file_mappings(shared: &Mapping) -> Vec<FileMapping> {
    let at = |field: usize| (offset_of!(Shared, mappings) + field) as u64;
    let count = shared.read_value::<u64>(at(0)).unwrap_or(0);
    let entry = |index: usize| {
        let offset = offset_of!(FileMappings, entries) + index * size_of::<FileMapping>();
        shared.read_value::<FileMapping>(at(offset)).ok()
    };
    let count = usize::try_from(count).map_or(MAX_FILE_MAPPINGS, |n| n.min(MAX_FILE_MAPPINGS));
    (0..count).filter_map(entry).collect()
}

/// The memory of a program, as far as it is in RAM: pages that were never touched, and pages of files
/// that no program has written, are not there.
#[derive(Debug)]
pub struct ProgramMemory {
    ram: Arc<Mapping>,
    /// Guest-physical address of the top-level page table.
    table: u64,
}

impl ProgramMemory {
    pub(crate) fn new(ram: Arc<Mapping>, table: u64) -> Self {
        Self { ram, table }
    }

    /// Reads bytes at an address of the program. Returns whether all of them are in RAM.
    #[must_use]
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let (mut at, mut rest) = (address, bytes);
        while !rest.is_empty() {
            let left = PAGE_SIZE - at % PAGE_SIZE;
            let length = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
            let (part, after) = rest.split_at_mut(length);
            let is_read = self
                .offset(at)
                .is_some_and(|offset| self.ram.read(offset, part).is_ok());
            if !is_read {
                return false;
            }
            at = at.wrapping_add(length as u64);
            rest = after;
        }
        true
    }

    /// Offset in RAM of the byte at an address of the program.
    fn offset(&self, address: u64) -> Option<u64> {
        /// Bits of an address below the index in the table of each level.
        const LEVELS: [u32; 4] = [39, 30, 21, 12];
        if address >= USER_END {
            return None;
        }
        let mut table = self.table;
        for shift in LEVELS {
            let index = address >> shift & 0x1ff;
            let slot = (table & ADDRESS).checked_sub(RAM_GPA)?;
            let entry = self
                .ram
                .read_value::<u64>(slot.checked_add(index * 8)?)
                .ok()?;
            if entry & PRESENT == 0 {
                return None;
            }
            table = entry & ADDRESS;
            if shift == 21 && entry & HUGE != 0 {
                let page = table & !(HUGE_PAGE_SIZE - 1);
                return page
                    .checked_add(address % HUGE_PAGE_SIZE)?
                    .checked_sub(RAM_GPA);
            }
        }
        table.checked_add(address % PAGE_SIZE)?.checked_sub(RAM_GPA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with one small page, one huge page, and tables that lead anywhere.
    #[test]
    fn pages_are_found_and_bad_tables_are_not_followed() {
        let ram = Mapping::anonymous("RAM", 8 << 20).unwrap();
        let write = |table: u64, index: u64, value: u64| {
            let bytes = value.to_le_bytes();
            ram.write(table * PAGE_SIZE + index * 8, &bytes).unwrap();
        };
        let page = |number: u64| (RAM_GPA + number * PAGE_SIZE) | PRESENT;
        write(1, 0, page(2));
        write(2, 0, page(3));
        write(3, 0, page(4));
        write(3, 1, (RAM_GPA + HUGE_PAGE_SIZE) | PRESENT | HUGE);
        write(3, 2, u64::MAX);
        write(3, 3, PRESENT);
        write(4, 16, page(5));
        write(4, 17, page(1 << 30));
        ram.write(5 * PAGE_SIZE + 0xff8, b"12345678").unwrap();
        ram.write(HUGE_PAGE_SIZE + 5, b"huge").unwrap();
        let memory = ProgramMemory::new(Arc::new(ram), RAM_GPA + PAGE_SIZE);
        let read = |address| {
            let mut bytes = [0; 4];
            memory.read(address, &mut bytes).then_some(bytes)
        };
        assert_eq!(read(0x10ffc), Some(*b"5678"));
        assert_eq!(read(0x10ffd), None);
        assert_eq!(read(HUGE_PAGE_SIZE + 5), Some(*b"huge"));
        for hole in [
            0,
            0x12000,
            2 * HUGE_PAGE_SIZE,
            3 * HUGE_PAGE_SIZE,
            USER_END,
            u64::MAX,
        ] {
            assert_eq!(read(hole), None, "{hole:#x}");
        }
        for table in [0, RAM_GPA - PAGE_SIZE, u64::MAX] {
            let lost = ProgramMemory::new(Arc::clone(&memory.ram), table);
            assert!(!lost.read(0x10ffc, &mut [0]));
        }
    }
}
