//! One ELF file of a program with its debug information.

use crate::budget::Budget;
use crate::dwarf::Dwarf;
use crate::elf::{Elf, Error};
use crate::find::DebugFiles;
use crate::frames::Frames;
use crate::symbols::Symbols;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

/// A location in the source, or as much as is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// Name of the function.
    pub function: Option<String>,
    /// Offset in the function, if the name is from the symbol table.
    pub offset: Option<u64>,
    /// File and line.
    pub line: Option<Line>,
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Line {
    /// Path of the file.
    pub file: String,
    /// Number, from 1.
    pub number: u64,
}

/// Most bytes of locations that are kept for the next lookup of the same address.
const MOST_KNOWN: usize = 64 << 20;

/// Locations that were looked up, by address.
#[derive(Debug, Default)]
struct Known {
    locations: HashMap<u64, Vec<Location>>,
    /// About their length, bytes.
    length: usize,
}

impl Known {
    fn keep(&mut self, address: u64, locations: &[Location]) {
        let length = |location: &Location| {
            let line = location.line.as_ref().map_or(0, |line| line.file.len());
            size_of::<Location>() + line + location.function.as_ref().map_or(0, String::len)
        };
        let length = size_of::<u64>() + locations.iter().map(length).sum::<usize>();
        if self.length + length <= MOST_KNOWN {
            self.length += length;
            self.locations.insert(address, locations.to_vec());
        }
    }
}

/// An ELF file with its debug information.
#[derive(Debug)]
pub struct Module {
    segments: Vec<(u64, u64, u64)>,
    /// Link-time address and contents of executable segments.
    code: Vec<(u64, Vec<u8>)>,
    symbols: Symbols,
    dwarf: Option<Dwarf>,
    frames: Vec<Frames>,
    known: RefCell<Known>,
}

impl Module {
    /// Opens the file with the contents `bytes`, which is at `path` of the program's root file
    /// system.
    ///
    /// # Errors
    /// The file is no riscv64 ELF file. Debug information that cannot be read is left out.
    pub fn open(
        bytes: &[u8],
        path: &Path,
        files: &DebugFiles<'_>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let elf = Elf::parse(bytes)?;
        let separate = match elf.has_lines() {
            true => None,
            false => files.of(&elf, path),
        };
        let debug = separate.as_deref().and_then(|bytes| Elf::parse(bytes).ok());
        let lines = debug.as_ref().unwrap_or(&elf);
        let shared = files.shared_by(lines);
        let shared = shared.as_deref().and_then(|bytes| Elf::parse(bytes).ok());
        let dwarf = lines
            .has_lines()
            .then(|| Dwarf::new(lines, shared.as_ref(), budget));
        let own = [
            Frames::eh_frame(&elf, budget),
            Frames::debug_frame(&elf, budget),
        ];
        let other = debug
            .as_ref()
            .map(|debug| Frames::debug_frame(debug, budget));
        Ok(Self {
            segments: elf.segments(),
            code: elf.code(),
            symbols: Symbols::new([Some(&elf), debug.as_ref()].into_iter().flatten()),
            dwarf,
            frames: own.into_iter().chain(other).collect(),
            known: RefCell::default(),
        })
    }

    /// Link-time address of the byte at an offset of the file.
    #[must_use]
    pub fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|&(start, length, address)| {
            let inside = offset.checked_sub(start)?;
            (inside < length).then(|| address.wrapping_add(inside))
        })
    }

    /// Start and end of the function at a link-time address, by its symbol.
    pub(crate) fn function(&self, address: u64) -> Option<(u64, u64)> {
        self.symbols.range(address)
    }

    /// The bytes of the instruction at a link-time address, and what follows it.
    pub(crate) fn code(&self, address: u64) -> Option<u32> {
        self.code.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            let rest = bytes.get(offset..)?;
            let mut word = [0; 4];
            let length = rest.len().min(4);
            word[..length].copy_from_slice(&rest[..length]);
            (length >= 2).then(|| u32::from_le_bytes(word))
        })
    }

    /// The unwind tables, the best ones first.
    pub(crate) fn frames(&self) -> &[Frames] {
        &self.frames
    }

    /// The locations of the code at a link-time address: the function first that was inlined
    /// innermost, and last the one that the others were inlined into. There is at least one.
    #[must_use]
    pub fn locations(&self, address: u64, budget: &Budget) -> Vec<Location> {
        if let Some(known) = self.known.borrow().locations.get(&address) {
            return known.clone();
        }
        let found = self.look_up(address, budget);
        // Without a budget, the result may lack parts.
        if !budget.is_exhausted() {
            self.known.borrow_mut().keep(address, &found);
        }
        found
    }

    /// The lines of the code at link-time addresses, in their order: those of the functions that were
    /// inlined innermost.
    #[must_use]
    pub fn lines(&self, addresses: &[u64], budget: &Budget) -> Vec<Option<Line>> {
        match &self.dwarf {
            Some(dwarf) => dwarf.lines(addresses, budget),
            None => vec![None; addresses.len()],
        }
    }

    fn look_up(&self, address: u64, budget: &Budget) -> Vec<Location> {
        let found = self
            .dwarf
            .as_ref()
            .and_then(|dwarf| dwarf.find(address, budget));
        let mut found = found.unwrap_or_else(|| vec![Location::default()]);
        if let Some(outermost) = found.last_mut()
            && outermost.function.is_none()
            && let Some((name, offset)) = self.symbols.find(address)
        {
            outermost.function = Some(name);
            outermost.offset = Some(offset);
        }
        found
    }
}
