//! ELF files of code that is in no file.

use hartline_abi::elf::{HEADER_SIZE, PROGRAM_HEADER_SIZE, kind};
use hartline_abi::layout::PAGE_SIZE;

/// Returns a position-independent file with one segment: `code` at the link-time address `start`, which is
/// entered at `entry`.
pub(crate) fn file(start: u64, code: &[u8], entry: u64) -> Vec<u8> {
    // A segment's offset in the file and its address are equal modulo the page size.
    let offset = PAGE_SIZE + start % PAGE_SIZE;
    let length = code.len() as u64;
    let mut bytes = Vec::with_capacity(offset as usize + code.len());
    bytes.extend(b"\x7fELF\x02\x01\x01");
    bytes.resize(16, 0);
    let half = |value: u16| value.to_le_bytes();
    let (executable, readable) = (1u32, 4u32);
    // `e_type` ET_DYN, `e_machine` EM_RISCV.
    bytes.extend([half(3), half(243)].concat());
    bytes.extend(1u32.to_le_bytes());
    for value in [entry, HEADER_SIZE as u64, 0] {
        bytes.extend(value.to_le_bytes());
    }
    // `e_flags`: the double-float ABI.
    bytes.extend(4u32.to_le_bytes());
    let sizes = [HEADER_SIZE as u16, PROGRAM_HEADER_SIZE as u16, 1, 0, 0, 0];
    bytes.extend(sizes.map(half).concat());
    bytes.extend(kind::LOAD.to_le_bytes());
    bytes.extend((executable | readable).to_le_bytes());
    for value in [offset, start, start, length, length, PAGE_SIZE] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.resize(offset as usize, 0);
    bytes.extend(code);
    bytes
}
