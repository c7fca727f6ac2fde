//! Entries of x86-64 four-level page tables (Intel SDM volume 3, 4.5). The VMM builds
//! the tables; the runtime edits those of the program's half of the address space.

/// The entry is used.
pub const PRESENT: u64 = 1;
/// Writing is allowed.
pub const WRITABLE: u64 = 1 << 1;
/// CPL 3 has access.
pub const USER: u64 = 1 << 2;
/// The processor used the entry.
pub const ACCESSED: u64 = 1 << 5;
/// The processor wrote to the page.
pub const DIRTY: u64 = 1 << 6;
/// An entry of the second level is a page of 2 MiB, not a table.
pub const HUGE: u64 = 1 << 7;
/// Code cannot be fetched.
pub const NO_EXECUTE: u64 = 1 << 63;
/// Bits of an entry that hold the physical address.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
