//! The Linux riscv64 (asm-generic) system calls: one file per area, each with a
//! table of its calls.

use crate::errno::Errno;
use crate::kernel::Kernel;

/// Serves one system call: `arguments` are `a0`–`a5`, the result goes to `a0`.
pub type Handler = fn(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno>;

/// One implemented system call.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its number, less than [`LIMIT`].
    pub number: u16,
    /// Its name as in the manual pages.
    pub name: &'static str,
    /// What serves it.
    pub handler: Handler,
}

impl Entry {
    /// An entry of an area's table.
    #[must_use]
    pub const fn new(number: u16, name: &'static str, handler: Handler) -> Entry {
        Entry {
            number,
            name,
            handler,
        }
    }
}

/// System call numbers are less than this.
pub const LIMIT: usize = 512;

/// The tables of all areas.
const AREAS: &[&[Entry]] = &[];

/// The entry of each number, made from [`AREAS`].
static TABLE: [Option<Entry>; LIMIT] = {
    let mut table = [None; LIMIT];
    let mut area = 0;
    while area < AREAS.len() {
        let mut n = 0;
        while n < AREAS[area].len() {
            let entry = AREAS[area][n];
            assert!(
                table[entry.number as usize].is_none(),
                "two entries for one system call"
            );
            table[entry.number as usize] = Some(entry);
            n += 1;
        }
        area += 1;
    }
    table
};

/// The entry of system call `number`, if it is implemented.
#[must_use]
pub fn entry(number: u64) -> Option<&'static Entry> {
    TABLE.get(usize::try_from(number).ok()?)?.as_ref()
}

/// Serves system call `number`; an unknown one gives `ENOSYS` and is counted.
///
/// # Errors
/// Those of the call.
pub fn serve(kernel: &mut Kernel, number: u64, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.syscalls += 1;
    match entry(number) {
        Some(entry) => (entry.handler)(kernel, arguments),
        None => Err(Errno::ENOSYS),
    }
}
