//! The memory image of an ELF file as linked.

use super::Constants;
use hartline_abi::elf::{Program, Segment, kind};
use std::ops::Range;
use std::sync::OnceLock;

/// Memory contents from the file, by link-time address.
#[derive(Debug, Clone)]
pub struct Memory<'a> {
    /// Loaded segments, sorted by address.
    segments: Vec<(Segment, &'a [u8])>,
    constants: OnceLock<Constants>,
    /// Address and contents of the segments that are constant.
    constant: Vec<(u64, &'a [u8])>,
    /// Read-only after relocation.
    relro: Range<u64>,
    /// `R_RISCV_RELATIVE` and `DT_RELR`: address and link-time value, sorted.
    relative: Vec<(u64, u64)>,
    /// Addresses of all other dynamic relocations, sorted.
    other: Vec<u64>,
}

impl<'a> Memory<'a> {
    pub(super) fn new(program: &Program<'a>) -> Self {
        let segments = program.segments();
        let with_bytes = segments.map(|segment| (segment, program.segment_bytes(&segment)));
        let mut segments: Vec<_> = with_bytes.collect();
        segments.sort_by_key(|(segment, _)| segment.vaddr);
        let relro = program.header(kind::GNU_RELRO).map_or(0..0, |header| {
            header.vaddr..header.vaddr.saturating_add(header.mem_size)
        });
        let constant = program.constant_segments();
        let constant = constant.map(|segment| (segment.vaddr, program.segment_bytes(&segment)));
        Self {
            segments,
            constants: OnceLock::new(),
            constant: constant.collect(),
            relro,
            relative: Vec::new(),
            other: Vec::new(),
        }
    }

    /// Treats all contents as data that the program may change at any time.
    pub(super) fn forget_constants(&mut self) {
        self.constant.clear();
        self.constants = OnceLock::new();
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
        let index = self
            .segments
            .partition_point(|(segment, _)| segment.vaddr <= address);
        let found = self.segments.get(index.checked_sub(1)?)?;
        found.0.contains(address).then_some(found)
    }

    /// Returns the contents that stay constant while an image of the file is in use. They are copied
    /// at the first call.
    #[must_use]
    pub fn constants(&self) -> &Constants {
        self.constants.get_or_init(|| {
            let relative = self.relative.iter().map(|entry| entry.0);
            let relocated = relative.chain(self.other.iter().copied());
            Constants::new(&self.constant, relocated.collect())
        })
    }

    /// Returns the file's bytes from an address to the end of its segment, not relocated.
    #[must_use]
    pub fn file_bytes(&self, address: u64) -> Option<&'a [u8]> {
        let (segment, bytes) = self.segment(address)?;
        let offset = usize::try_from(address - segment.vaddr).ok()?;
        bytes.get(offset..).filter(|bytes| !bytes.is_empty())
    }

    /// Whether the address is not written after the dynamic loader is done: read-only, or RELRO.
    #[must_use]
    pub fn is_constant_after_loading(&self, address: u64) -> bool {
        let segment = self.segment(address);
        segment.is_some_and(|(segment, _)| !segment.write) || self.relro.contains(&address)
    }

    /// Returns the little-endian number of 4 or 8 bytes, zero-extended, after relocation with a
    /// load bias of zero. `None` if the number is not in the file, or a symbol or resolver
    /// determines it.
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

    /// Calls `each` with every aligned 64-bit word of the file's loaded data.
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
