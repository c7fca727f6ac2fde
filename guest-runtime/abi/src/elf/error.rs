//! The reasons to refuse an ELF file.

use super::{MAX_PROGRAM_HEADERS, PROGRAM_HEADER_SIZE};
use core::fmt;

/// The reason why a file is not a program that can run. Values are from the file; `segment` is an
/// index into the program headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfError {
    /// No ELF magic number.
    NotElf,
    /// `EI_CLASS` is not `ELFCLASS64`.
    Class(u8),
    /// `EI_DATA` is not `ELFDATA2LSB`.
    ByteOrder(u8),
    /// ELF version other than 1.
    Version(u32),
    /// `e_machine` is not `EM_RISCV`.
    Machine(u16),
    /// `e_type` is neither `ET_EXEC` nor `ET_DYN`.
    Type(u16),
    /// `e_flags` names an ABI that RV64GC hardware does not run.
    Abi(u32),
    /// The file ends too early.
    Truncated {
        /// The truncated part.
        what: &'static str,
        /// Length that the file needs, bytes.
        needed: u64,
        /// Length of the file, bytes.
        have: u64,
    },
    /// `e_phentsize` is not [`PROGRAM_HEADER_SIZE`].
    ProgramHeaderSize(u16),
    /// More program headers than [`MAX_PROGRAM_HEADERS`].
    ProgramHeaderCount(u16),
    /// There is no `PT_LOAD` segment.
    NoSegments,
    /// `p_filesz` exceeds `p_memsz`.
    FileSize {
        /// Segment.
        segment: u16,
        /// `p_filesz`.
        file_size: u64,
        /// `p_memsz`.
        mem_size: u64,
    },
    /// A segment's addresses or file offsets exceed 64 bits.
    Wraps {
        /// Segment.
        segment: u16,
        /// `p_vaddr`, or `p_offset` if the file offsets wrap.
        start: u64,
        /// `p_memsz` or `p_filesz`.
        size: u64,
    },
    /// Two segments share addresses.
    Overlap {
        /// One segment.
        segment: u16,
        /// The other one.
        other: u16,
    },
    /// A segment is not within user space.
    OutsideUserSpace {
        /// Segment.
        segment: u16,
        /// `p_vaddr`.
        start: u64,
        /// `p_vaddr + p_memsz`.
        end: u64,
    },
    /// `p_vaddr` and `p_offset` differ modulo the page size.
    Misaligned {
        /// Segment.
        segment: u16,
        /// `p_vaddr`.
        vaddr: u64,
        /// `p_offset`.
        offset: u64,
    },
    /// `p_align` is not a power of two or exceeds [`MAX_ALIGN`](super::MAX_ALIGN).
    Alignment {
        /// Segment.
        segment: u16,
        /// `p_align`.
        align: u64,
    },
    /// `e_entry` is not in an executable segment.
    EntryOutsideText(u64),
    /// `e_entry` is odd.
    EntryMisaligned(u64),
    /// The interpreter's path is empty, too long or not NUL-terminated.
    Interpreter {
        /// Length of the path in the file, bytes.
        length: u64,
    },
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotElf => f.write_str("not an ELF file"),
            Self::Class(1) => f.write_str("a 32-bit ELF file; only 64-bit programs run"),
            Self::Class(class) => write!(f, "ELF class {class} is unknown"),
            Self::ByteOrder(2) => f.write_str("a big-endian ELF file"),
            Self::ByteOrder(order) => write!(f, "ELF byte order {order} is unknown"),
            Self::Version(version) => write!(f, "ELF version {version} is unknown"),
            Self::Machine(machine) => {
                write!(f, "made for {}, not for RISC-V", MachineName(machine))
            }
            Self::Type(kind) => {
                write!(
                    f,
                    "{} is not an executable or shared object",
                    TypeName(kind)
                )
            }
            Self::Abi(flags) => write!(f, "ABI flags {flags:#x} (RVE or quad float) do not run"),
            Self::Truncated { what, needed, have } => {
                write!(
                    f,
                    "truncated: {what} ends at byte {needed}, the file at byte {have}"
                )
            }
            Self::ProgramHeaderSize(size) => {
                write!(
                    f,
                    "program headers of {size} bytes, not {PROGRAM_HEADER_SIZE}"
                )
            }
            Self::ProgramHeaderCount(count) => {
                write!(
                    f,
                    "{count} program headers, more than {MAX_PROGRAM_HEADERS}"
                )
            }
            Self::NoSegments => f.write_str("no loadable segment"),
            Self::EntryOutsideText(entry) => {
                write!(f, "entry point {entry:#x} is not in an executable segment")
            }
            Self::EntryMisaligned(entry) => write!(f, "entry point {entry:#x} is odd"),
            Self::Interpreter { length } => {
                write!(
                    f,
                    "interpreter path of {length} bytes is empty, too long or not terminated"
                )
            }
            ref segment => segment.fmt_segment(f),
        }
    }
}

impl ElfError {
    /// Prints the variants about one segment.
    fn fmt_segment(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FileSize {
                segment,
                file_size,
                mem_size,
            } => write!(
                f,
                "segment {segment}: file size {file_size:#x} exceeds memory size {mem_size:#x}"
            ),
            Self::Wraps {
                segment,
                start,
                size,
            } => {
                write!(
                    f,
                    "segment {segment}: {size:#x} bytes from {start:#x} wrap around"
                )
            }
            Self::Overlap { segment, other } => {
                write!(f, "segments {other} and {segment} overlap")
            }
            Self::OutsideUserSpace {
                segment,
                start,
                end,
            } => {
                write!(
                    f,
                    "segment {segment}: {start:#x}-{end:#x} is outside user space"
                )
            }
            Self::Misaligned {
                segment,
                vaddr,
                offset,
            } => write!(
                f,
                "segment {segment}: address {vaddr:#x} and file offset {offset:#x} \
                 differ modulo the page size"
            ),
            Self::Alignment { segment, align } => {
                write!(f, "segment {segment}: alignment {align:#x} is not usable")
            }
            _ => fmt::Debug::fmt(self, f),
        }
    }
}

impl core::error::Error for ElfError {}

/// The name of an `e_machine` value.
struct MachineName(u16);

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            3 => "x86",
            8 => "MIPS",
            20 => "PowerPC",
            21 => "PowerPC64",
            22 => "S/390",
            40 => "ARM",
            62 => "x86-64",
            183 => "AArch64",
            247 => "BPF",
            258 => "LoongArch",
            other => return write!(f, "machine {other}"),
        })
    }
}

/// The name of an `e_type` value.
struct TypeName(u16);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("a relocatable object file"),
            4 => f.write_str("a core dump"),
            other => write!(f, "ELF type {other}"),
        }
    }
}
