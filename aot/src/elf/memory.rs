//! The memory image of an ELF file as linked.

use hartline_abi::elf::{Program, Segment, kind};
use std::ops::Range;

/// Contents of memory that the file gives, by link-time address.
#[derive(Debug, Clone)]
pub struct Memory<'a> {
    /// Loaded segments, sorted by address.
    segments: Vec<(Segment, &'a [u8])>,
    /// Those that nothing writes to while translated code runs, sorted by address.
    constant: Vec<(Segment, &'a [u8])>,
    /// Read-only after relocation.
    relro: Range<u64>,
    /// `R_RISCV_RELATIVE` and `DT_RELR`: place and link-time value, sorted.
    relative: Vec<(u64, u64)>,
    /// Places of all other dynamic relocations, sorted.
    other: Vec<u64>,
}

impl<'a> Memory<'a> {
    pub(super) fn new(program: &Program<'a>) -> Self {
        let sorted = |segments: &mut dyn Iterator<Item = Segment>| {
            let with_bytes = segments.map(|segment| (segment, program.segment_bytes(&segment)));
            let mut segments: Vec<_> = with_bytes.collect();
            segments.sort_by_key(|(segment, _)| segment.vaddr);
            segments
        };
        let segments = sorted(&mut program.segments());
        let constant = sorted(&mut program.constant_segments());
        let relro = program.header(kind::GNU_RELRO).map_or(0..0, |header| {
            header.vaddr..header.vaddr.saturating_add(header.mem_size)
        });
        Self {
            segments,
            constant,
            relro,
            relative: Vec::new(),
            other: Vec::new(),
        }
    }

    pub(super) fn set_relocations(&mut self, mut relative: Vec<(u64, u64)>, mut other: Vec<u64>) {
        relative.sort_unstable();
        other.sort_unstable();
        self.relative = relative;
        self.other = other;
    }

    /// Start and contents of each segment that is executable and not writable.
    pub(super) fn code(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        let code = self.segments.iter();
        code.filter(|(segment, _)| segment.execute && !segment.write)
            .map(|(segment, bytes)| (segment.vaddr, *bytes))
    }

    fn segment(&self, address: u64) -> Option<&(Segment, &'a [u8])> {
        find(&self.segments, address)
    }

    /// The little-endian number of `size` bytes, at most 8, that a load from `address` gives
    /// as long as an image of the file is in use
    /// ([`constant_segments`](Program::constant_segments)). `None`: it may change, is not
    /// all in the file, or the dynamic loader gives it.
    #[must_use]
    pub fn constant(&self, address: u64, size: usize) -> Option<u64> {
        let (segment, bytes) = find(&self.constant, address)?;
        let offset = usize::try_from(address - segment.vaddr).ok()?;
        let number = bytes.get(offset..offset.checked_add(size)?)?;
        let last = address.checked_add(size as u64)?;
        let first = address.saturating_sub(7);
        let after = self.relative.partition_point(|entry| entry.0 < first);
        let relative = self.relative.get(after).map(|entry| entry.0);
        let after = self.other.partition_point(|&place| place < first);
        let other = self.other.get(after).copied();
        if relative.into_iter().chain(other).any(|place| place < last) {
            return None;
        }
        let mut word = [0; 8];
        word.get_mut(..size)?.copy_from_slice(number);
        Some(u64::from_le_bytes(word))
    }

    /// What the file has from an address to the end of its segment, not relocated.
    #[must_use]
    pub fn file_bytes(&self, address: u64) -> Option<&'a [u8]> {
        let (segment, bytes) = self.segment(address)?;
        let offset = usize::try_from(address - segment.vaddr).ok()?;
        bytes.get(offset..).filter(|bytes| !bytes.is_empty())
    }

    /// Whether nothing ever writes there after the file is mapped.
    #[must_use]
    pub fn is_read_only(&self, address: u64) -> bool {
        self.segment(address)
            .is_some_and(|(segment, _)| !segment.write)
    }

    /// Whether nothing writes there after the dynamic loader is done: read-only,
    /// or RELRO.
    #[must_use]
    pub fn is_constant_after_loading(&self, address: u64) -> bool {
        self.is_read_only(address) || self.relro.contains(&address)
    }

    /// Little-endian number of 4 or 8 bytes, zero-extended, as it is after
    /// relocation with a load bias of zero. `None`: not in the file, or given by a
    /// symbol or resolver.
    #[must_use]
    pub fn number(&self, address: u64, size: u64) -> Option<u64> {
        let bytes = self.file_bytes(address)?;
        let after = self
            .other
            .partition_point(|&place| place.saturating_add(7) < address);
        if (self.other.get(after)).is_some_and(|&place| place < address.saturating_add(size)) {
            return None;
        }
        if size == 8 {
            if let Ok(index) = self
                .relative
                .binary_search_by_key(&address, |entry| entry.0)
            {
                return Some(self.relative[index].1);
            }
            return Some(u64::from_le_bytes(*bytes.first_chunk()?));
        }
        Some(u64::from(u32::from_le_bytes(*bytes.first_chunk()?)))
    }

    /// Calls `each` with every aligned 64-bit word of the file that is loaded.
    pub(super) fn for_each_word(&self, mut each: impl FnMut(u64)) {
        for (segment, bytes) in &self.segments {
            let skip = (segment.vaddr.next_multiple_of(8) - segment.vaddr) as usize;
            let bytes = bytes.get(skip..).unwrap_or(&[]);
            bytes
                .as_chunks::<8>()
                .0
                .iter()
                .for_each(|word| each(u64::from_le_bytes(*word)));
        }
    }
}

/// The one of sorted segments that contains the address.
fn find<'s, 'a>(
    segments: &'s [(Segment, &'a [u8])],
    address: u64,
) -> Option<&'s (Segment, &'a [u8])> {
    let index = segments.partition_point(|(segment, _)| segment.vaddr <= address);
    let found = segments.get(index.checked_sub(1)?)?;
    found.0.contains(address).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Load, shared_object};
    use super::*;

    /// Code at 0x1000, data at 0x3000, constants without code at 0x5000.
    fn file() -> Vec<u8> {
        let bytes: Vec<u8> = (0x80..0x98).collect();
        let load = |flags, vaddr| Load {
            flags,
            vaddr,
            bytes: &bytes,
            size: 0x20,
        };
        shared_object(&[load(5, 0x1000), load(6, 0x3000), load(4, 0x5000)])
    }

    #[test]
    fn constants_are_what_the_file_has() {
        let bytes = file();
        let memory = Memory::new(&Program::parse(&bytes).unwrap());
        assert_eq!(memory.constant(0x1000, 1), Some(0x80));
        assert_eq!(memory.constant(0x1001, 2), Some(0x8281));
        assert_eq!(memory.constant(0x1004, 4), Some(0x8786_8584));
        assert_eq!(memory.constant(0x1010, 8), Some(0x9796_9594_9392_9190));
        assert_eq!(memory.constant(0x1017, 1), Some(0x97));
    }

    #[test]
    fn nothing_else_is_constant() {
        let bytes = file();
        let memory = Memory::new(&Program::parse(&bytes).unwrap());
        // Half in the file, beyond it, beyond the segment, before it.
        for address in [0x1011, 0x1018, 0x101c, 0x1020, 0xffc, u64::MAX - 2, 0] {
            assert_eq!(memory.constant(address, 8), None, "{address:#x}");
        }
        // Writable; of a library, without its code.
        for address in [0x3000, 0x5000] {
            assert_eq!(memory.constant(address, 1), None, "{address:#x}");
        }
        // More than a register has.
        assert_eq!(memory.constant(0x1000, 9), None);
        assert_eq!(memory.constant(0x1000, usize::MAX), None);
    }

    #[test]
    fn what_is_relocated_is_not_constant() {
        let bytes = file();
        for relative in [true, false] {
            let mut memory = Memory::new(&Program::parse(&bytes).unwrap());
            match relative {
                true => memory.set_relocations(vec![(0x1008, 5), (u64::MAX, 5)], vec![]),
                false => memory.set_relocations(vec![], vec![u64::MAX, 0x1008]),
            }
            assert!(memory.constant(0x1000, 8).is_some());
            assert!(memory.constant(0x1010, 8).is_some());
            for address in [0x1001, 0x1004, 0x1008, 0x100c, 0x100f] {
                assert_eq!(memory.constant(address, 8), None, "{address:#x}");
            }
            assert_eq!(memory.constant(0x100f, 1), None);
            assert_eq!(memory.constant(0x1007, 1), Some(0x87));
        }
    }
}
