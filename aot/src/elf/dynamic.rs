//! The dynamic section: relocations and initializers (System V ABI, "Dynamic Linking").

use super::memory::Memory;
use hartline_abi::elf::{Program, kind};

const DT_NULL: u64 = 0;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_INIT: u64 = 12;
const DT_FINI: u64 = 13;
const DT_JMPREL: u64 = 23;
const DT_PLTRELSZ: u64 = 2;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
const R_RISCV_RELATIVE: u32 = 3;
const R_RISCV_IRELATIVE: u32 = 58;

/// The contents of the dynamic section.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    /// Address and link-time value of relative relocations.
    pub relative: Vec<(u64, u64)>,
    /// Addresses of other relocations.
    pub other: Vec<u64>,
    /// Values that may be code addresses.
    pub entries: Vec<u64>,
}

/// The tags that are read.
#[derive(Debug, Default)]
struct Tags {
    rela: Table,
    plt: Table,
    relr: Table,
}

/// Address and length in bytes.
#[derive(Debug, Default, Clone, Copy)]
struct Table {
    address: u64,
    length: u64,
}

/// Reads the dynamic section as far as it is valid.
pub(super) fn read(program: &Program<'_>, memory: &Memory<'_>) -> Dynamic {
    let mut dynamic = Dynamic::default();
    let Some(header) = program.header(kind::DYNAMIC) else {
        return dynamic;
    };
    let mut tags = Tags::default();
    for [tag, value] in records::<2>(memory, header.vaddr, header.mem_size) {
        match tag {
            DT_NULL => break,
            DT_RELA => tags.rela.address = value,
            DT_RELASZ => tags.rela.length = value,
            DT_JMPREL => tags.plt.address = value,
            DT_PLTRELSZ => tags.plt.length = value,
            DT_RELR => tags.relr.address = value,
            DT_RELRSZ => tags.relr.length = value,
            DT_INIT | DT_FINI => dynamic.entries.push(value),
            _ => {}
        }
    }
    for table in [tags.rela, tags.plt] {
        dynamic.read_rela(memory, table);
    }
    dynamic.read_relr(memory, tags.relr);
    let values = dynamic.relative.iter().map(|&(_, value)| value);
    dynamic.entries.extend(values);
    dynamic
}

impl Dynamic {
    fn read_rela(&mut self, memory: &Memory<'_>, table: Table) {
        for [place, info, addend] in records::<3>(memory, table.address, table.length) {
            match info as u32 {
                R_RISCV_RELATIVE => self.relative.push((place, addend)),
                R_RISCV_IRELATIVE => {
                    self.other.push(place);
                    self.entries.push(addend);
                }
                _ => self.other.push(place),
            }
        }
    }

    /// Reads `DT_RELR`: an even entry is the address of a word to relocate; an odd entry is a bit
    /// map of the 63 words that follow.
    fn read_relr(&mut self, memory: &Memory<'_>, table: Table) {
        let mut next = 0u64;
        for [entry] in records::<1>(memory, table.address, table.length) {
            if entry & 1 == 0 {
                self.add_relr(memory, entry);
                next = entry.wrapping_add(8);
                continue;
            }
            for bit in (0..63).filter(|bit| entry >> (bit + 1) & 1 != 0) {
                self.add_relr(memory, next.wrapping_add(bit * 8));
            }
            next = next.wrapping_add(63 * 8);
        }
    }

    fn add_relr(&mut self, memory: &Memory<'_>, place: u64) {
        let bytes = memory
            .file_bytes(place)
            .and_then(|bytes| bytes.first_chunk());
        if let Some(&bytes) = bytes {
            self.relative.push((place, u64::from_le_bytes(bytes)));
        }
    }
}

/// Returns records of `N` 64-bit numbers, up to the end of the table or of the file's data.
fn records<const N: usize>(
    memory: &Memory<'_>,
    address: u64,
    length: u64,
) -> impl Iterator<Item = [u64; N]> {
    let bytes = memory.file_bytes(address).unwrap_or(&[]);
    let length = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let (words, _) = bytes[..length].as_chunks::<8>();
    let (records, _) = words.as_chunks::<N>();
    records.iter().map(|record| record.map(u64::from_le_bytes))
}
