//! Entries of x86-64 four-level page tables (Intel SDM volume 3, 4.5). The VMM builds the tables;
//! the runtime edits the part for the program's half of the address space.

/// The entry is present.
pub const PRESENT: u64 = 1;
/// Writes are allowed.
pub const WRITABLE: u64 = 1 << 1;
/// CPL 3 has access.
pub const USER: u64 = 1 << 2;
/// The CPU has used the entry.
pub const ACCESSED: u64 = 1 << 5;
/// The CPU has written to the page.
pub const DIRTY: u64 = 1 << 6;
/// The second-level entry maps a page of 2 MiB.
pub const HUGE: u64 = 1 << 7;
/// Instruction fetches are not allowed.
pub const NO_EXECUTE: u64 = 1 << 63;
/// Bits of an entry for the physical address.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
