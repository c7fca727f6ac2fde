//! Links object files to the parts of a translation image: lays out code and constants, applies
//! relocations, and adds stubs for code outside the image.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use hartline_abi::hart::offset;
use hartline_abi::image::{AccessEntry, ExtentEntry, FunctionEntry, HEADER_SIZE, OWN_CONVENTION};
use hartline_abi::jit;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};
use object::elf;
use object::read::elf::ElfFile64;
use object::{
    Object, ObjectSection, ObjectSymbol, Relocation, RelocationFlags, RelocationTarget,
    SectionIndex, SectionKind,
};
use thiserror::Error;

use crate::code_object::{CodeObject, ImageFunction, Names};
use crate::lift::{Service, symbol};
use crate::table::table_length;

/// The `ret` before the first function ([`symbol::RETURN`]), so that no function is at offset 0.
/// The stubs of the [`Service`]s follow.
const RETURN: u8 = 0xc3;
/// The space for [`RETURN`], bytes.
const RETURN_LENGTH: usize = 16;
/// The space for the stub of a service, bytes.
const SERVICE_LENGTH: usize = 48;
/// The space for [`RETURN`] and the services, bytes.
pub(crate) const START_LENGTH: usize = RETURN_LENGTH + Service::ALL.len() * SERVICE_LENGTH;
/// The space for the stub of a resume point, bytes: two stores of 13 and a jump of 5.
const STUB_LENGTH: usize = 32;
/// The space for the stub of a function that is not in the image, bytes.
const AWAY_LENGTH: usize = 48;
/// Alignment of the first function and of the stubs; LLVM aligns functions to 16 bytes.
const ALIGNMENT: u64 = 64;
/// The largest alignment of a section, bytes.
pub(crate) const MAX_ALIGNMENT: u64 = 4096;

/// LLVM produced something that this linker does not handle: a bug in the
/// translator.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The object file is not readable.
    #[error("generated object file: {0}")]
    Object(#[from] object::Error),
    /// A relocation type that is not supported.
    #[error("generated code has a relocation of type {0}, which images cannot hold")]
    Relocation(u32),
    /// A symbol without a definition.
    #[error("generated code refers to `{0}`, which is not defined")]
    Undefined(String),
    /// A section that must be aligned more than its destination is.
    #[error("generated data must be aligned to {0} bytes")]
    Alignment(u64),
    /// Code or data larger than 32-bit offsets can address.
    #[error("translation of {0} bytes is larger than an image can be")]
    TooLarge(u64),
}

/// Linked parts of an image.
#[derive(Debug)]
pub struct Linked {
    /// Host code.
    pub code: Vec<u8>,
    /// Constants and jump tables.
    pub data: Vec<u8>,
    /// Functions sorted by guest address.
    pub functions: Vec<FunctionEntry>,
    /// Accesses of the baseline translator's code, sorted by host offset.
    pub accesses: Vec<AccessEntry>,
    /// The guest code of the functions.
    pub extents: Vec<ExtentEntry>,
    /// Alignment in the image of code and constants, bytes ([`Layout::alignment`]).
    pub alignment: u64,
}

/// What linked code becomes a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// An image file.
    Image,
    /// A [translation](hartline_abi::jit) of code that a program made.
    Jit,
}

impl Destination {
    /// The offset of the constants, for code of `code_length` bytes in a [translation](hartline_abi::jit).
    pub(crate) fn data_offset(code_length: u64) -> u64 {
        (jit::CODE_OFFSET + code_length).next_multiple_of(jit::ALIGNMENT)
    }
}

/// Offsets of the parts of an image in its file, or in a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Dispatch table.
    pub table: u64,
    /// Code.
    pub code: u64,
    /// Constants.
    pub data: u64,
    /// Function array.
    pub functions: u64,
    /// The bias. In an image it is on the data page, one page before the file.
    pub bias: u64,
}

impl Layout {
    /// Returns the alignment of code and constants for code of `code_length` bytes. The first touch of
    /// a page costs an exit. If the page cache has 2 MiB folios of the file, large code takes one
    /// exit for 2 MiB.
    #[must_use]
    pub const fn alignment(code_length: usize) -> u64 {
        const LARGE: usize = 512 << 10;
        match code_length >= LARGE {
            true => HUGE_PAGE_SIZE,
            false => PAGE_SIZE,
        }
    }

    /// Computes the layout for parts of these lengths in bytes.
    #[must_use]
    pub fn new(table_length: u64, code_length: u64, data_length: u64, alignment: u64) -> Self {
        let table = HEADER_SIZE;
        let code = (table + table_length).next_multiple_of(alignment);
        let data = (code + code_length).next_multiple_of(alignment);
        let functions = (data + data_length).next_multiple_of(8);
        Self {
            table,
            code,
            data,
            functions,
            bias: PAGE_SIZE.wrapping_neg(),
        }
    }

    /// Computes the layout of a [translation](hartline_abi::jit), which has no table.
    fn of_jit(code_length: u64, data_length: u64) -> Self {
        let data = Destination::data_offset(code_length);
        Self {
            table: 0,
            code: jit::CODE_OFFSET,
            data,
            functions: (data + data_length).next_multiple_of(8),
            bias: 0,
        }
    }

    /// The distance from the bias to the code at an offset, bytes.
    fn after_bias(&self, offset: u64) -> u64 {
        self.code.wrapping_sub(self.bias).wrapping_add(offset)
    }
}

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Data,
}

/// The location of a section: its part and its offset there.
type Location = (Part, u64);

/// An object file whose sections are placed.
struct Input<'a> {
    file: ElfFile64<'a>,
    locations: HashMap<SectionIndex, Location>,
    names: Names<'a>,
}

/// The locations of symbols in an image.
#[derive(Default)]
struct Symbols {
    functions: HashMap<ImageFunction, u64>,
    others: HashMap<&'static str, u64>,
}

/// An entry in the middle of a function ([`crate::analysis::resume_points`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    /// Link-time guest address.
    pub guest: u64,
    /// Entry of the function that contains it.
    pub function: u64,
}

/// Guest code that a function was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Entry of the function.
    pub function: u64,
    /// Link-time address of the first instruction.
    pub start: u64,
    /// Link-time address after the last instruction.
    pub end: u64,
}

/// Links object files, in order, into an image of the guest code `text`. Each resume point gets a
/// stub, as if it were a function. Calls of guest functions that no object defines go to the
/// dispatcher.
///
/// # Errors
/// The objects have unsupported contents, or are too large.
pub(crate) fn link(
    objects: &[&CodeObject],
    (resume, extents): (&[ResumePoint], &[Extent]),
    text: &Range<u64>,
    destination: Destination,
) -> Result<Linked, LinkError> {
    let mut linked = Linked {
        code: vec![0xcc; START_LENGTH.next_multiple_of(ALIGNMENT as usize)],
        data: Vec::new(),
        functions: Vec::new(),
        accesses: Vec::new(),
        extents: Vec::new(),
        alignment: PAGE_SIZE,
    };
    let mut inputs = Vec::with_capacity(objects.len());
    for object in objects {
        inputs.push(add_input(object, text, &mut linked)?);
    }
    if destination == Destination::Jit {
        check_alignment(&inputs)?;
    }
    let (defined, missing) = function_symbols(&inputs)?;
    let mut resume = resume.to_vec();
    resume.retain(|point| defined.contains(&point.function) && !defined.contains(&point.guest));
    let mut entries = defined;
    entries.extend(resume.iter().map(|point| point.guest));
    let stubs = linked.code.len().next_multiple_of(ALIGNMENT as usize);
    let away = stubs + resume.len() * STUB_LENGTH;
    linked.code.resize(away + missing.len() * AWAY_LENGTH, 0xcc);
    linked.alignment = Layout::alignment(linked.code.len());
    let (code_length, data_length) = (linked.code.len() as u64, linked.data.len() as u64);
    let layout = match destination {
        Destination::Image => {
            let offsets = entries.iter().map(|guest| guest.wrapping_sub(text.start));
            let table = table_length(text.end.saturating_sub(text.start), offsets);
            Layout::new(table, code_length, data_length, linked.alignment)
        }
        Destination::Jit => Layout::of_jit(code_length, data_length),
    };
    let end = layout.functions;
    if end > u64::from(u32::MAX) / 2 {
        return Err(LinkError::TooLarge(end));
    }
    let mut symbols = define(&inputs, &layout, &mut linked)?;
    for (index, &guest) in missing.iter().enumerate() {
        let at = away + index * AWAY_LENGTH;
        let mut code = vec![0x49, 0xbb]; // mov r11, guest
        code.extend(guest.to_le_bytes());
        leave(&mut code, Service::Dispatch, layout.after_bias(at as u64))?;
        linked.code[at..at + code.len()].copy_from_slice(&code);
        let function = ImageFunction { guest, own: false };
        symbols.functions.insert(function, layout.code + at as u64);
    }
    put_services(&mut linked.code, layout.after_bias(0))?;
    for service in Service::ALL {
        let at = service_offset(service) as u64;
        symbols.others.insert(service.symbol(), layout.code + at);
    }
    for input in &inputs {
        relocate(input, &layout, &symbols, &mut linked)?;
    }
    add_stubs(&resume, stubs, &mut linked)?;
    linked.functions.sort_by_key(|function| function.guest);
    linked.extents = extent_entries(&linked.functions, &resume, extents, text)?;
    Ok(linked)
}

/// The extents of sorted functions. A resume point has those of the function that it enters.
fn extent_entries(
    functions: &[FunctionEntry],
    resume: &[ResumePoint],
    extents: &[Extent],
    text: &Range<u64>,
) -> Result<Vec<ExtentEntry>, LinkError> {
    let entered: HashMap<u64, u64> = (resume.iter())
        .map(|point| (point.guest, point.function))
        .collect();
    let mut of_function: HashMap<u64, Vec<&Extent>> = HashMap::new();
    for extent in extents {
        let known = of_function.entry(extent.function).or_default();
        known.push(extent);
    }
    let mut entries = Vec::with_capacity(extents.len());
    for (index, function) in functions.iter().enumerate() {
        let address = function.address();
        let function = entered.get(&address).unwrap_or(&address);
        for extent in of_function.get(function).into_iter().flatten() {
            let number = |value: u64| u32::try_from(value).map_err(|_| LinkError::TooLarge(value));
            entries.push(ExtentEntry {
                function: number(index as u64)?,
                start: number(extent.start.wrapping_sub(text.start))?,
                length: number(extent.end.wrapping_sub(extent.start))?,
            });
        }
    }
    Ok(entries)
}

/// Fills the first [`START_LENGTH`] bytes of the code, which starts `start` bytes after the bias.
pub(crate) fn put_services(code: &mut [u8], start: u64) -> Result<(), LinkError> {
    code[0] = RETURN;
    for service in Service::ALL {
        let at = service_offset(service);
        let mut stub = vec![0x65, 0x4c, 0x8b, 0x1c, 0x25]; // mov r11, gs:[pc]
        stub.extend((offset::PC as u32).to_le_bytes());
        leave(&mut stub, service, start + at as u64)?;
        code[at..at + stub.len()].copy_from_slice(&stub);
    }
    Ok(())
}

/// Returns the offset in the code of the code that jumps to a service.
pub(crate) fn service_offset(service: Service) -> usize {
    let before = Service::ALL.iter().take_while(|&&other| other != service);
    RETURN_LENGTH + before.count() * SERVICE_LENGTH
}

/// Checks that no section must be aligned more than a [translation](hartline_abi::jit) is.
fn check_alignment(inputs: &[Input<'_>]) -> Result<(), LinkError> {
    let sections = inputs.iter().flat_map(|input| {
        let sections = input.file.sections();
        sections.filter(|section| input.locations.contains_key(&section.index()))
    });
    let most = sections.map(|section| section.align()).max().unwrap_or(1);
    match most <= jit::ALIGNMENT {
        true => Ok(()),
        false => Err(LinkError::Alignment(most)),
    }
}

/// Returns the guest functions that the objects define, and the called functions that no object
/// defines.
fn function_symbols(inputs: &[Input<'_>]) -> Result<(BTreeSet<u64>, BTreeSet<u64>), LinkError> {
    let (mut defined, mut called) = (BTreeSet::new(), BTreeSet::new());
    for input in inputs {
        for symbol in input.file.symbols() {
            let function = input.names.function(symbol.name()?)?;
            if let Some(ImageFunction { guest, own: false }) = function {
                match symbol.is_definition() {
                    true => defined.insert(guest),
                    false => called.insert(guest),
                };
            }
        }
    }
    let missing = &called - &defined;
    Ok((defined, missing))
}

/// Completes the stub `code`, `here` bytes after the bias, which has loaded a link-time address into
/// r11: it jumps to a service with that pc. r11 is the only register that neither callers nor
/// callees of translated code and services use.
fn leave(code: &mut Vec<u8>, service: Service, here: u64) -> Result<(), LinkError> {
    add_bias(code, here)?;
    code.extend([0x65, 0x4c, 0x89, 0x1c, 0x25]); // mov gs:[pc], r11
    code.extend((offset::PC as u32).to_le_bytes());
    code.extend([0x65, 0xff, 0x24, 0x25]); // jmp gs:[service]
    code.extend((service.offset() as u32).to_le_bytes());
    Ok(())
}

/// Appends `add r11, [rip + bias]` to the stub `code`, `here` bytes after the bias ([`Layout::bias`]).
pub(crate) fn add_bias(code: &mut Vec<u8>, here: u64) -> Result<(), LinkError> {
    code.extend([0x4c, 0x03, 0x1d]);
    let next = here + code.len() as u64 + 4;
    let distance = i32::try_from(next).map_err(|_| LinkError::TooLarge(next))?;
    code.extend((-distance).to_le_bytes());
    Ok(())
}

/// Fills the space at `start` with the stubs of the resume points. A stub stores the resume
/// address, requests a poll, and enters the function, whose poll handles the request.
fn add_stubs(resume: &[ResumePoint], start: usize, linked: &mut Linked) -> Result<(), LinkError> {
    let hosts: HashMap<u64, u32> = linked
        .functions
        .iter()
        .map(|function| (function.guest, function.host))
        .collect();
    let too_large = |_| LinkError::TooLarge(start as u64);
    for (index, point) in resume.iter().enumerate() {
        let Some(&function) = hosts.get(&point.function) else {
            continue;
        };
        let at = start + index * STUB_LENGTH;
        let guest = i32::try_from(point.guest).map_err(too_large)?;
        let mut stub = store_to_hart(offset::RESUME, guest);
        stub.extend(store_to_hart(offset::POLL_LIMIT, -1));
        stub.push(0xe9);
        let next = at + stub.len() + 4;
        let distance = i64::from(function) - next as i64;
        stub.extend(i32::try_from(distance).map_err(too_large)?.to_le_bytes());
        linked.code[at..at + stub.len()].copy_from_slice(&stub);
        linked.functions.push(FunctionEntry {
            guest: point.guest,
            host: u32::try_from(at).map_err(too_large)?,
            host_length: stub.len() as u32,
        });
    }
    Ok(())
}

/// Encodes `mov qword ptr gs:[offset], value`.
fn store_to_hart(offset: u64, value: i32) -> Vec<u8> {
    let mut bytes = vec![0x65, 0x48, 0xc7, 0x04, 0x25];
    bytes.extend((offset as u32).to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes
}

/// Copies the allocated sections of an object file into the image's parts.
fn add_input<'a>(
    object: &'a CodeObject,
    text: &'a Range<u64>,
    linked: &mut Linked,
) -> Result<Input<'a>, LinkError> {
    let file = ElfFile64::parse(&object.bytes[..])?;
    let mut locations = HashMap::new();
    for section in file.sections() {
        let part = match section.kind() {
            SectionKind::Text => Part::Code,
            SectionKind::ReadOnlyData
            | SectionKind::ReadOnlyString
            | SectionKind::ReadOnlyDataWithRel => Part::Data,
            _ => continue,
        };
        if section.name().is_ok_and(|name| name == ".eh_frame") {
            continue;
        }
        let (bytes, filler) = match part {
            Part::Code => (&mut linked.code, 0xcc),
            Part::Data => (&mut linked.data, 0),
        };
        let start = (bytes.len() as u64).next_multiple_of(section.align().clamp(1, MAX_ALIGNMENT));
        bytes.resize(start as usize, filler);
        bytes.extend_from_slice(section.data()?);
        locations.insert(section.index(), (part, start));
    }
    let addresses = &object.addresses;
    Ok(Input {
        file,
        locations,
        names: Names { addresses, text },
    })
}

/// Adds the image offsets of the global symbols: functions, and the symbols of [`symbol`].
fn define(
    inputs: &[Input<'_>],
    layout: &Layout,
    linked: &mut Linked,
) -> Result<Symbols, LinkError> {
    let mut symbols = Symbols {
        functions: HashMap::new(),
        others: HashMap::from([
            (symbol::TABLE, layout.table),
            (symbol::CODE, layout.code),
            (symbol::RETURN, layout.code),
            (symbol::DATA, layout.bias),
        ]),
    };
    for input in inputs {
        for defined in input.file.symbols().filter(ObjectSymbol::is_definition) {
            let Some(location) = defined
                .section_index()
                .and_then(|i| input.locations.get(&i))
            else {
                continue;
            };
            let Some(function) = input.names.function(defined.name()?)? else {
                continue;
            };
            let own = u64::from(function.own) * OWN_CONVENTION;
            let offset = location.1.saturating_add(defined.address());
            linked.functions.push(FunctionEntry {
                guest: function.guest | own,
                host: u32::try_from(offset).map_err(|_| LinkError::TooLarge(offset))?,
                host_length: u32::try_from(defined.size())
                    .map_err(|_| LinkError::TooLarge(defined.size()))?,
            });
            let address = address(*location, layout).wrapping_add(defined.address());
            symbols.functions.insert(function, address);
        }
    }
    Ok(symbols)
}

/// Returns the image offset of a location.
fn address((part, offset): Location, layout: &Layout) -> u64 {
    match part {
        Part::Code => layout.code + offset,
        Part::Data => layout.data + offset,
    }
}

fn relocate(
    input: &Input<'_>,
    layout: &Layout,
    symbols: &Symbols,
    linked: &mut Linked,
) -> Result<(), LinkError> {
    for section in input.file.sections() {
        let Some(&(part, start)) = input.locations.get(&section.index()) else {
            continue;
        };
        for (offset, relocation) in section.relocations() {
            let at = start.saturating_add(offset);
            let bytes = match part {
                Part::Code => &mut linked.code,
                Part::Data => &mut linked.data,
            };
            if input.names.apply(&input.file, &relocation, bytes, at)? {
                continue;
            }
            let target = resolve(input, layout, symbols, &relocation)?;
            let from = address((part, at), layout);
            let value = target
                .wrapping_add_signed(relocation.addend())
                .wrapping_sub(from);
            apply(bytes, at, value, &relocation)?;
        }
    }
    Ok(())
}

/// Returns the image offset that a relocation refers to.
fn resolve(
    input: &Input<'_>,
    layout: &Layout,
    symbols: &Symbols,
    relocation: &Relocation,
) -> Result<u64, LinkError> {
    let RelocationTarget::Symbol(index) = relocation.target() else {
        return Err(LinkError::Undefined("(no symbol)".to_owned()));
    };
    let target = input.file.symbol_by_index(index)?;
    let location = target.section_index().and_then(|i| input.locations.get(&i));
    if let Some(&location) = location {
        return Ok(address(location, layout).wrapping_add(target.address()));
    }
    let name = target.name()?;
    let location = match input.names.function(name)? {
        Some(function) => symbols.functions.get(&function),
        None => symbols.others.get(name),
    };
    location
        .copied()
        .ok_or_else(|| LinkError::Undefined(name.to_owned()))
}

/// Writes a relative displacement.
fn apply(bytes: &mut [u8], at: u64, value: u64, relocation: &Relocation) -> Result<(), LinkError> {
    let RelocationFlags::Elf { r_type } = relocation.flags() else {
        return Err(LinkError::Relocation(u32::MAX));
    };
    let at = at as usize;
    match r_type {
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => {
            let displacement =
                i32::try_from(value as i64).map_err(|_| LinkError::TooLarge(value))?;
            let field = bytes
                .get_mut(at..at.saturating_add(4))
                .ok_or(LinkError::Relocation(r_type.0))?;
            field.copy_from_slice(&displacement.to_le_bytes());
        }
        elf::R_X86_64_PC64 => {
            let field = bytes
                .get_mut(at..at.saturating_add(8))
                .ok_or(LinkError::Relocation(r_type.0))?;
            field.copy_from_slice(&value.to_le_bytes());
        }
        _ => return Err(LinkError::Relocation(r_type.0)),
    }
    Ok(())
}
