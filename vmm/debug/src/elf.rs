//! The parts of an ELF file that debugging needs: sections, symbols, and the names of the files with
//! its debug information.

use crate::Reader;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::sync::Arc;
use thiserror::Error;

/// Longest section that is read, bytes, uncompressed.
pub const MAX_SECTION: u64 = 512 << 20;
/// Longest build id, bytes.
const MAX_BUILD_ID: usize = 64;

/// The file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// It is no ELF file that can be read.
    #[error("not a readable ELF file")]
    Format,
    /// It is for another architecture.
    #[error("not a little-endian 64-bit RISC-V file")]
    Machine,
}

/// An ELF file.
#[derive(Debug)]
pub struct Elf<'a> {
    file: object::File<'a>,
}

/// The name and the checksum in `.gnu_debuglink`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugLink {
    /// File name.
    pub name: Vec<u8>,
    /// CRC-32 of the file.
    pub crc: u32,
}

impl<'a> Elf<'a> {
    /// Reads a riscv64 file.
    ///
    /// # Errors
    /// The file is no ELF file, or not for riscv64.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let file = object::File::parse(bytes).map_err(|_| Error::Format)?;
        if file.architecture() != object::Architecture::Riscv64 || !file.is_little_endian() {
            return Err(Error::Machine);
        }
        Ok(Self { file })
    }

    /// Offset in the file, length and link-time address of each segment.
    pub(crate) fn segments(&self) -> Vec<(u64, u64, u64)> {
        let segments = self.file.segments().map(|segment| {
            let (start, length) = segment.file_range();
            (start, length, segment.address())
        });
        segments.collect()
    }

    /// Link-time address and contents of each executable segment.
    pub(crate) fn code(&self) -> Vec<(u64, Vec<u8>)> {
        let segments = self.file.segments().filter_map(|segment| {
            let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else {
                return None;
            };
            let is_code = p_flags.0 & object::elf::PF_X.0 != 0;
            is_code.then_some((segment.address(), segment.data().ok()?.to_vec()))
        });
        segments.collect()
    }

    /// Address and contents of a section; empty if there is none, if it is too long, or if it is
    /// compressed in a way that is not known.
    pub(crate) fn section(&self, name: &str) -> (u64, Reader) {
        let read = || {
            let section = self.file.section_by_name(name)?;
            let compressed = section.compressed_data().ok()?;
            if compressed.uncompressed_size > MAX_SECTION {
                return None;
            }
            let data = compressed.decompress().ok()?;
            Some((section.address(), Arc::<[u8]>::from(&*data)))
        };
        let (address, data) = read().unwrap_or_default();
        (address, Reader::new(data, gimli::LittleEndian))
    }

    /// As [`section`](Self::section) for strings: the last one is terminated.
    pub(crate) fn strings(&self, name: &str) -> Reader {
        let (_, section) = self.section(name);
        match section.bytes().last() {
            None | Some(0) => section,
            Some(_) => {
                let bytes = [section.bytes(), &[0]].concat();
                Reader::new(bytes.into(), gimli::LittleEndian)
            }
        }
    }

    /// The build id.
    #[must_use]
    pub fn build_id(&self) -> Option<&'a [u8]> {
        let id = self.file.build_id().ok()??;
        (2..=MAX_BUILD_ID).contains(&id.len()).then_some(id)
    }

    /// The link to the file with the debug information.
    #[must_use]
    pub fn debug_link(&self) -> Option<DebugLink> {
        let (name, crc) = self.file.gnu_debuglink().ok()??;
        // A file name, not a path.
        let is_name = !name.is_empty() && !name.contains(&b'/') && name != b"..";
        is_name.then(|| DebugLink {
            name: name.to_vec(),
            crc,
        })
    }

    /// Path and build id of the file with debug information that several files share
    /// (`.gnu_debugaltlink`, as dwz(1) makes it).
    #[must_use]
    pub fn alternative(&self) -> Option<(&'a [u8], &'a [u8])> {
        let (path, id) = self.file.gnu_debugaltlink().ok()??;
        (2..=MAX_BUILD_ID).contains(&id.len()).then_some((path, id))
    }

    /// Start, size and name of the functions, in no order.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (u64, u64, &'a [u8])> + '_ {
        let symbols = self.file.symbols().chain(self.file.dynamic_symbols());
        symbols.filter_map(|symbol| {
            let name = symbol.name_bytes().ok()?;
            let is_code = matches!(
                symbol.kind(),
                object::SymbolKind::Text | object::SymbolKind::Unknown
            );
            // A mapping symbol names the kind of code (RISC-V ELF psABI).
            let is_named = !name.is_empty() && !name.starts_with(b"$") && !name.starts_with(b".L");
            let is_defined = symbol.is_definition() || symbol.size() > 0;
            (is_code && is_named && is_defined).then(|| (symbol.address(), symbol.size(), name))
        })
    }

    /// Whether the file has debug information for source lines.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.file.section_by_name(".debug_line").is_some()
            && self.file.section_by_name(".debug_info").is_some()
    }
}
