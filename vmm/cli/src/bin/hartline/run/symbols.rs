//! Names for locations in the program's code.

use hartline_aot::elf::Binary;

/// The functions of an ELF file.
pub struct Symbols<'a> {
    binary: Option<Binary<'a>>,
}

impl<'a> Symbols<'a> {
    /// The symbols of `elf`; an unreadable file has none.
    pub fn new(elf: &'a [u8]) -> Self {
        Self {
            binary: Binary::parse(elf).ok(),
        }
    }

    /// Name of the function that starts at the link-time address `entry`: its symbol, its offset in
    /// a containing function, or its address.
    pub fn name(&self, entry: u64) -> String {
        let name = self.binary.as_ref().and_then(|binary| binary.name(entry));
        match name.filter(|name| !name.is_empty()) {
            // Symbols may contain escape sequences for terminals.
            Some(name) => name.escape_default().to_string(),
            None => match self.containing(entry).filter(|&start| start != entry) {
                Some(start) => format!("{}+{:#x}", self.name(start), entry - start),
                None => format!("sub_{entry:x}"),
            },
        }
    }

    /// Link-time address of the byte at `offset` of the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let mut segments = self.binary.as_ref()?.program().segments();
        segments.find_map(|segment| {
            let inside = offset.checked_sub(segment.file_offset)?;
            (inside < segment.file_size).then(|| segment.vaddr.wrapping_add(inside))
        })
    }

    /// Entry of the function that contains the link-time address `pc`, by unwind
    /// information and symbols.
    pub fn containing(&self, pc: u64) -> Option<u64> {
        let functions = self.binary.as_ref()?.functions();
        let after = functions.partition_point(|range| range.start <= pc);
        let range = functions.get(after.checked_sub(1)?)?;
        range.contains(&pc).then_some(range.start)
    }
}
