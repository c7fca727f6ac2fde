//! Four-level page tables, built in guest RAM before the guest starts
//! (Intel SDM volume 3, 4.5).

use super::Error;
use crate::platform::Mapping;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, RAM_GPA};
use hartline_abi::paging::{ACCESSED, ADDRESS, DIRTY, HUGE, NO_EXECUTE, PRESENT, USER, WRITABLE};
use std::sync::atomic::Ordering;

/// The access rights of a page. No page is both writable and executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// CPL 3 reads.
    Read,
    /// CPL 3 reads and writes.
    ReadWrite,
    /// CPL 3 reads and executes.
    ReadExecute,
    /// CPL 0 reads and executes, CPL 3 has no access.
    Supervisor,
}

impl Permission {
    /// Leaf flags. Accessed and dirty are set, so that the processor (or KVM's shadow paging) need
    /// not set them.
    fn flags(self) -> u64 {
        let specific = match self {
            Self::Read => USER | NO_EXECUTE,
            Self::ReadWrite => USER | WRITABLE | NO_EXECUTE,
            Self::ReadExecute => USER,
            Self::Supervisor => 0,
        };
        PRESENT | ACCESSED | DIRTY | specific
    }
}

/// Page tables under construction.
#[derive(Debug)]
pub struct PageTables<'a> {
    ram: &'a Mapping,
    /// Offset in RAM of the next free table.
    next: u64,
    /// Offset in RAM of the end of the room for tables.
    end: u64,
}

impl<'a> PageTables<'a> {
    /// Offset in RAM of the top-level table.
    pub const ROOT: u64 = 0;

    /// Starts with an empty top-level table; tables take RAM up to offset `end`.
    #[must_use]
    pub fn new(ram: &'a Mapping, end: u64) -> Self {
        Self {
            ram,
            next: Self::ROOT + PAGE_SIZE,
            end,
        }
    }

    /// Maps `length` bytes from `address` to physical memory from `gpa`, with 4 KiB
    /// pages. All three are multiples of 4 KiB.
    ///
    /// # Errors
    /// [`Error::PageTables`] if a page is mapped already or the room is used up.
    pub fn map(
        &mut self,
        address: u64,
        gpa: u64,
        length: u64,
        permission: Permission,
    ) -> Result<(), Error> {
        self.map_pages(address, gpa, length, permission, 1)
    }

    /// As [`PageTables::map`], with 2 MiB pages and multiples of 2 MiB.
    ///
    /// # Errors
    /// As [`PageTables::map`].
    pub fn map_huge(
        &mut self,
        address: u64,
        gpa: u64,
        length: u64,
        permission: Permission,
    ) -> Result<(), Error> {
        self.map_pages(address, gpa, length, permission, 2)
    }

    /// As [`PageTables::map`], with 2 MiB pages where both addresses are multiples of 2 MiB.
    ///
    /// # Errors
    /// As [`PageTables::map`].
    pub fn map_largest(
        &mut self,
        address: u64,
        gpa: u64,
        length: u64,
        permission: Permission,
    ) -> Result<(), Error> {
        let fits = address % HUGE_PAGE_SIZE == gpa % HUGE_PAGE_SIZE;
        let head = (address.next_multiple_of(HUGE_PAGE_SIZE) - address).min(length);
        let middle = (length - head) / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
        if !fits || middle == 0 {
            return self.map(address, gpa, length, permission);
        }
        self.map(address, gpa, head, permission)?;
        self.map_huge(address + head, gpa + head, middle, permission)?;
        let tail = head + middle;
        self.map(address + tail, gpa + tail, length - tail, permission)
    }

    /// Maps pages. `level` is the level of the leaves: 1 for 4 KiB, 2 for 2 MiB.
    fn map_pages(
        &mut self,
        address: u64,
        gpa: u64,
        length: u64,
        permission: Permission,
        level: u32,
    ) -> Result<(), Error> {
        let (page, size_flag) = if level == 1 {
            (PAGE_SIZE, 0)
        } else {
            (HUGE_PAGE_SIZE, HUGE)
        };
        if !(address | gpa | length).is_multiple_of(page) {
            return Err(Error::PageTables { address });
        }
        let mut offset = 0;
        while offset < length {
            let table = self.table(address + offset, level)?;
            // One walk for all leaves of a table.
            let mut index = index(address + offset, level);
            while index < 512 && offset < length {
                let entry = self.ram.atomic_u64(table + index * 8)?;
                if entry.load(Ordering::Relaxed) != 0 {
                    return Err(Error::PageTables {
                        address: address + offset,
                    });
                }
                let leaf = (gpa + offset) | permission.flags() | size_flag;
                entry.store(leaf, Ordering::Relaxed);
                offset += page;
                index += 1;
            }
        }
        Ok(())
    }

    /// Offset in RAM of the table of `level` that covers `address`; made if missing.
    fn table(&mut self, address: u64, level: u32) -> Result<u64, Error> {
        let mut table = Self::ROOT;
        for upper in (level + 1..=4).rev() {
            let entry = self.ram.atomic_u64(table + index(address, upper) * 8)?;
            let value = entry.load(Ordering::Relaxed);
            table = match value {
                0 => {
                    if self.next >= self.end {
                        return Err(Error::PageTables { address });
                    }
                    let new = self.next;
                    self.next += PAGE_SIZE;
                    let link = (RAM_GPA + new) | PRESENT | WRITABLE | USER | ACCESSED;
                    entry.store(link, Ordering::Relaxed);
                    new
                }
                leaf if leaf & HUGE != 0 => return Err(Error::PageTables { address }),
                link => (link & ADDRESS) - RAM_GPA,
            };
        }
        Ok(table)
    }
}

/// Index of `address` in its table of `level` (1 to 4).
fn index(address: u64, level: u32) -> u64 {
    address >> (12 + 9 * (level - 1)) & 511
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The tables' translation of an address: physical address and leaf flags.
    pub(crate) fn walk(ram: &Mapping, address: u64) -> Option<(u64, u64)> {
        let mut table = PageTables::ROOT;
        for level in (1..=4).rev() {
            let entry = ram.atomic_u64(table + index(address, level) * 8).unwrap();
            let value = entry.load(Ordering::Relaxed);
            if value & PRESENT == 0 {
                return None;
            }
            if level == 1 || value & HUGE != 0 {
                let mask = (PAGE_SIZE << (9 * (level - 1))) - 1;
                return Some(((value & ADDRESS) + (address & mask), value & !ADDRESS));
            }
            table = (value & ADDRESS) - RAM_GPA;
        }
        None
    }

    /// Whether CPL 3 may (write, execute) at an address; `None` if it cannot read.
    pub(crate) fn rights(ram: &Mapping, address: u64) -> Option<(bool, bool)> {
        let (_, flags) = walk(ram, address)?;
        (flags & USER != 0).then_some((flags & WRITABLE != 0, flags & NO_EXECUTE == 0))
    }

    #[test]
    fn maps_what_was_asked_for() {
        let ram = Mapping::anonymous("test", 2 << 20).unwrap();
        let mut tables = PageTables::new(&ram, 1 << 20);
        tables
            .map(0x7f_ffff_f000, 0x1000, 0x3000, Permission::Read)
            .unwrap();
        tables
            .map_huge(3 << 40, 8 << 20, 1 << 30, Permission::ReadWrite)
            .unwrap();
        tables
            .map(7 << 40, 0x10_0000, 0x1000, Permission::Supervisor)
            .unwrap();
        assert_eq!(walk(&ram, 0x7f_ffff_fabc).unwrap().0, 0x1abc);
        assert_eq!(walk(&ram, 0x80_0000_1abc).unwrap().0, 0x3abc);
        assert_eq!(rights(&ram, 0x80_0000_1abc), Some((false, false)));
        assert_eq!(walk(&ram, 0x80_0000_2000), None);
        assert_eq!(
            walk(&ram, (3 << 40) + (1 << 30) - 1).unwrap().0,
            (8 << 20) + (1 << 30) - 1
        );
        assert_eq!(rights(&ram, 3 << 40), Some((true, false)));
        assert_eq!(rights(&ram, 7 << 40), None);
        assert!(walk(&ram, 7 << 40).is_some());
    }

    #[test]
    fn the_largest_pages_that_fit_are_used() {
        const GPA: u64 = 0x1_0000_0000;
        let ram = Mapping::anonymous("test", 2 << 20).unwrap();
        let mut tables = PageTables::new(&ram, 1 << 20);
        let is_huge = |address| walk(&ram, address).unwrap().1 & HUGE != 0;
        for (number, (start, length, huge)) in [
            (0x1f_f000, 0x40_2000, true),
            (0x20_0000, 0x20_0000, true),
            (0x20_0000, 0x1f_f000, false),
            (0x1f_f000, 0x20_0000, false),
            (0x1f_f000, 0x1000, false),
        ]
        .into_iter()
        .enumerate()
        {
            let address = ((number as u64 + 1) << 30) + start;
            let gpa = GPA + start;
            tables
                .map_largest(address, gpa, length, Permission::Read)
                .unwrap();
            for at in (0..length).step_by(0x1000) {
                assert_eq!(walk(&ram, address + at).unwrap().0, gpa + at);
            }
            for outside in [address - 0x1000, address + length] {
                assert_eq!(walk(&ram, outside), None);
            }
            let middle = address.next_multiple_of(HUGE_PAGE_SIZE);
            assert_eq!(walk(&ram, middle).is_some() && is_huge(middle), huge);
        }
        // The addresses have different places in their huge pages.
        tables
            .map_largest(8 << 30, GPA + 0x1000, 0x80_0000, Permission::Read)
            .unwrap();
        assert!(!is_huge((8 << 30) + 0x20_0000));
    }

    #[test]
    fn overlaps_misalignment_and_exhaustion_are_errors() {
        let ram = Mapping::anonymous("test", 2 << 20).unwrap();
        let mut tables = PageTables::new(&ram, 5 << 12);
        tables.map_huge(0, 0, 2 << 20, Permission::Read).unwrap();
        assert!(tables.map(0x1000, 0, 0x1000, Permission::Read).is_err());
        assert!(
            tables
                .map_huge(0x1000, 0, 2 << 20, Permission::Read)
                .is_err()
        );
        assert!(tables.map_huge(0, 0, 2 << 20, Permission::Read).is_err());
        assert!(tables.map(1 << 40, 0, 0x1000, Permission::Read).is_err());
    }
}
