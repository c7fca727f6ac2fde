//! The symbol table, for code without debug information.

use crate::elf::Elf;
use crate::names::demangled;

/// Most symbols that are kept; the rest is ignored.
const MOST: usize = 4 << 20;

/// Symbols of functions, sorted by address.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// Start, size and name.
    sorted: Vec<(u64, u64, Box<[u8]>)>,
}

impl Symbols {
    /// The functions of these files. Of several symbols with one address, the first of the first file
    /// is used.
    pub fn new<'a>(files: impl Iterator<Item = &'a Elf<'a>>) -> Self {
        let all = files.flat_map(|elf| elf.functions());
        let kept = all.take(MOST).map(|(start, size, name)| {
            const LONGEST: usize = 1024;
            (start, size, name[..name.len().min(LONGEST)].into())
        });
        let mut sorted: Vec<_> = kept.collect();
        sorted.sort_by_key(|&(start, size, _)| (start, size == 0));
        sorted.dedup_by_key(|symbol| symbol.0);
        Self { sorted }
    }

    /// Start and end of the function at a link-time address.
    pub fn range(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.sorted.partition_point(|symbol| symbol.0 <= address);
        let &(start, size, _) = self.sorted.get(after.checked_sub(1)?)?;
        let end = match size {
            0 => self.sorted.get(after).map_or(u64::MAX, |next| next.0),
            size => start.saturating_add(size),
        };
        (address < end).then_some((start, end))
    }

    /// Name of the function at a link-time address, and the offset in it.
    pub fn find(&self, address: u64) -> Option<(String, u64)> {
        let after = self.sorted.partition_point(|symbol| symbol.0 <= address);
        let (start, size, name) = self.sorted.get(after.checked_sub(1)?)?;
        let offset = address - start;
        // Symbols of assembly code have no size.
        (offset < *size || *size == 0).then(|| (demangled(name), offset))
    }
}
