//! The memory contents of a file that stay constant while an image of the file is in use.

use std::sync::Arc;

/// Bytes that translated code may treat as constants
/// ([`constant_segments`](hartline_abi::elf::Program::constant_segments)). The default has none.
#[derive(Debug, Clone, Default)]
pub struct Constants {
    /// Link-time address and contents of each segment, sorted.
    segments: Arc<[(u64, Box<[u8]>)]>,
    /// Addresses of words that the dynamic loader writes, sorted.
    relocated: Arc<[u64]>,
}

impl Constants {
    /// Copies segments, by address. `relocated` are the addresses of the words that the dynamic loader
    /// writes.
    pub(super) fn new(segments: &[(u64, &[u8])], mut relocated: Vec<u64>) -> Self {
        let copies = segments.iter().map(|&(start, bytes)| (start, bytes.into()));
        let mut segments: Vec<_> = copies.collect();
        segments.sort_by_key(|(start, _)| *start);
        relocated.sort_unstable();
        Self {
            segments: segments.into(),
            relocated: relocated.into(),
        }
    }

    /// Whether there are no constants.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the little-endian number of `size` bytes, at most 8, that a load from `address`
    /// produces. `None` if the number may change, is not all in the file, or the dynamic loader
    /// writes it.
    #[must_use]
    pub fn number(&self, address: u64, size: usize) -> Option<u64> {
        let after = self
            .segments
            .partition_point(|(start, _)| *start <= address);
        let (start, bytes) = self.segments.get(after.checked_sub(1)?)?;
        let offset = usize::try_from(address - start).ok()?;
        let number = bytes.get(offset..offset.checked_add(size)?)?;
        let last = address.checked_add(size as u64)?;
        let first = address.saturating_sub(7);
        let after = self.relocated.partition_point(|&place| place < first);
        if self.relocated.get(after).is_some_and(|&place| place < last) {
            return None;
        }
        let mut word = [0; 8];
        word.get_mut(..size)?.copy_from_slice(number);
        Some(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use crate::elf::memory::Memory;
    use crate::elf::testing::{Load, shared_object};
    use hartline_abi::elf::Program;

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
        let constants = memory.constants();
        assert_eq!(constants.number(0x1000, 1), Some(0x80));
        assert_eq!(constants.number(0x1001, 2), Some(0x8281));
        assert_eq!(constants.number(0x1004, 4), Some(0x8786_8584));
        assert_eq!(constants.number(0x1010, 8), Some(0x9796_9594_9392_9190));
        assert_eq!(constants.number(0x1017, 1), Some(0x97));
    }

    #[test]
    fn nothing_else_is_constant() {
        let bytes = file();
        let memory = Memory::new(&Program::parse(&bytes).unwrap());
        let constants = memory.constants();
        // Half in the file, beyond it, beyond the segment, before it.
        for address in [0x1011, 0x1018, 0x101c, 0x1020, 0xffc, u64::MAX - 2, 0] {
            assert_eq!(constants.number(address, 8), None, "{address:#x}");
        }
        // Writable; of a library, without its code.
        for address in [0x3000, 0x5000] {
            assert_eq!(constants.number(address, 1), None, "{address:#x}");
        }
        // More bytes than a register has.
        assert_eq!(constants.number(0x1000, 9), None);
        assert_eq!(constants.number(0x1000, usize::MAX), None);
    }

    #[test]
    fn what_is_relocated_is_not_constant() {
        let bytes = file();
        let mut memory = Memory::new(&Program::parse(&bytes).unwrap());
        memory.set_relocations(vec![(0x1008, 0)], vec![u64::MAX]);
        let constants = memory.constants();
        assert!(constants.number(0x1000, 8).is_some());
        assert!(constants.number(0x1010, 8).is_some());
        for address in [0x1001, 0x1004, 0x1008, 0x100c, 0x100f] {
            assert_eq!(constants.number(address, 8), None, "{address:#x}");
        }
        assert_eq!(constants.number(0x100f, 1), None);
        assert_eq!(constants.number(0x1007, 1), Some(0x87));
    }
}
