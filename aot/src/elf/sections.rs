//! Section table and symbols.

use super::Symbol;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::cmp::Reverse;
use std::ops::Range;

/// The contents of the section table.
#[derive(Debug, Default)]
pub(super) struct Sections<'a> {
    /// Addresses of sections of instructions.
    pub code: Vec<Range<u64>>,
    /// Addresses of `.eh_frame`.
    pub eh_frame: Option<Range<u64>>,
    /// Function symbols sorted by address, exported and sized ones first.
    pub symbols: Vec<Symbol<'a>>,
}

/// Reads the section table. A malformed table counts as missing.
pub(super) fn read(bytes: &[u8]) -> Sections<'_> {
    let mut result = Sections::default();
    let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) else {
        return result;
    };
    for section in file.sections() {
        let range = section.address()..section.address().saturating_add(section.size());
        if section.name() == Ok(".eh_frame") && range.start != 0 {
            result.eh_frame = Some(range);
        } else if section.kind() == SectionKind::Text {
            result.code.push(range);
        }
    }
    let exported = file
        .dynamic_symbols()
        .filter_map(|symbol| function(&symbol, true));
    result.symbols = exported.collect();
    result
        .symbols
        .extend(file.symbols().filter_map(|symbol| function(&symbol, false)));
    let rank = |symbol: &Symbol<'_>| (symbol.address, !symbol.exported, Reverse(symbol.size));
    result.symbols.sort_by_key(rank);
    result
}

fn function<'a>(symbol: &impl ObjectSymbol<'a>, dynamic: bool) -> Option<Symbol<'a>> {
    let is_function = symbol.kind() == SymbolKind::Text && symbol.is_definition();
    is_function.then(|| Symbol {
        address: symbol.address(),
        size: symbol.size(),
        name: symbol.name().unwrap_or_default(),
        exported: dynamic && symbol.is_global(),
    })
}
