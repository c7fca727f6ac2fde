//! Source lines and inlined functions of code, from DWARF. Nothing is indexed but the address ranges
//! of units: the tables of one unit are read again for each lookup, so a lookup needs no memory.

use crate::Reader;
use crate::budget::Budget;
use crate::elf::Elf;
use crate::lines::{check_abbreviations, check_line_header};
use crate::module::{Line, Location};
use crate::names::demangled;
use crate::rows::each_row;
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Reader as _, Section, UnitOffset,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Most address ranges of units that are kept; the others are not found.
const MOST_RANGES: usize = 1 << 20;
/// Most functions at one address: inlined into each other.
const MOST_INLINED: usize = 64;
/// Most references from an entry to the entry with its name.
const MOST_REFERENCES: u32 = 16;
/// Most units that are kept in memory.
const MOST_UNITS: usize = 64;
/// Longest path of a source file, bytes.
const LONGEST_PATH: usize = 4096;

pub(crate) type Unit = gimli::Unit<Reader>;
type Entry = DebuggingInformationEntry<Reader>;
/// Units that were read, by their offset; `None` if one cannot be read.
type Kept = RefCell<HashMap<usize, Option<Arc<Unit>>>>;

/// The debug information of a file.
#[derive(Debug)]
pub struct Dwarf {
    dwarf: gimli::Dwarf<Reader>,
    /// Start, end and unit of address ranges, in the order of the units.
    ranges: Vec<(u64, u64, usize)>,
    units: Kept,
    shared_units: Kept,
}

/// A function that has the address: its entry, and where it was inlined.
struct Found {
    unit: Arc<Unit>,
    entry: UnitOffset<usize>,
    /// File and line of the call, for an inlined function.
    call: Option<(u64, u64)>,
}

impl Dwarf {
    /// The debug information of `elf`, of which a part may be in `shared`.
    #[must_use]
    pub fn new(elf: &Elf<'_>, shared: Option<&Elf<'_>>, budget: &Budget) -> Self {
        let mut dwarf = load(elf);
        if let Some(shared) = shared {
            dwarf.set_sup(load(shared));
        }
        let mut result = Self {
            dwarf,
            ranges: Vec::new(),
            units: Kept::default(),
            shared_units: Kept::default(),
        };
        // What was read before the budget ended, or before an error, is used.
        let _ = result.read_ranges(budget);
        result
    }

    /// Reads the address ranges of all units.
    fn read_ranges(&mut self, budget: &Budget) -> Option<()> {
        let mut units = self.dwarf.units();
        while let Some(header) = units.next().ok()? {
            budget.take(1).ok()?;
            let offset = header.debug_info_offset()?.0;
            let Some(unit) = read_unit(&self.dwarf, header, budget) else {
                continue;
            };
            let mut entries = unit.entries();
            let Ok(Some(root)) = entries.next_dfs() else {
                continue;
            };
            let ranges = &mut self.ranges;
            each_range(&self.dwarf, &unit, root, budget, |start, end| {
                if ranges.len() < MOST_RANGES {
                    ranges.push((start, end, offset));
                }
            });
        }
        Some(())
    }

    /// The locations of the code at a link-time address, the innermost one first; `None` if there is no
    /// debug information for it.
    #[must_use]
    pub fn find(&self, address: u64, budget: &Budget) -> Option<Vec<Location>> {
        let contains = |range: &&(u64, u64, usize)| (range.0..range.1).contains(&address);
        let mut candidates = self.ranges.iter().filter(contains).map(|range| range.2);
        let offset = candidates.next()?;
        let unit = self.unit(offset, budget)?;
        let mut line = self.line(&unit, address, budget);
        let mut found = self.functions(&unit, address, budget);
        let mut locations = Vec::new();
        // Innermost first. The line of each outer function is that of the call in it.
        while let Some(function) = found.pop() {
            let name = self.name(&function.unit, function.entry, budget);
            let call = function.call;
            locations.push(Location {
                function: name,
                offset: None,
                line: std::mem::replace(
                    &mut line,
                    call.and_then(|(file, number)| self.file_line(&unit, file, number)),
                ),
            });
        }
        if locations.is_empty() {
            locations.push(Location {
                line,
                ..Location::default()
            });
        }
        Some(locations)
    }

    /// The unit at an offset.
    fn unit(&self, offset: usize, budget: &Budget) -> Option<Arc<Unit>> {
        kept(&self.units, &self.dwarf, offset, budget)
    }

    /// The functions of a unit that have the address, the outermost one first.
    fn functions(&self, unit: &Arc<Unit>, address: u64, budget: &Budget) -> Vec<Found> {
        let mut found: Vec<(isize, Found)> = Vec::new();
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if budget.take(1 + entry.attrs().len() as u64).is_err() {
                break;
            }
            let depth = entry.depth();
            if found.first().is_some_and(|function| depth <= function.0) {
                break;
            }
            let is_inlined = entry.tag() == gimli::DW_TAG_inlined_subroutine;
            if !is_inlined && entry.tag() != gimli::DW_TAG_subprogram || found.len() == MOST_INLINED
            {
                continue;
            }
            let mut contains = false;
            each_range(&self.dwarf, unit, entry, budget, |start, end| {
                contains |= (start..end).contains(&address);
            });
            if !contains {
                continue;
            }
            let number = |name| {
                entry
                    .attr(name)
                    .and_then(|attribute| attribute.udata_value())
            };
            let file = match entry.attr_value(gimli::DW_AT_call_file) {
                Some(AttributeValue::FileIndex(file)) => Some(file),
                _ => number(gimli::DW_AT_call_file),
            };
            let call = file.zip(number(gimli::DW_AT_call_line));
            let function = Found {
                unit: Arc::clone(unit),
                entry: entry.offset(),
                call: call.filter(|_| is_inlined),
            };
            found.push((depth, function));
        }
        found.into_iter().map(|(_, function)| function).collect()
    }

    /// The line at an address, from the line table of its unit.
    fn line(&self, unit: &Unit, address: u64, budget: &Budget) -> Option<Line> {
        let mut found = None;
        each_row(unit, budget, |row| match row.code.contains(&address) {
            true => {
                found = self.file_line(unit, row.file, row.line);
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        });
        found
    }

    /// The lines at link-time addresses, in the order of the addresses. Each line table is read once.
    #[must_use]
    pub fn lines(&self, addresses: &[u64], budget: &Budget) -> Vec<Option<Line>> {
        let mut units = BTreeMap::<usize, Vec<(u64, usize)>>::new();
        let mut last = None;
        for (index, &address) in addresses.iter().enumerate() {
            let contains = |range: &&(u64, u64, usize)| (range.0..range.1).contains(&address);
            // Neighbours are mostly in one unit.
            let range = last.filter(|range| contains(range));
            last = range.or_else(|| self.ranges.iter().find(contains));
            if let Some(&(_, _, unit)) = last {
                units.entry(unit).or_default().push((address, index));
            }
        }
        let mut lines = vec![None; addresses.len()];
        for (offset, mut wanted) in units {
            let Some(unit) = self.unit(offset, budget) else {
                continue;
            };
            wanted.sort_unstable();
            each_row(&unit, budget, |row| {
                let first = wanted.partition_point(|wanted| wanted.0 < row.code.start);
                let end = wanted.partition_point(|wanted| wanted.0 < row.code.end);
                if let Some(found @ [_, ..]) = wanted.get(first..end) {
                    let line = self.file_line(&unit, row.file, row.line);
                    for &(_, index) in found {
                        // As for a single address, the first row counts.
                        lines[index] = lines[index].take().or_else(|| line.clone());
                    }
                }
                ControlFlow::Continue(())
            });
        }
        lines
    }

    /// The path of a file of a unit's line table, with a line. Line 0 is code without a line.
    fn file_line(&self, unit: &Unit, file: u64, number: u64) -> Option<Line> {
        if number == 0 {
            return None;
        }
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(file)?;
        let mut path = String::new();
        let text = |value| {
            let text = self.dwarf.attr_string(unit, value).ok()?;
            let bytes = text.bytes();
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_PATH)]);
            // Names may contain escape sequences for terminals.
            Some(text.replace(char::is_control, "?"))
        };
        if let Some(folder) = &unit.comp_dir {
            let bytes = folder.bytes();
            let bytes = &bytes[..bytes.len().min(LONGEST_PATH)];
            path = String::from_utf8_lossy(bytes).replace(char::is_control, "?");
        }
        // Before version 5, directory 0 is that of the unit.
        if (file.directory_index() != 0 || header.version() >= 5)
            && let Some(folder) = file.directory(header).and_then(text)
        {
            join(&mut path, &folder);
        }
        join(&mut path, &text(file.path_name())?);
        Some(Line { file: path, number })
    }

    /// Name of the function of an entry, which may be in the entry that it refers to.
    fn name(&self, unit: &Arc<Unit>, entry: UnitOffset<usize>, budget: &Budget) -> Option<String> {
        let mut plain = None;
        let mut at = (Arc::clone(unit), entry, false);
        for _ in 0..MOST_REFERENCES {
            let (unit, offset, is_shared) = &at;
            let dwarf = match is_shared {
                false => &self.dwarf,
                true => self.dwarf.sup()?,
            };
            let entry = unit.entry(*offset).ok()?;
            budget.take(1 + entry.attrs().len() as u64).ok()?;
            let text = |name| {
                let text = dwarf.attr_string(unit, entry.attr_value(name)?).ok()?;
                Some(demangled(text.bytes()))
            };
            if let Some(linkage) =
                text(gimli::DW_AT_linkage_name).or_else(|| text(gimli::DW_AT_MIPS_linkage_name))
            {
                return Some(linkage);
            }
            plain = plain.or_else(|| text(gimli::DW_AT_name));
            let reference = entry
                .attr_value(gimli::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(gimli::DW_AT_specification));
            let next = match reference {
                Some(AttributeValue::UnitRef(offset)) => (Arc::clone(unit), offset, *is_shared),
                Some(AttributeValue::DebugInfoRef(offset)) => {
                    self.entry_at(offset, *is_shared, budget)?
                }
                Some(AttributeValue::DebugInfoRefSup(offset)) => {
                    self.entry_at(offset, true, budget)?
                }
                _ => return plain,
            };
            at = next;
        }
        plain
    }

    /// The unit with the entry at an offset in `.debug_info`, and the entry's offset in it.
    fn entry_at(
        &self,
        offset: DebugInfoOffset<usize>,
        is_shared: bool,
        budget: &Budget,
    ) -> Option<(Arc<Unit>, UnitOffset<usize>, bool)> {
        let (dwarf, units) = match is_shared {
            false => (&self.dwarf, &self.units),
            true => (self.dwarf.sup()?, &self.shared_units),
        };
        let mut headers = dwarf.units();
        while let Some(header) = headers.next().ok()? {
            budget.take(1).ok()?;
            if let Some(inside) = offset.to_unit_offset(&header) {
                let start = header.debug_info_offset()?.0;
                let unit = kept(units, dwarf, start, budget)?;
                return Some((unit, inside, is_shared));
            }
        }
        None
    }
}

/// The sections with debug information.
fn load(elf: &Elf<'_>) -> gimli::Dwarf<Reader> {
    use gimli::SectionId;
    let read = |id: SectionId| -> Result<Reader, Infallible> {
        Ok(match id {
            SectionId::DebugStr | SectionId::DebugLineStr => elf.strings(id.name()),
            SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStrOffsets => elf.section(id.name()).1,
            _ => Reader::new([].into(), gimli::LittleEndian),
        })
    };
    let Ok(dwarf) = gimli::Dwarf::load(read);
    dwarf
}

/// The unit at an offset, from `units` or read.
fn kept(
    units: &Kept,
    dwarf: &gimli::Dwarf<Reader>,
    offset: usize,
    budget: &Budget,
) -> Option<Arc<Unit>> {
    if let Some(unit) = units.borrow().get(&offset) {
        return unit.clone();
    }
    let header = dwarf.unit_header(DebugInfoOffset(offset)).ok();
    let unit = header.and_then(|header| read_unit(dwarf, header, budget));
    let unit = unit.map(Arc::new);
    let mut units = units.borrow_mut();
    if units.len() == MOST_UNITS {
        units.clear();
    }
    units.insert(offset, unit.clone());
    unit
}

/// Reads a unit after the lengths of its tables were checked.
fn read_unit(
    dwarf: &gimli::Dwarf<Reader>,
    header: gimli::UnitHeader<Reader>,
    budget: &Budget,
) -> Option<Unit> {
    let abbreviations = header.debug_abbrev_offset().0;
    check_abbreviations(dwarf.debug_abbrev.reader(), abbreviations, budget)?;
    let abbreviations = dwarf.abbreviations(&header).ok()?;
    {
        let mut entries = header.entries(&abbreviations);
        let root = entries.next_dfs().ok()??;
        budget.take(root.attrs().len() as u64).ok()?;
        if let Some(AttributeValue::DebugLineRef(offset)) = root.attr_value(gimli::DW_AT_stmt_list)
        {
            check_line_header(dwarf.debug_line.reader(), offset.0, budget)?;
        }
    }
    let unit = gimli::Unit::new_with_abbreviations(dwarf, header, abbreviations).ok()?;
    for text in [&unit.name, &unit.comp_dir].into_iter().flatten() {
        budget.take_bytes(text.len() as u64).ok()?;
    }
    Some(unit)
}

/// Calls `action` with the address ranges of an entry.
fn each_range(
    dwarf: &gimli::Dwarf<Reader>,
    unit: &Unit,
    entry: &Entry,
    budget: &Budget,
    mut action: impl FnMut(u64, u64),
) {
    if let Some(value) = entry.attr_value(gimli::DW_AT_ranges)
        && let Ok(Some(mut ranges)) = dwarf.attr_ranges(unit, value)
    {
        while let Ok(Some(range)) = ranges.next() {
            // Code that the linker left out is at address 0.
            if range.begin != 0 {
                action(range.begin, range.end);
            }
            if budget.take(1).is_err() {
                return;
            }
        }
        return;
    }
    let address = |name| {
        let value = entry.attr_value(name)?;
        Some((dwarf.attr_address(unit, value.clone()).ok()?, value))
    };
    let Some((Some(start), _)) = address(gimli::DW_AT_low_pc) else {
        return;
    };
    let end = match address(gimli::DW_AT_high_pc) {
        Some((Some(end), _)) => end,
        Some((None, AttributeValue::Udata(length))) => start.wrapping_add(length),
        _ => return,
    };
    if start != 0 && start < end {
        action(start, end);
    }
}

/// Appends a path to another one, which it replaces if it is absolute.
fn join(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}
