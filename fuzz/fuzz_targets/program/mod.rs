//! ELF files of the fuzz targets that translate code.

/// Address of the ELF file's first byte.
pub const BASE: u64 = 0x1_0000;
/// Address of the first instruction.
pub const START: u64 = BASE + HEADERS as u64;
const HEADERS: usize = 64 + 56;

/// Returns a statically linked program of one segment; its entry point is its first instruction.
pub fn elf(code: &[u8], position_independent: bool) -> Vec<u8> {
    let length = (HEADERS + code.len()) as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let kind: u16 = if position_independent { 3 } else { 2 };
    let machine: u16 = 243;
    file.extend(kind.to_le_bytes());
    file.extend(machine.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for word in [START, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    // EF_RISCV_RVC and the double-precision float ABI.
    file.extend(5u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // PT_LOAD, readable and executable.
    file.extend(1u32.to_le_bytes());
    file.extend(5u32.to_le_bytes());
    for word in [0, BASE, BASE, length, length, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}
