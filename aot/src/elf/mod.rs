//! The parts of an ELF file that translation needs.
//!
//! The program headers are checked by [`hartline_abi::elf`], and only they must be valid. Sections,
//! symbols, unwind information and relocations are hints: if they are malformed or missing, fewer
//! functions are known ahead of time.

mod constants;
mod dynamic;
mod memory;
pub(crate) mod raw;
mod sections;
#[cfg(test)]
pub(crate) mod testing;
mod unwind;

pub use constants::Constants;
pub use memory::Memory;

use hartline_abi::elf::{ElfError, Program, ProgramType};
use hartline_isa::{ImmediateOp, Instruction, Operation, XReg, decode, instruction_length};
use std::collections::BTreeSet;
use std::ops::Range;

/// A range of executable code that is never written.
#[derive(Debug, Clone)]
pub struct Text<'a> {
    /// Link-time address of the first byte, even.
    pub start: u64,
    /// The code, an even number of bytes.
    pub bytes: &'a [u8],
}

impl Text<'_> {
    /// Address after the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// A function symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Link-time address.
    pub address: u64,
    /// Length, bytes; 0 if not known.
    pub size: u64,
    /// Name; bytes that are not UTF-8 make a symbol nameless.
    pub name: &'a str,
    /// Whether other files can call it.
    pub exported: bool,
}

/// An ELF file, read for translation.
#[derive(Debug, Clone)]
pub struct Binary<'a> {
    program: Program<'a>,
    memory: Memory<'a>,
    text: Vec<Text<'a>>,
    functions: Vec<Range<u64>>,
    symbols: Vec<Symbol<'a>>,
    entries: Vec<u64>,
    pointers: Vec<u64>,
    has_text_bounds: bool,
}

impl<'a> Binary<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// The error of [`Program::parse`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        let program = Program::parse(bytes)?;
        let mut memory = Memory::new(&program);
        let sections = sections::read(bytes);
        let dynamic = dynamic::read(&program, &memory);
        memory.set_relocations(dynamic.relative, dynamic.other);
        let unwind = unwind::function_ranges(&program, &memory, sections.eh_frame.clone());
        let has_text_bounds = !sections.code.is_empty() || !unwind.is_empty();
        let text = find_text(&memory, &sections.code, &unwind, program.entry());
        let mut binary = Self {
            program,
            memory,
            text,
            functions: Vec::new(),
            symbols: sections.symbols,
            entries: Vec::new(),
            pointers: Vec::new(),
            has_text_bounds,
        };
        binary
            .symbols
            .retain(|symbol| in_text(&binary.text, symbol.address));
        binary.functions = function_ranges(&binary.text, unwind, &binary.symbols);
        binary.find_entries(dynamic.entries);
        Ok(binary)
    }

    /// The same file, of whose contents none is constant: the program may change them at any time.
    #[must_use]
    pub(crate) fn without_constants(mut self) -> Self {
        self.memory.forget_constants();
        self
    }

    /// The checked file.
    #[must_use]
    pub fn program(&self) -> &Program<'a> {
        &self.program
    }

    /// Whether it may be loaded at any address.
    #[must_use]
    pub fn is_position_independent(&self) -> bool {
        self.program.program_type() == ProgramType::Dyn
    }

    /// Its memory as linked.
    #[must_use]
    pub fn memory(&self) -> &Memory<'a> {
        &self.memory
    }

    /// The code, sorted by address, without overlaps.
    #[must_use]
    pub fn text(&self) -> &[Text<'a>] {
        &self.text
    }

    /// Whether the file separates code from constants in the same segment. If not, bytes that
    /// nothing jumps to must not be treated as code.
    #[must_use]
    pub fn has_text_bounds(&self) -> bool {
        self.has_text_bounds
    }

    /// The range from the first to the last address of the code; empty if there is no code.
    #[must_use]
    pub fn text_range(&self) -> Range<u64> {
        match (self.text.first(), self.text.last()) {
            (Some(first), Some(last)) => first.start..last.end(),
            _ => 0..0,
        }
    }

    /// Whether the code contains a word at an even address.
    #[must_use]
    pub fn has_word(&self, word: u32) -> bool {
        let word = word.to_le_bytes();
        let mut texts = self.text.iter();
        texts.any(|text| text.bytes.windows(4).step_by(2).any(|found| found == word))
    }

    /// Whether the address is even and in the code.
    #[must_use]
    pub fn is_text(&self, address: u64) -> bool {
        in_text(&self.text, address)
    }

    /// Decodes the instruction at `pc`. `None`: not in the code, or illegal.
    #[must_use]
    pub fn instruction(&self, pc: u64) -> Option<Instruction> {
        let text = text_at(&self.text, pc)?;
        let bytes = text.bytes.get((pc - text.start) as usize..)?;
        let low = u16::from_le_bytes(*bytes.first_chunk()?);
        if instruction_length(low) == 2 {
            return decode(u32::from(low));
        }
        decode(u32::from_le_bytes(*bytes.first_chunk()?))
    }

    /// Whether a function may start at an address: the code before it is padding, or an instruction
    /// after which execution may not continue.
    #[must_use]
    pub fn may_start_function(&self, address: u64) -> bool {
        if !self.is_text(address) {
            return false;
        }
        let ends = |length: u8| {
            let before = address.wrapping_sub(u64::from(length));
            if !self.is_text(before) {
                return true;
            }
            match self.instruction(before) {
                Some(instruction) => instruction.length() == length && may_end(&instruction),
                None => length == 2,
            }
        };
        ends(2) || ends(4)
    }

    /// Ranges of functions from unwind information and symbols, sorted by start,
    /// without overlaps, within the code.
    #[must_use]
    pub fn functions(&self) -> &[Range<u64>] {
        &self.functions
    }

    /// Function symbols sorted by address; of several at one address, the exported ones come first.
    #[must_use]
    pub fn symbols(&self) -> &[Symbol<'a>] {
        &self.symbols
    }

    /// Name of the function that starts at the address.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<&'a str> {
        let index = self
            .symbols
            .partition_point(|symbol| symbol.address < address);
        let symbol = self.symbols.get(index)?;
        (symbol.address == address).then_some(symbol.name)
    }

    /// Addresses in the code that are entered from outside or through pointers in
    /// data: entry point, exported symbols, starts of function ranges that the data
    /// or its relocations point to. Sorted.
    #[must_use]
    pub fn entries(&self) -> &[u64] {
        &self.entries
    }

    /// Addresses in the code, outside any function range, that the data seems to point to:
    /// functions, or labels of computed gotos. Sorted.
    #[must_use]
    pub fn pointers(&self) -> &[u64] {
        &self.pointers
    }

    /// Finds the entries and pointers; `words` are values from the dynamic section.
    fn find_entries(&mut self, words: Vec<u64>) {
        let starts: BTreeSet<u64> = self.functions.iter().map(|range| range.start).collect();
        let mut entries: BTreeSet<u64> = self.program.entry().into_iter().collect();
        let mut pointers = BTreeSet::new();
        let text = self.text_range();
        let mut add = |word| {
            // Most words of a file are no addresses of code.
            if !text.contains(&word) {
                return;
            }
            // A pointer into the middle of a function is a label of a computed goto.
            if starts.contains(&word) {
                entries.insert(word);
            } else if range_at(&self.functions, word).is_none() && self.may_start_function(word) {
                pointers.insert(word);
            }
        };
        words.into_iter().for_each(&mut add);
        if !self.is_position_independent() {
            self.memory.for_each_word(add);
        }
        let exported = self.symbols.iter().filter(|symbol| symbol.exported);
        entries.extend(exported.map(|symbol| symbol.address));
        self.entries = entries
            .into_iter()
            .filter(|&entry| self.is_text(entry))
            .collect();
        self.pointers = pointers.into_iter().collect();
    }
}

/// Whether code may end with this instruction: jumps, calls (of functions that do not return),
/// `ebreak`, and the `nop` of padding.
fn may_end(instruction: &Instruction) -> bool {
    match instruction.operation() {
        Operation::Jal { .. } | Operation::Jalr { .. } | Operation::Ebreak => true,
        Operation::Immediate {
            op: ImmediateOp::Addi,
            rd,
            ..
        } => rd == XReg::ZERO,
        _ => false,
    }
}

/// Returns the range that contains the address, from a sorted list without overlaps.
fn range_at(ranges: &[Range<u64>], address: u64) -> Option<&Range<u64>> {
    let index = ranges.partition_point(|range| range.start <= address);
    ranges
        .get(index.checked_sub(1)?)
        .filter(|range| range.contains(&address))
}

fn text_at<'t, 'a>(text: &'t [Text<'a>], address: u64) -> Option<&'t Text<'a>> {
    let index = text.partition_point(|text| text.start <= address);
    text.get(index.checked_sub(1)?)
        .filter(|text| address < text.end())
}

fn in_text(text: &[Text<'_>], address: u64) -> bool {
    address.is_multiple_of(2) && text_at(text, address).is_some()
}

/// Finds the code. With a section table, these are the sections of instructions. Without one, it is
/// the range from the first to the last function that has unwind information, so that constants in
/// the same segment are not treated as code. Without either, it is whole executable segments.
/// Segments that are also writable are left to the interpreter.
fn find_text<'a>(
    memory: &Memory<'a>,
    sections: &[Range<u64>],
    unwind: &[Range<u64>],
    entry: Option<u64>,
) -> Vec<Text<'a>> {
    let hull = || {
        let start = unwind.iter().map(|range| range.start).chain(entry).min()?;
        let end = unwind.iter().map(|range| range.end).max()?;
        Some(start..end)
    };
    let whole;
    let wanted = if sections.is_empty() {
        whole = [hull().unwrap_or(0..u64::MAX)];
        &whole
    } else {
        sections
    };
    let mut pieces = Vec::new();
    for (start, bytes) in memory.code() {
        let end = start + bytes.len() as u64;
        for range in wanted {
            let from = range.start.clamp(start, end).next_multiple_of(2);
            let to = range.end.clamp(start, end) & !1;
            if from < to {
                pieces.push(from..to);
            }
        }
    }
    pieces.sort_by_key(|piece| piece.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        match merged.last_mut() {
            Some(last) if piece.start <= last.end => last.end = last.end.max(piece.end),
            _ => merged.push(piece),
        }
    }
    let text = merged.into_iter().filter_map(|range| {
        let bytes = memory.file_bytes(range.start)?;
        let length = ((range.end - range.start) as usize).min(bytes.len()) & !1;
        Some(Text {
            start: range.start,
            bytes: &bytes[..length],
        })
    });
    text.collect()
}

/// Combines unwind information and symbols to disjoint ranges.
fn function_ranges(
    text: &[Text<'_>],
    unwind: Vec<Range<u64>>,
    symbols: &[Symbol<'_>],
) -> Vec<Range<u64>> {
    let mut ranges = unwind;
    let sized = symbols.iter().filter(|symbol| symbol.size != 0);
    ranges.extend(sized.map(|symbol| symbol.address..symbol.address.saturating_add(symbol.size)));
    ranges.retain_mut(|range| {
        let Some(text) = text_at(text, range.start) else {
            return false;
        };
        range.end = range.end.min(text.end()) & !1;
        range.start.is_multiple_of(2) && range.start < range.end
    });
    ranges.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    ranges.dedup_by_key(|range| range.start);
    for index in 1..ranges.len() {
        let next = ranges[index].start;
        let range = &mut ranges[index - 1];
        range.end = range.end.min(next);
    }
    ranges
}
