//! Maps the host code of one function to guest instructions. The function is compiled again with
//! debug information, which gives the guest instruction of each host instruction, and the locations
//! of the guest's registers at a fault.

use std::borrow::Cow;
use std::ops::Range;

use gimli::{
    AttributeValue, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian, Location,
    Reader as _, RelocateReader, Value,
};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, Register};
use inkwell::context::Context;
use object::read::RelocationMap;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};
use thiserror::Error;

use crate::analysis::Unit;
use crate::cfg::Function;
use crate::code_object::{CodeObject, Names};
use crate::codegen::{Codegen, CodegenError};
use crate::lift::{Debug, Ir, Naming, guest_address, host_name, lift};
use crate::link::LinkError;

/// An explanation failed.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// An LLVM error.
    #[error(transparent)]
    Codegen(#[from] CodegenError),
    /// The generated object file is not readable.
    #[error("generated object file: {0}")]
    Object(#[from] object::Error),
    /// The object file has symbols that the linker of images does not know.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The debug information in the object file is not readable.
    #[error("generated debug information: {0}")]
    Dwarf(#[from] gimli::Error),
    /// The object file does not contain the function.
    #[error("generated object file has no function {0}")]
    Missing(String),
}

/// The code of a function and the guest instructions it belongs to.
#[derive(Debug)]
pub struct Explained {
    object: Vec<u8>,
    base: u64,
    /// Offset of the function's code in the object's text section.
    start: u64,
    /// x86-64 code; branches to other functions are not resolved.
    pub code: Vec<u8>,
    /// Offsets in `code` at which the code of a guest address (link-time), or code of no guest
    /// address, begins; ascending.
    pub rows: Vec<(u64, Option<u64>)>,
}

/// The host's state at a fault.
pub struct HostState<'a> {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8–r15.
    pub registers: [u64; 16],
    /// `x0`–`x31` in the `Hart` structure.
    pub hart: [u64; 32],
    /// Reads a word of the host stack.
    pub read: &'a dyn Fn(u64) -> Option<u64>,
}

type Section<'a> = (Cow<'a, [u8]>, Relocations);
type Reader<'a> = RelocateReader<EndianSlice<'a, LittleEndian>, &'a Relocations>;

/// Relocations of a debug section.
#[derive(Debug, Default)]
struct Relocations(RelocationMap);

impl gimli::read::Relocate for &Relocations {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.0.relocate(offset as u64, value))
    }

    fn relocate_offset(&self, offset: usize, value: usize) -> gimli::Result<usize> {
        let relocated = self.0.relocate(offset as u64, value as u64);
        usize::try_from(relocated).map_err(|_| gimli::Error::UnsupportedOffset)
    }
}

/// Compiles `function` with debug information.
///
/// # Errors
/// LLVM failed, or its output is not readable.
pub fn explain(function: &Function, unit: &Unit) -> Result<Explained, ExplainError> {
    let naming = Naming::for_linker(unit.position_independent);
    let mut compiled = Compiled::new(function, unit, naming)?;
    if compiled.object.check(&unit.text).is_err() {
        compiled = Compiled::new(function, unit, Naming::for_linker(false))?;
    }
    let (start, code) = function_code(&compiled, &unit.text)?;
    let base = function
        .blocks
        .first()
        .map_or(function.entry, |block| block.start);
    let mut explained = Explained {
        object: compiled.object.bytes,
        base,
        start,
        code,
        rows: Vec::new(),
    };
    explained.rows = explained.read_rows()?;
    Ok(explained)
}

/// A function compiled with debug information.
struct Compiled {
    name: String,
    object: CodeObject,
}

impl Compiled {
    fn new(function: &Function, unit: &Unit, naming: Naming) -> Result<Self, CodegenError> {
        let context = Context::create();
        let ir = Ir::new(&context, naming);
        let codegen = Codegen::new(unit.features.llvm(), &unit.disabled)?;
        codegen.prepare(&ir.module);
        let base = function.blocks.first().map(|block| block.start);
        let debug = Debug::new(&ir, base.unwrap_or(function.entry));
        lift(&ir, unit, function, Some(&debug));
        debug.finish();
        codegen.optimise(&ir.module)?;
        Ok(Self {
            name: host_name(&ir, unit, function.entry),
            object: CodeObject {
                key: None,
                addresses: ir.addresses(),
                bytes: codegen.object(&ir.module)?,
            },
        })
    }
}

/// Returns the section offset and the bytes of a function; numbers that the linker of images writes are
/// in them.
fn function_code(compiled: &Compiled, text: &Range<u64>) -> Result<(u64, Vec<u8>), ExplainError> {
    let file: ElfFile64<'_> = ElfFile64::parse(&compiled.object.bytes[..])?;
    let missing = || ExplainError::Missing(compiled.name.clone());
    let symbol = file.symbol_by_name(&compiled.name).ok_or_else(missing)?;
    let index = symbol.section_index().ok_or_else(missing)?;
    let section = file.section_by_index(index)?;
    let mut bytes = section.data()?.to_vec();
    let addresses = &compiled.object.addresses;
    for (at, relocation) in section.relocations() {
        Names { addresses, text }.apply(&file, &relocation, &mut bytes, at)?;
    }
    let start = usize::try_from(symbol.address()).ok();
    let size = usize::try_from(symbol.size()).ok();
    let code = start.zip(size).and_then(|(start, size)| {
        let end = start.checked_add(size)?;
        bytes.get(start..end)
    });
    Ok((symbol.address(), code.ok_or_else(missing)?.to_vec()))
}

impl Explained {
    /// The guest address (link-time) of the host instruction at `offset` in the code.
    #[must_use]
    pub fn guest_address(&self, offset: u64) -> Option<u64> {
        let after = self.rows.partition_point(|row| row.0 <= offset);
        self.rows.get(after.checked_sub(1)?)?.1
    }

    /// Returns the values of `x0`–`x31` before the guest instruction whose code at `offset`
    /// faulted; `None` for values that are no longer available.
    ///
    /// # Errors
    /// The debug information is not readable.
    pub fn registers(
        &self,
        offset: u64,
        state: &HostState<'_>,
    ) -> Result<[Option<u64>; 32], ExplainError> {
        let mut values = [None; 32];
        values[0] = Some(0);
        self.with_dwarf(|dwarf| {
            let mut units = dwarf.units();
            while let Some(header) = units.next()? {
                let unit = dwarf.unit(header)?;
                let mut entries = unit.entries();
                while let Some(entry) = entries.next_dfs()? {
                    if entry.tag() != gimli::DW_TAG_variable {
                        continue;
                    }
                    let Some(number) = register_number(dwarf, &unit, entry)? else {
                        continue;
                    };
                    let pc = self.start + offset;
                    if let Some(expression) = location(dwarf, &unit, entry, pc)? {
                        values[number] = evaluate(&unit, expression, state)?;
                    }
                }
            }
            Ok(())
        })?;
        Ok(values)
    }

    /// The host registers that the function never changes, in the order of [`HostState::registers`]: none
    /// if it calls anything.
    #[must_use]
    pub fn unchanged(&self) -> [bool; 16] {
        const ORDER: [Register; 16] = [
            Register::RAX,
            Register::RCX,
            Register::RDX,
            Register::RBX,
            Register::RSP,
            Register::RBP,
            Register::RSI,
            Register::RDI,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        let mut unchanged = [true; 16];
        let mut factory = InstructionInfoFactory::new();
        for instruction in &mut Decoder::with_ip(64, &self.code, 0, DecoderOptions::NONE) {
            let calls = matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            if calls || instruction.is_invalid() {
                return [false; 16];
            }
            for used in factory.info(&instruction).used_registers() {
                let is_read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
                let full = used.register().full_register();
                let index = ORDER.iter().position(|&register| register == full);
                if let Some(index) = index.filter(|_| !is_read) {
                    unchanged[index] = false;
                }
            }
        }
        unchanged
    }

    fn read_rows(&self) -> Result<Vec<(u64, Option<u64>)>, ExplainError> {
        let mut result = Vec::new();
        let end = self.start + self.code.len() as u64;
        self.with_dwarf(|dwarf| {
            let mut units = dwarf.units();
            while let Some(header) = units.next()? {
                let unit = dwarf.unit(header)?;
                let Some(program) = unit.line_program.clone() else {
                    continue;
                };
                let mut rows = program.rows();
                while let Some((_, row)) = rows.next_row()? {
                    if (self.start..end).contains(&row.address()) {
                        let guest = row.line().map(|line| guest_address(self.base, line.get()));
                        result.push((row.address() - self.start, guest));
                    }
                }
            }
            Ok(())
        })?;
        // If an address has several rows, the last one counts.
        result.sort_by_key(|row| row.0);
        result.reverse();
        result.dedup_by_key(|row| row.0);
        result.reverse();
        Ok(result)
    }

    fn with_dwarf(
        &self,
        action: impl FnOnce(&gimli::Dwarf<Reader<'_>>) -> Result<(), ExplainError>,
    ) -> Result<(), ExplainError> {
        let file: ElfFile64<'_> = ElfFile64::parse(self.object.as_slice())?;
        let sections = gimli::DwarfSections::load(|id| section(&file, id.name()))?;
        let dwarf = sections.borrow(|(bytes, relocations): &Section<'_>| {
            RelocateReader::new(EndianSlice::new(bytes, LittleEndian), relocations)
        });
        action(&dwarf)
    }
}

fn section<'a>(file: &ElfFile64<'a>, name: &str) -> Result<Section<'a>, object::Error> {
    let Some(section) = file.section_by_name(name) else {
        return Ok((Cow::Borrowed(&[]), Relocations::default()));
    };
    let relocations = Relocations(section.relocation_map()?);
    Ok((section.uncompressed_data()?, relocations))
}

type Entry<'r> = gimli::DebuggingInformationEntry<Reader<'r>>;

/// Returns the number of the integer register that a variable represents, if it is one.
fn register_number<'r>(
    dwarf: &gimli::Dwarf<Reader<'r>>,
    unit: &gimli::Unit<Reader<'r>>,
    entry: &Entry<'r>,
) -> Result<Option<usize>, ExplainError> {
    let Some(name) = entry.attr_value(gimli::DW_AT_name) else {
        return Ok(None);
    };
    let name = dwarf.attr_string(unit, name)?;
    let name = name.to_string_lossy()?;
    let number = name
        .strip_prefix('x')
        .and_then(|digits| digits.parse().ok());
    Ok(number.filter(|&number: &usize| number < 32))
}

/// Returns the location expression of a variable at `pc`.
fn location<'r>(
    dwarf: &gimli::Dwarf<Reader<'r>>,
    unit: &gimli::Unit<Reader<'r>>,
    entry: &Entry<'r>,
    pc: u64,
) -> Result<Option<Expression<Reader<'r>>>, ExplainError> {
    let Some(value) = entry.attr_value(gimli::DW_AT_location) else {
        return Ok(None);
    };
    if let AttributeValue::Exprloc(expression) = value {
        return Ok(Some(expression));
    }
    let Some(mut list) = dwarf.attr_locations(unit, value)? else {
        return Ok(None);
    };
    while let Some(entry) = list.next()? {
        if (entry.range.begin..entry.range.end).contains(&pc) {
            return Ok(Some(entry.data));
        }
    }
    Ok(None)
}

/// Returns the value of a DWARF register number (System V x86-64 ABI, figure 3.36).
fn host_register(state: &HostState<'_>, register: gimli::Register) -> Option<u64> {
    const ORDER: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
    let index = *ORDER.get(usize::from(register.0))?;
    state.registers.get(index).copied()
}

fn evaluate<'r>(
    unit: &gimli::Unit<Reader<'r>>,
    expression: Expression<Reader<'r>>,
    state: &HostState<'_>,
) -> Result<Option<u64>, ExplainError> {
    let mut evaluation: Evaluation<_> = expression.evaluation(unit.encoding());
    let mut step = evaluation.evaluate()?;
    loop {
        step = match step {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let Some(value) = host_register(state, register) else {
                    return Ok(None);
                };
                evaluation.resume_with_register(Value::Generic(value))?
            }
            EvaluationResult::RequiresFrameBase => {
                evaluation.resume_with_frame_base(state.registers[4])?
            }
            EvaluationResult::RequiresMemory { address, .. } => {
                let Some(value) = (state.read)(address) else {
                    return Ok(None);
                };
                evaluation.resume_with_memory(Value::Generic(value))?
            }
            EvaluationResult::RequiresEntryValue(_) => return Ok(None),
            _ => return Ok(None),
        };
    }
    let pieces = evaluation.result();
    let [piece] = pieces.as_slice() else {
        return Ok(None);
    };
    Ok(match piece.location {
        Location::Register { register } => host_register(state, register),
        Location::Address { address } => (state.read)(address),
        Location::Value { value } => value.to_u64(!0).ok(),
        _ => None,
    })
}
