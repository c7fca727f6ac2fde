//! Images of the baseline translator's code ([`hartline_baseline`]), for first runs.
//!
//! A file's text is divided into parts of some kilobytes, which end where functions start. A part is
//! translated as a whole when execution comes to it without a translation. Control flow is not
//! recovered: the translator finds loops and callees in the part itself, and each address at which
//! execution continued without a translation becomes an entry.
//!
//! Where no functions are known, as in the built-in functions of a virtual machine for JavaScript, a
//! part is cut off when execution comes to it: from there to the end of the function that starts
//! there. Without that, hundreds of kilobytes would be translated for each new entry.

mod jit;
mod link;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hartline_abi::layout::PAGE_SIZE;
use hartline_baseline::{Features, Region, Target, Translation, translate};

use crate::elf::Binary;
use crate::link::{Destination, Layout, LinkError, Linked};
use crate::translator::{MAX_TEXT, Options, ReadError};
use parts::{divide, function_end};

pub use jit::translate_jit;

/// The largest host code of one file, bytes.
pub const MAX_CODE: usize = 192 << 20;

/// New entries may be in the middle of instructions, and lead elsewhere: so often they are followed.
const ROUNDS: usize = 4;

/// A part of a file's text, by its link-time address.
struct Part {
    /// Link-time address of its end.
    end: u64,
    /// No function is known in it: it is divided when execution comes to it.
    is_unknown: bool,
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
    /// Without overlaps, by start.
    parts: BTreeMap<u64, Part>,
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
            let ranges = divide(text.start..text.end(), binary.functions(), &functions);
            ranges.into_iter().map(|(range, is_unknown)| {
                let part = Part {
                    end: range.end,
                    is_unknown,
                    translation: None,
                    is_new: false,
                };
                (range.start, part)
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
        let lengths = self.parts.iter().map(|(start, part)| part.end - start);
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
        let translations = self.translations().into_iter();
        translations.map(|one| one.instructions as usize).sum()
    }

    /// Makes these addresses entries, and translates the parts that they are in. Addresses outside
    /// the code are ignored. Returns whether anything has changed.
    pub fn enter(&mut self, addresses: impl IntoIterator<Item = u64>) -> bool {
        let mut wanted = BTreeSet::new();
        for address in addresses {
            let Some((start, part)) = self.part_at(address) else {
                continue;
            };
            let translation = part.translation.as_ref();
            if translation.is_some_and(|one| is_entry(one, address)) {
                continue;
            }
            let start = match part.is_unknown && translation.is_none() {
                true => self.cut_off(start, address),
                false => start,
            };
            wanted.insert(start);
            if self.functions.binary_search(&address).is_err() {
                self.blocks.insert(address);
            }
        }
        self.translate(wanted)
    }

    /// Cuts the part of the function at `address` off the unknown part at `start`. Result: the start of
    /// the new part.
    fn cut_off(&mut self, start: u64, address: u64) -> u64 {
        let Some(end) = self.parts.get(&start).map(|part| part.end) else {
            return start;
        };
        let code = self.code(&(address..end)).unwrap_or_default();
        let cut = address + function_end(code) as u64;
        let part = |end, is_unknown| Part {
            end,
            is_unknown,
            translation: None,
            is_new: false,
        };
        if start < address {
            self.parts.insert(start, part(address, true));
        }
        self.parts.insert(address, part(cut, false));
        if cut < end {
            self.parts.insert(cut, part(end, true));
        }
        address
    }

    /// Translates everything. `cases` are targets of jump tables, as far as they are known. Returns whether anything has
    /// changed.
    pub fn complete(&mut self, cases: impl IntoIterator<Item = u64>) -> bool {
        let parts = self.parts.iter();
        let parts = parts.filter(|(_, part)| part.translation.is_none());
        let parts = parts.map(|(&start, _)| start).collect();
        let mut changed = self.translate(parts);
        changed |= self.enter(cases);
        for _ in 0..ROUNDS {
            if !self.enter(self.targets()) {
                break;
            }
        }
        changed
    }

    /// Where the code of parts leads to in other parts: for example from a function to the stub of another file's function
    /// (`.plt`), in which no function is known to start.
    fn targets(&self) -> BTreeSet<u64> {
        let relocations = self.translations().into_iter();
        let relocations = relocations.flat_map(|one| &one.relocations);
        let targets = relocations.filter_map(|relocation| match relocation.target {
            Target::Guest(address) | Target::Function(address) => Some(address),
            Target::Service(_) | Target::Bias => None,
        });
        targets.collect()
    }

    /// Translates the parts with these starts. Returns whether there were any.
    fn translate(&mut self, parts: BTreeSet<u64>) -> bool {
        let mut changed = false;
        for start in parts {
            if self.length > MAX_CODE {
                break;
            }
            let Some(end) = self.parts.get(&start).map(|part| part.end) else {
                continue;
            };
            let translation = self.translate_part(&(start..end));
            let Some(part) = self.parts.get_mut(&start) else {
                continue;
            };
            let old = part.translation.as_ref().map_or(0, |one| one.code.len());
            let new = translation.as_ref().map_or(0, |one| one.code.len());
            self.length = self.length - old + new;
            part.is_new = translation.is_some();
            changed |= part.is_new;
            part.translation = translation;
        }
        changed
    }

    /// The bytes of a range of the text, which is in one section.
    fn code(&self, range: &Range<u64>) -> Option<&'a [u8]> {
        let mut sections = self.binary.text().iter();
        let section =
            sections.find(|section| (section.start..section.end()).contains(&range.start))?;
        let at = |address: u64| (address - section.start) as usize;
        section.bytes.get(at(range.start)..at(range.end))
    }

    fn translate_part(&self, range: &Range<u64>) -> Option<Translation> {
        let text = self.binary.text_range();
        let from = self.functions.partition_point(|&entry| entry < range.start);
        let to = self.functions.partition_point(|&entry| entry < range.end);
        let blocks: Vec<u64> = self.blocks.range(range.clone()).copied().collect();
        let region = Region {
            start: range.start,
            code: self.code(range)?,
            functions: &self.functions[from..to],
            blocks: &blocks,
            position_independent: self.binary.is_position_independent(),
            write_through: self.precise,
            text_length: text.end - text.start,
        };
        // A part is a valid region, except at the end of the address space.
        translate(&region, &self.features).ok()
    }

    /// Returns whether the part with code at an address is translated. It may lack an entry there.
    #[must_use]
    pub fn is_translated(&self, address: u64) -> bool {
        let part = self.part_at(address);
        part.is_some_and(|(_, part)| part.translation.is_some())
    }

    /// Returns the part with code at an address, and its start.
    fn part_at(&self, address: u64) -> Option<(u64, &Part)> {
        let (&start, part) = self.parts.range(..=address).next_back()?;
        let is_code = address.is_multiple_of(2) && address < part.end;
        is_code.then_some((start, part))
    }

    fn translations(&self) -> Vec<&Translation> {
        let parts = self.parts.values();
        parts.filter_map(|part| part.translation.as_ref()).collect()
    }

    /// Links the code of all translated parts.
    ///
    /// # Errors
    /// The code is too large for an image.
    pub fn link(&self) -> Result<Linked, LinkError> {
        let translations = self.translations();
        link::link(
            &translations,
            &self.text(),
            Destination::Image,
            Layout::alignment,
        )
    }

    /// Links the code of the parts that were translated since the last call. Also returns the range
    /// from the first to the last address of these parts; `None`: there are none. The code is not aligned for
    /// pages of 2 MiB: the memory of an image that is made while a program runs has none.
    ///
    /// # Errors
    /// The code is too large for an image.
    pub fn link_new(&mut self) -> Result<Option<(Linked, Range<u64>)>, LinkError> {
        let new = self.parts.iter_mut().filter(|(_, part)| part.is_new);
        let mut text: Option<Range<u64>> = None;
        let mut translations = Vec::new();
        for (&start, part) in new {
            part.is_new = false;
            let start = text.map_or(start, |text| text.start);
            text = Some(start..part.end);
            translations.extend(&part.translation);
        }
        let Some(text) = text else {
            return Ok(None);
        };
        Ok(Some((
            link::link(&translations, &text, Destination::Image, |_| PAGE_SIZE)?,
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
