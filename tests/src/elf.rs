//! A small valid riscv64 ELF file, and helpers to damage it.

use crate::Result;
use crate::compile::check;
use crate::tree::Scratch;
use hartline_linux::syscall::nr;
use std::fs;
use std::process::Command;

/// Writes "ok" and exits with 7. Its data segment is longer in memory than in the
/// file, and it has symbols.
fn source() -> String {
    format!(
        "
.text
.globl _start
.type _start, @function
_start:
    la a1, text
    la t0, zero
    ld t0, 0(t0)
    li a0, 1
    li a2, 3
    li a7, {write}
    ecall
    addi a0, t0, 7
    li a7, {exit_group}
    ecall
.size _start, . - _start
.data
text: .ascii \"ok\\n\"
.space 4000
.bss
.balign 8
zero: .space 8192
",
        write = nr::write,
        exit_group = nr::exit_group,
    )
}

/// Size of the ELF header, bytes.
pub const HEADER: usize = 64;
/// Size of a program header, bytes.
pub const PROGRAM_HEADER: usize = 56;

/// Offsets of fields in the ELF header.
pub mod field {
    /// Class: 2 is 64-bit.
    pub const CLASS: usize = 4;
    /// Data encoding: 1 is little-endian.
    pub const DATA: usize = 5;
    /// `e_type`.
    pub const TYPE: usize = 16;
    /// `e_machine`.
    pub const MACHINE: usize = 18;
    /// `e_entry`.
    pub const ENTRY: usize = 24;
    /// `e_phoff`.
    pub const PHOFF: usize = 32;
    /// `e_flags`.
    pub const FLAGS: usize = 48;
    /// `e_phentsize`.
    pub const PHENTSIZE: usize = 54;
    /// `e_phnum`.
    pub const PHNUM: usize = 56;
}

/// Offsets of fields in a program header.
pub mod segment {
    /// `p_type`.
    pub const TYPE: usize = 0;
    /// `p_offset`.
    pub const OFFSET: usize = 8;
    /// `p_vaddr`.
    pub const VADDR: usize = 16;
    /// `p_filesz`.
    pub const FILESZ: usize = 32;
    /// `p_memsz`.
    pub const MEMSZ: usize = 40;
}

/// An ELF file as bytes that can be changed.
#[derive(Debug, Clone)]
pub struct Elf {
    /// The file.
    pub bytes: Vec<u8>,
}

impl Elf {
    /// Builds the valid file.
    ///
    /// # Errors
    /// The assembler or linker is missing.
    pub fn good() -> Result<Self> {
        Self::link(&["-static"])
    }

    /// Builds the same program, position-independent (`ET_DYN`) without a program interpreter.
    ///
    /// # Errors
    /// The assembler or linker is missing.
    pub fn position_independent() -> Result<Self> {
        Self::link(&["-static", "-pie", "--no-dynamic-linker", "-z", "text"])
    }

    fn link(flags: &[&str]) -> Result<Self> {
        let folder = Scratch::new()?;
        let folder = folder.path();
        let (source, object, output) = (
            folder.join("good.s"),
            folder.join("good.o"),
            folder.join("good"),
        );
        fs::write(&source, self::source())?;
        check(
            Command::new("riscv64-linux-gnu-as")
                .arg(&source)
                .arg("-o")
                .arg(&object),
        )?;
        check(
            Command::new("riscv64-linux-gnu-ld")
                .args(flags)
                .arg(&object)
                .arg("-o")
                .arg(&output),
        )?;
        Ok(Self {
            bytes: fs::read(&output)?,
        })
    }

    /// Reads the `size` bytes at `offset` as a number.
    pub fn number(&self, offset: usize, size: usize) -> u64 {
        self.bytes[offset..offset + size]
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Replaces the `size` bytes at `offset`.
    #[must_use]
    pub fn with(mut self, offset: usize, size: usize, value: u64) -> Self {
        self.bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
        self
    }

    /// Keeps only the first `length` bytes.
    #[must_use]
    pub fn truncated(mut self, length: usize) -> Self {
        self.bytes.truncate(length);
        self
    }

    /// Returns the offset of program header `index`.
    pub fn header(&self, index: usize) -> usize {
        self.number(field::PHOFF, 8) as usize + index * PROGRAM_HEADER
    }

    /// Returns the indices of the program headers to load (`PT_LOAD`).
    pub fn loaded(&self) -> Vec<usize> {
        let count = self.number(field::PHNUM, 2) as usize;
        (0..count)
            .filter(|index| self.number(self.header(*index) + segment::TYPE, 4) == 1)
            .collect()
    }

    /// Returns the lengths at which the file is cut inside a header or the contents of a segment:
    /// all boundaries and the byte before each.
    pub fn boundaries(&self) -> Vec<usize> {
        let count = self.number(field::PHNUM, 2) as usize;
        let mut ends = vec![1, 4, 16, HEADER];
        ends.extend((0..=count).map(|index| self.header(index)));
        for index in self.loaded() {
            let header = self.header(index);
            let offset = self.number(header + segment::OFFSET, 8) as usize;
            ends.push(offset);
            // A file cut after the whole segment is not truncated; a byte less is.
            ends.push(offset + self.number(header + segment::FILESZ, 8) as usize - 1);
        }
        let last = ends.iter().copied().max().unwrap_or(0);
        ends.extend(ends.clone().iter().map(|end| end.saturating_sub(1)));
        ends.retain(|end| *end <= last);
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}
