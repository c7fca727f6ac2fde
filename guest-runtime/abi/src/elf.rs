//! Validated view of an ELF64 little-endian RISC-V program or shared object
//! (System V ABI chapters 4 and 5, RISC-V psABI "ELF Object Files").
//!
//! [`Program::parse`] checks everything that loading depends on, so the results of the accessors
//! need no further checks. Sections are ignored, and need not exist.

mod error;
#[cfg(test)]
mod tests;

pub use error::ElfError;

use crate::layout::{PAGE_SIZE, USER_END, USER_MIN};
use core::ops::Range;

/// Size of the ELF header, bytes.
pub const HEADER_SIZE: usize = 64;
/// Size of a program header, bytes.
pub const PROGRAM_HEADER_SIZE: usize = 56;
/// Most program headers; Linux too refuses more than fit into 64 KiB.
pub const MAX_PROGRAM_HEADERS: usize = 65536 / PROGRAM_HEADER_SIZE;
/// Longest path of a program interpreter, bytes, as `PATH_MAX` without its NUL.
pub const MAX_INTERPRETER: usize = 4095;
/// Largest `p_align`, bytes.
pub const MAX_ALIGN: u64 = 1 << 30;

const ELFCLASS64: u8 = 2;
const ELFDATA2LSB: u8 = 1;
const EV_CURRENT: u32 = 1;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_RISCV: u16 = 243;
const EF_RISCV_FLOAT_ABI: u32 = 6;
const EF_RISCV_FLOAT_ABI_QUAD: u32 = 6;
const EF_RISCV_RVE: u32 = 8;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

/// Values of [`ProgramHeader::kind`].
pub mod kind {
    /// `PT_LOAD`: a segment to map.
    pub const LOAD: u32 = 1;
    /// `PT_DYNAMIC`: the dynamic section.
    pub const DYNAMIC: u32 = 2;
    /// `PT_INTERP`: path of the program interpreter.
    pub const INTERP: u32 = 3;
    /// `PT_PHDR`: the program headers themselves.
    pub const PHDR: u32 = 6;
    /// `PT_TLS`: initial thread-local storage.
    pub const TLS: u32 = 7;
    /// `PT_GNU_EH_FRAME`: the `.eh_frame_hdr` section.
    pub const GNU_EH_FRAME: u32 = 0x6474_e550;
    /// `PT_GNU_STACK`: whether the stack is executable.
    pub const GNU_STACK: u32 = 0x6474_e551;
    /// `PT_GNU_RELRO`: the range that becomes read-only after relocation.
    pub const GNU_RELRO: u32 = 0x6474_e552;
}

/// Type of an ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramType {
    /// `ET_EXEC`: loaded at its link-time addresses.
    Exec,
    /// `ET_DYN`: loaded anywhere; position-independent program, loader or library.
    Dyn,
}

/// A program header, as in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramHeader {
    /// `p_type`; [`kind`] has names.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// `p_offset`.
    pub offset: u64,
    /// `p_vaddr`.
    pub vaddr: u64,
    /// `p_filesz`, bytes.
    pub file_size: u64,
    /// `p_memsz`, bytes.
    pub mem_size: u64,
    /// `p_align`, bytes.
    pub align: u64,
}

/// A `PT_LOAD` segment. Its ends are within the file, within user space, and within 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Link-time address.
    pub vaddr: u64,
    /// Offset in the file; equal to `vaddr` modulo the page size unless `file_size` is 0.
    pub file_offset: u64,
    /// Bytes that come from the file.
    pub file_size: u64,
    /// Bytes in memory, not less than `file_size`; the rest is zero.
    pub mem_size: u64,
    /// Alignment, bytes: a power of two from 1 to [`MAX_ALIGN`].
    pub align: u64,
    /// `PF_R`.
    pub read: bool,
    /// `PF_W`.
    pub write: bool,
    /// `PF_X`.
    pub execute: bool,
}

impl Segment {
    /// Address after its last byte in memory.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.vaddr + self.mem_size
    }

    /// The pages of the segment, as link-time addresses.
    #[must_use]
    pub fn pages(&self) -> Range<u64> {
        self.vaddr & !(PAGE_SIZE - 1)..self.end().next_multiple_of(PAGE_SIZE)
    }

    /// Whether the segment contains the address.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        address >= self.vaddr && address < self.end()
    }

    fn new(header: &ProgramHeader) -> Self {
        Self {
            vaddr: header.vaddr,
            file_offset: header.offset,
            file_size: header.file_size,
            mem_size: header.mem_size,
            align: header.align.max(1),
            read: header.flags & PF_R != 0,
            write: header.flags & PF_W != 0,
            execute: header.flags & PF_X != 0,
        }
    }
}

/// An ELF file that passed all checks.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    bytes: &'a [u8],
    headers: &'a [u8],
    header_offset: u64,
    program_type: ProgramType,
    entry: u64,
    flags: u32,
    interpreter: Option<&'a [u8]>,
}

impl<'a> Program<'a> {
    /// Checks a whole file.
    ///
    /// # Errors
    /// The first error found. Segments may share a page (they are mapped in order, as Linux does),
    /// but no byte.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        let header = file_header(bytes)?;
        let program_type = check_identity(header)?;
        let header_offset = u64_at(header, 32);
        let program = Self {
            bytes,
            headers: program_headers(bytes, header, header_offset)?,
            header_offset,
            program_type,
            entry: u64_at(header, 24),
            flags: u32_at(header, 48),
            interpreter: None,
        };
        program.check_segments()?;
        program.check_entry()?;
        Ok(Self {
            interpreter: program.find_interpreter()?,
            ..program
        })
    }

    /// The whole file.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Kind of file.
    #[must_use]
    pub fn program_type(&self) -> ProgramType {
        self.program_type
    }

    /// Link-time address of the entry point: even, in an executable segment.
    /// `None`: a shared object without one.
    #[must_use]
    pub fn entry(&self) -> Option<u64> {
        (self.entry != 0 || self.program_type == ProgramType::Exec).then_some(self.entry)
    }

    /// `e_flags` (psABI "File Header").
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Number of program headers.
    #[must_use]
    pub fn header_count(&self) -> u16 {
        // `parse` has taken as many headers as `e_phnum` says.
        u16::try_from(self.headers.len() / PROGRAM_HEADER_SIZE).unwrap_or(u16::MAX)
    }

    /// All program headers, in order. Only `PT_LOAD` headers are checked.
    pub fn headers(&self) -> impl Iterator<Item = ProgramHeader> + 'a {
        self.headers
            .chunks_exact(PROGRAM_HEADER_SIZE)
            .map(|bytes| ProgramHeader {
                kind: u32_at(bytes, 0),
                flags: u32_at(bytes, 4),
                offset: u64_at(bytes, 8),
                vaddr: u64_at(bytes, 16),
                file_size: u64_at(bytes, 32),
                mem_size: u64_at(bytes, 40),
                align: u64_at(bytes, 48),
            })
    }

    /// The first program header of a [`kind`]; unchecked unless it is `PT_LOAD`.
    #[must_use]
    pub fn header(&self, kind: u32) -> Option<ProgramHeader> {
        self.headers().find(|header| header.kind == kind)
    }

    /// The segments to load, in the order of the file, without empty ones.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + 'a {
        (self.headers())
            .filter(|header| header.kind == kind::LOAD && header.mem_size != 0)
            .map(|header| Segment::new(&header))
    }

    /// The segments whose bytes translated code may treat as constants: an image is used only while
    /// they are mapped as in the file. They are readable, not writable, and share no page with
    /// another segment. Segments without execute permission count in programs only, which are
    /// loaded as a whole: a dynamic loader may map the constants of a library before it is known
    /// that the file contains code.
    pub fn constant_segments(&self) -> impl Iterator<Item = Segment> + 'a {
        let program = *self;
        let started = self.program_type == ProgramType::Exec || self.interpreter.is_some();
        let constant = move |segment: &Segment| {
            let apart = |other: Segment| {
                let (a, b) = (segment.pages(), other.pages());
                other == *segment || a.end <= b.start || b.end <= a.start
            };
            (segment.read && !segment.write && segment.file_size != 0)
                && (segment.execute || started)
                && program.segments().all(apart)
        };
        self.segments().filter(constant)
    }

    /// The bytes of a segment of this program that are in the file.
    #[must_use]
    pub fn segment_bytes(&self, segment: &Segment) -> &'a [u8] {
        slice(self.bytes, segment.file_offset, segment.file_size).unwrap_or(&[])
    }

    /// Lowest address of all segments, and the address after the last one.
    #[must_use]
    pub fn address_range(&self) -> (u64, u64) {
        self.segments().fold((u64::MAX, 0), |(low, high), segment| {
            (low.min(segment.vaddr), high.max(segment.end()))
        })
    }

    /// Path of the program interpreter, without its NUL.
    #[must_use]
    pub fn interpreter(&self) -> Option<&'a [u8]> {
        self.interpreter
    }

    /// Link-time address of the program headers in memory (`AT_PHDR`), if a
    /// segment contains them.
    #[must_use]
    pub fn headers_vaddr(&self) -> Option<u64> {
        let length = self.headers.len() as u64;
        self.segments().find_map(|segment| {
            let skipped = self.header_offset.checked_sub(segment.file_offset)?;
            let end = skipped.checked_add(length)?;
            (end <= segment.file_size).then(|| segment.vaddr + skipped)
        })
    }

    /// Whether `PT_GNU_STACK` asks for an executable stack; `None` without it.
    #[must_use]
    pub fn executable_stack(&self) -> Option<bool> {
        self.header(kind::GNU_STACK)
            .map(|header| header.flags & PF_X != 0)
    }

    fn check_segments(&self) -> Result<(), ElfError> {
        let mut found = false;
        for (index, header) in (0..=u16::MAX).zip(self.headers()) {
            if header.kind != kind::LOAD {
                continue;
            }
            self.check_segment(index, &header)?;
            self.check_overlap(index, &header)?;
            found |= header.mem_size != 0;
        }
        if found {
            Ok(())
        } else {
            Err(ElfError::NoSegments)
        }
    }

    fn check_segment(&self, segment: u16, header: &ProgramHeader) -> Result<(), ElfError> {
        let ProgramHeader {
            offset,
            vaddr,
            file_size,
            mem_size,
            align,
            ..
        } = *header;
        if file_size > mem_size {
            return Err(ElfError::FileSize {
                segment,
                file_size,
                mem_size,
            });
        }
        let end = vaddr.checked_add(mem_size);
        let end = end.ok_or(ElfError::Wraps {
            segment,
            start: vaddr,
            size: mem_size,
        })?;
        let file_end = offset.checked_add(file_size);
        let needed = file_end.ok_or(ElfError::Wraps {
            segment,
            start: offset,
            size: file_size,
        })?;
        let low = if self.program_type == ProgramType::Exec {
            USER_MIN
        } else {
            0
        };
        if mem_size != 0 && (vaddr < low || end > USER_END) {
            return Err(ElfError::OutsideUserSpace {
                segment,
                start: vaddr,
                end,
            });
        }
        if align > MAX_ALIGN || (align != 0 && !align.is_power_of_two()) {
            return Err(ElfError::Alignment { segment, align });
        }
        if file_size != 0 && vaddr % PAGE_SIZE != offset % PAGE_SIZE {
            return Err(ElfError::Misaligned {
                segment,
                vaddr,
                offset,
            });
        }
        let have = self.bytes.len() as u64;
        if needed > have && file_size != 0 {
            return Err(ElfError::Truncated {
                what: "a segment",
                needed,
                have,
            });
        }
        Ok(())
    }

    /// Checks that a segment does not overlap earlier ones; the caller checks segments in order.
    fn check_overlap(&self, segment: u16, header: &ProgramHeader) -> Result<(), ElfError> {
        let end = header.vaddr + header.mem_size;
        if header.mem_size == 0 {
            return Ok(());
        }
        for (other, earlier) in (0..segment).zip(self.headers()) {
            let overlaps = earlier.kind == kind::LOAD
                && earlier.mem_size != 0
                && earlier.vaddr < end
                && header.vaddr < earlier.vaddr + earlier.mem_size;
            if overlaps {
                return Err(ElfError::Overlap { segment, other });
            }
        }
        Ok(())
    }

    fn check_entry(&self) -> Result<(), ElfError> {
        let Some(entry) = self.entry() else {
            return Ok(());
        };
        if entry % 2 != 0 {
            return Err(ElfError::EntryMisaligned(entry));
        }
        if !self
            .segments()
            .any(|segment| segment.execute && segment.contains(entry))
        {
            return Err(ElfError::EntryOutsideText(entry));
        }
        Ok(())
    }

    fn find_interpreter(&self) -> Result<Option<&'a [u8]>, ElfError> {
        let Some(header) = self.header(kind::INTERP) else {
            return Ok(None);
        };
        let length = header.file_size;
        let Some(bytes) = slice(self.bytes, header.offset, length) else {
            let needed = header.offset.saturating_add(length);
            let have = self.bytes.len() as u64;
            return Err(ElfError::Truncated {
                what: "the interpreter's path",
                needed,
                have,
            });
        };
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        if end == 0 || end > MAX_INTERPRETER {
            return Err(ElfError::Interpreter { length });
        }
        Ok(bytes.get(..end))
    }
}

/// The bytes of the ELF header.
fn file_header(bytes: &[u8]) -> Result<&[u8], ElfError> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf);
    }
    let have = bytes.len() as u64;
    let needed = HEADER_SIZE as u64;
    let what = "the ELF header";
    bytes
        .get(..HEADER_SIZE)
        .ok_or(ElfError::Truncated { what, needed, have })
}

/// Checks the class, byte order, machine and type of the file.
fn check_identity(header: &[u8]) -> Result<ProgramType, ElfError> {
    let (class, order, version) = (header[4], header[5], u32::from(header[6]));
    if class != ELFCLASS64 {
        return Err(ElfError::Class(class));
    }
    if order != ELFDATA2LSB {
        return Err(ElfError::ByteOrder(order));
    }
    if version != EV_CURRENT {
        return Err(ElfError::Version(version));
    }
    let machine = u16_at(header, 18);
    if machine != EM_RISCV {
        return Err(ElfError::Machine(machine));
    }
    let version = u32_at(header, 20);
    if version != EV_CURRENT {
        return Err(ElfError::Version(version));
    }
    let flags = u32_at(header, 48);
    let quad = flags & EF_RISCV_FLOAT_ABI == EF_RISCV_FLOAT_ABI_QUAD;
    if quad || flags & EF_RISCV_RVE != 0 {
        return Err(ElfError::Abi(flags));
    }
    match u16_at(header, 16) {
        ET_EXEC => Ok(ProgramType::Exec),
        ET_DYN => Ok(ProgramType::Dyn),
        other => Err(ElfError::Type(other)),
    }
}

/// The bytes of all program headers.
fn program_headers<'a>(bytes: &'a [u8], header: &[u8], offset: u64) -> Result<&'a [u8], ElfError> {
    let (size, count) = (u16_at(header, 54), u16_at(header, 56));
    if count == 0 {
        return Err(ElfError::NoSegments);
    }
    if usize::from(size) != PROGRAM_HEADER_SIZE {
        return Err(ElfError::ProgramHeaderSize(size));
    }
    if usize::from(count) > MAX_PROGRAM_HEADERS {
        return Err(ElfError::ProgramHeaderCount(count));
    }
    let length = u64::from(size) * u64::from(count);
    slice(bytes, offset, length).ok_or(ElfError::Truncated {
        what: "the program headers",
        needed: offset.saturating_add(length),
        have: bytes.len() as u64,
    })
}

/// `length` bytes from `offset`, if they are within `bytes`.
fn slice(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(start..end)
}

/// Little-endian number at `offset` of a header. The caller ensures that the header is long enough.
fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// As [`u16_at`].
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from(u16_at(bytes, offset)) | u32::from(u16_at(bytes, offset + 2)) << 16
}

/// As [`u16_at`].
fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}
