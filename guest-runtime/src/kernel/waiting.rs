//! The first process of a VM without a program: it waits for ever, and the host's requests (for copies
//! of files) run beside it.

use crate::kernel::executable::ElfFile;
use alloc::borrow::Cow;
use alloc::rc::Rc;
use hartline_linux::syscall::nr;

/// Address of the program.
const BASE: u64 = 0x10000;
/// Length of the ELF header and of one program header, bytes.
const HEADERS: usize = 64 + 56;
/// The number of ppoll.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a system call has a small number"
)]
const PPOLL: u32 = nr::ppoll as u32;
/// `ppoll(NULL, 0, NULL, NULL)`, again after each signal that does not end the process.
const CODE: [u32; 7] = [
    addi(10, 0),
    addi(11, 0),
    addi(12, 0),
    addi(13, 0),
    addi(17, PPOLL),
    // ecall
    0x0000_0073,
    // jal x0, -24
    0xfe9f_f06f,
];
const LENGTH: usize = HEADERS + CODE.len() * 4;

/// `addi register, x0, value`, with a value below 2048.
const fn addi(register: u32, value: u32) -> u32 {
    assert!(value < 2048);
    value << 20 | register << 7 | 0x13
}

/// The program, an ELF file for riscv64 (generic ABI, chapters 4 and 5).
static PROGRAM: [u8; LENGTH] = program();

const fn program() -> [u8; LENGTH] {
    let entry = BASE + HEADERS as u64;
    // Identification: ELF64, little endian, version 1.
    let file = write([0; LENGTH], 0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    // ET_EXEC, EM_RISCV, version 1.
    let file = write(file, 16, &[2, 0, 243, 0, 1]);
    let file = write(file, 24, &entry.to_le_bytes());
    // The program header follows, and there are no sections.
    let file = write(file, 32, &64_u64.to_le_bytes());
    let file = write(file, 52, &[64, 0, 56, 0, 1, 0]);
    // PT_LOAD, readable and executable: the whole file.
    let file = write(file, 64, &[1, 0, 0, 0, 5]);
    let file = write(file, 80, &BASE.to_le_bytes());
    let file = write(file, 88, &BASE.to_le_bytes());
    let file = write(file, 96, &(LENGTH as u64).to_le_bytes());
    let file = write(file, 104, &(LENGTH as u64).to_le_bytes());
    let mut file = write(file, 112, &0x1000_u64.to_le_bytes());
    let mut index = 0;
    while index < CODE.len() {
        file = write(file, HEADERS + index * 4, &CODE[index].to_le_bytes());
        index += 1;
    }
    file
}

/// `file` with these bytes at an offset.
const fn write(mut file: [u8; LENGTH], offset: usize, bytes: &[u8]) -> [u8; LENGTH] {
    let mut index = 0;
    while index < bytes.len() {
        file[offset + index] = bytes[index];
        index += 1;
    }
    file
}

/// The program as a file without a place in the root file system.
pub(super) fn file() -> ElfFile {
    ElfFile {
        path: Rc::from(&b""[..]),
        inode: None,
        bytes: Cow::Borrowed(&PROGRAM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_program() {
        let file = file();
        let program = file.program().unwrap();
        let entry = program.entry().unwrap();
        assert_eq!(entry, BASE + HEADERS as u64);
        assert_eq!(program.address_range(), (BASE, BASE + LENGTH as u64));
        assert_eq!(CODE[4], 0x0490_0893);
    }
}
