//! Images of the baseline translator's code ([`hartline_baseline`]), for first runs.
//!
//! A file's text is divided into parts of some kilobytes, which end where functions start. A part is
//! translated as a whole when execution comes to it without a translation. Control flow is not
//! recovered: the translator finds loops and callees in the part itself, and each address at which
//! execution continued without a translation becomes an entry.

mod jit;
mod link;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;

use hartline_baseline::{Features, Region, Translation, translate};

use crate::elf::Binary;
use crate::link::{LinkError, Linked};
use crate::translator::{MAX_TEXT, Options, ReadError};
use link::Place;
use parts::divide;

pub use jit::{JitCode, JitTranslation, translate_jit};

/// The largest host code of one file, bytes.
pub const MAX_CODE: usize = 192 << 20;

/// A part of a file's text.
struct Part {
    /// Link-time addresses.
    range: Range<u64>,
    translation: Option<Translation>,
    /// The translation is in no image yet.
    is_new: bool,
}

/// The baseline translation of a file, of which any parts may exist.
pub struct Baseline<'a> {
    binary: Binary<'a>,
    features: Features,
    precise: bool,
    /// Addresses of functions, sorted.
    functions: Vec<u64>,
    /// Other addresses that are entered.
    blocks: BTreeSet<u64>,
    /// Sorted, without overlaps.
    parts: Vec<Part>,
    /// Host code of all parts, bytes.
    length: usize,
}

impl<'a> Baseline<'a> {
    /// Reads an ELF file. Nothing is translated yet.
    ///
    /// # Errors
    /// The file is not a RISC-V program, or has too much code.
    pub fn new(elf: &'a [u8], options: &Options) -> Result<Self, ReadError> {
        let binary = Binary::parse(elf)?;
        let text = binary.text_range();
        let span = text.end.saturating_sub(text.start);
        if span > MAX_TEXT {
            return Err(ReadError::TextTooLarge(span));
        }
        let ranges = binary.functions().iter().map(|range| range.start);
        let functions: BTreeSet<u64> = ranges.chain(binary.entries().iter().copied()).collect();
        let functions: Vec<u64> = functions.into_iter().collect();
        let parts = binary.text().iter().flat_map(|text| {
            let ranges = divide(text.start..text.end(), &functions);
            ranges.into_iter().map(|range| Part {
                range,
                translation: None,
                is_new: false,
            })
        });
        Ok(Self {
            parts: parts.collect(),
            features: features(&options.features),
            precise: options.precise,
            blocks: BTreeSet::new(),
            length: 0,
            functions,
            binary,
        })
    }

    /// Returns the range from the first to the last address of the code.
    #[must_use]
    pub fn text(&self) -> Range<u64> {
        self.binary.text_range()
    }

    /// Returns the number of bytes of the text, without what is between its sections.
    #[must_use]
    pub fn text_length(&self) -> u64 {
        let lengths = self
            .parts
            .iter()
            .map(|part| part.range.end - part.range.start);
        lengths.sum()
    }

    /// Returns the program's entry point.
    #[must_use]
    pub fn entry(&self) -> Option<u64> {
        self.binary.program().entry()
    }

    /// Returns the number of bytes of host code.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the number of translated guest instructions.
    #[must_use]
    pub fn instructions(&self) -> usize {
        let translations = self
            .parts
            .iter()
            .filter_map(|part| part.translation.as_ref());
        translations.map(|one| one.instructions as usize).sum()
    }

    /// Makes these addresses entries, and translates the parts that they are in. Addresses outside
    /// the code are ignored. Returns whether anything has changed.
    pub fn enter(&mut self, addresses: impl IntoIterator<Item = u64>) -> bool {
        let mut wanted = BTreeSet::new();
        for address in addresses {
            let Some(index) = self.part_at(address) else {
                continue;
            };
            let translation = self.parts[index].translation.as_ref();
            if translation.is_some_and(|one| is_entry(one, address)) {
                continue;
            }
            wanted.insert(index);
            if self.functions.binary_search(&address).is_err() {
                self.blocks.insert(address);
            }
        }
        self.translate(wanted)
    }

    /// Translates everything. Returns whether anything has changed.
    pub fn complete(&mut self) -> bool {
        let parts = (0..self.parts.len()).filter(|&index| self.parts[index].translation.is_none());
        let parts = parts.collect();
        self.translate(parts)
    }

    /// Translates the parts with these indices. Returns whether there were any.
    fn translate(&mut self, parts: BTreeSet<usize>) -> bool {
        let mut changed = false;
        for index in parts {
            if self.length > MAX_CODE {
                break;
            }
            let translation = self.translate_part(&self.parts[index].range);
            let part = &mut self.parts[index];
            let old = part.translation.as_ref().map_or(0, |one| one.code.len());
            let new = translation.as_ref().map_or(0, |one| one.code.len());
            self.length = self.length - old + new;
            part.is_new = translation.is_some();
            changed |= part.is_new;
            part.translation = translation;
        }
        changed
    }

    fn translate_part(&self, range: &Range<u64>) -> Option<Translation> {
        let text = self.binary.text_range();
        let mut sections = self.binary.text().iter();
        let section =
            sections.find(|section| (section.start..section.end()).contains(&range.start))?;
        let at = |address: u64| (address - section.start) as usize;
        let from = self.functions.partition_point(|&entry| entry < range.start);
        let to = self.functions.partition_point(|&entry| entry < range.end);
        let blocks: Vec<u64> = self.blocks.range(range.clone()).copied().collect();
        let region = Region {
            start: range.start,
            code: section.bytes.get(at(range.start)..at(range.end))?,
            functions: &self.functions[from..to],
            blocks: &blocks,
            position_independent: self.binary.is_position_independent(),
            write_through: self.precise,
            text_length: text.end - text.start,
        };
        // A part is a valid region, except at the end of the address space.
        translate(&region, &self.features).ok()
    }

    /// Returns the index of the part with code at an address.
    fn part_at(&self, address: u64) -> Option<usize> {
        let after = self
            .parts
            .partition_point(|part| part.range.start <= address);
        let index = after.checked_sub(1)?;
        let is_code = address.is_multiple_of(2) && self.parts[index].range.contains(&address);
        is_code.then_some(index)
    }

    /// Links the code of all translated parts.
    ///
    /// # Errors
    /// The code is too large for an image.
    pub fn link(&self) -> Result<Linked, LinkError> {
        let translations = self
            .parts
            .iter()
            .filter_map(|part| part.translation.as_ref());
        link::link(
            &translations.collect::<Vec<_>>(),
            &self.text(),
            Place::Image,
        )
    }

    /// Links the code of the parts that were translated since the last call. Also returns the range
    /// from the first to the last address of these parts; `None`: there are none.
    ///
    /// # Errors
    /// The code is too large for an image.
    pub fn link_new(&mut self) -> Result<Option<(Linked, Range<u64>)>, LinkError> {
        let new = self.parts.iter_mut().filter(|part| part.is_new);
        let mut text: Option<Range<u64>> = None;
        let mut translations = Vec::new();
        for part in new {
            part.is_new = false;
            let start = text.map_or(part.range.start, |text| text.start);
            text = Some(start..part.range.end);
            translations.extend(&part.translation);
        }
        let Some(text) = text else {
            return Ok(None);
        };
        Ok(Some((
            link::link(&translations, &text, Place::Image)?,
            text,
        )))
    }
}

/// Whether the code at `address` can be entered.
fn is_entry(translation: &Translation, address: u64) -> bool {
    let entries = &translation.entries;
    entries
        .binary_search_by_key(&address, |entry| entry.guest)
        .is_ok()
}

/// Returns the extensions in an LLVM feature string.
fn features(llvm: &str) -> Features {
    let has = |name: &str| llvm.split(',').any(|entry| entry.trim() == name);
    Features {
        popcnt: has("+popcnt"),
        lzcnt: has("+lzcnt"),
        bmi1: has("+bmi"),
        bmi2: has("+bmi2"),
        sse41: has("+sse4.1") || has("+sse4.2") || has("+avx") || has("+avx2"),
        fma: has("+fma"),
        pclmul: has("+pclmul"),
    }
}
