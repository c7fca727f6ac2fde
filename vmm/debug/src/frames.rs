//! Unwind tables: `.eh_frame` and `.debug_frame`.

use crate::Reader;
use crate::budget::Budget;
use crate::elf::Elf;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, Evaluation,
    EvaluationResult, Expression, Reader as _, RegisterRule, UnwindContext, UnwindExpression,
    UnwindOffset, UnwindSection, Value,
};

/// Most functions of a table; the others are not found.
const MOST: usize = 4 << 20;
/// Most operations of one DWARF expression.
const MOST_OPERATIONS: u32 = 10_000;
/// Number of the stack pointer.
const SP: usize = 2;

/// Reads bytes of the program's memory. The result is whether all could be read.
pub type ReadMemory<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// The integer registers, as far as they are known.
pub type Registers = [Option<u64>; 32];

/// The registers of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its return address; `None` if it is not known, or if there is no caller.
    pub pc: Option<u64>,
    /// Its registers.
    pub x: Registers,
    /// Whether the table says that there is no caller.
    pub is_end: bool,
}

/// An unwind table.
#[derive(Debug)]
pub struct Frames {
    table: Table,
    bases: BaseAddresses,
    /// Start, end and offset of the functions, sorted.
    functions: Vec<(u64, u64, usize)>,
}

#[derive(Debug)]
enum Table {
    EhFrame(EhFrame<Reader>),
    DebugFrame(DebugFrame<Reader>),
}

impl Frames {
    /// The `.eh_frame` of a file.
    #[must_use]
    pub fn eh_frame(elf: &Elf<'_>, budget: &Budget) -> Self {
        let (address, section) = elf.section(".eh_frame");
        let (text, _) = elf.section(".text");
        let bases = BaseAddresses::default()
            .set_eh_frame(address)
            .set_text(text);
        let section = EhFrame::from(section);
        Self {
            functions: index(&section, &bases, budget),
            bases,
            table: Table::EhFrame(section),
        }
    }

    /// The `.debug_frame` of a file.
    #[must_use]
    pub fn debug_frame(elf: &Elf<'_>, budget: &Budget) -> Self {
        let (_, section) = elf.section(".debug_frame");
        let bases = BaseAddresses::default();
        let mut section = DebugFrame::from(section);
        section.set_address_size(8);
        Self {
            functions: index(&section, &bases, budget),
            bases,
            table: Table::DebugFrame(section),
        }
    }

    /// The caller of the function at the link-time address `address`, in which the registers are `x`.
    /// `None` if the table does not have the function, or is malformed.
    #[must_use]
    pub fn caller(
        &self,
        address: u64,
        x: &Registers,
        memory: ReadMemory<'_>,
        budget: &Budget,
    ) -> Option<Caller> {
        let after = self
            .functions
            .partition_point(|function| function.0 <= address);
        let &(_, end, offset) = self.functions.get(after.checked_sub(1)?)?;
        if address >= end {
            return None;
        }
        let at = At {
            offset,
            address,
            x,
            memory,
            budget,
        };
        match &self.table {
            Table::EhFrame(section) => at.caller(section, &self.bases),
            Table::DebugFrame(section) => at.caller(section, &self.bases),
        }
    }
}

/// The functions of a table.
fn index<S: UnwindSection<Reader>>(
    section: &S,
    bases: &BaseAddresses,
    budget: &Budget,
) -> Vec<(u64, u64, usize)>
where
    S::Offset: UnwindOffset<usize>,
{
    let mut functions = Vec::new();
    let mut last: Option<(usize, CommonInformationEntry<Reader>)> = None;
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if budget.take(1).is_err() || functions.len() == MOST {
            break;
        }
        let partial = match entry {
            CieOrFde::Fde(partial) => partial,
            CieOrFde::Cie(cie) => {
                if budget.take_bytes(cie.entry_len() as u64).is_err() {
                    break;
                }
                continue;
            }
        };
        let function = partial.parse(|section, bases, offset| {
            let at: usize = UnwindOffset::into(offset);
            if let Some((kept, cie)) = &last
                && *kept == at
            {
                return Ok(cie.clone());
            }
            let cie = section.cie_from_offset(bases, offset)?;
            // The loop stops at the next entry if the budget is used up.
            let _ = budget.take_bytes(cie.entry_len() as u64);
            last = Some((at, cie.clone()));
            Ok(cie)
        });
        let Ok(function) = function else {
            continue;
        };
        let (start, end) = (function.initial_address(), function.end_address());
        // Code that the linker left out is at address 0.
        if start != 0 && start < end {
            functions.push((start, end, function.offset()));
        }
    }
    functions.sort_unstable();
    functions
}

/// A location whose caller is looked for.
struct At<'a> {
    /// Offset of the function in the table.
    offset: usize,
    address: u64,
    x: &'a Registers,
    memory: ReadMemory<'a>,
    budget: &'a Budget,
}

impl At<'_> {
    fn caller<S: UnwindSection<Reader>>(&self, section: &S, bases: &BaseAddresses) -> Option<Caller>
    where
        S::Offset: UnwindOffset<usize>,
    {
        let entry = section.fde_from_offset(bases, self.offset.into(), S::cie_from_offset);
        let entry = entry.ok()?;
        let length = entry.entry_len() as u64 + entry.cie().entry_len() as u64;
        self.budget.take_bytes(length).ok()?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(section, bases, &mut context, self.address)
            .ok()?;
        let encoding = entry.cie().encoding();
        let evaluate = |expression: &UnwindExpression<usize>, initial| {
            let expression = expression.get(section).ok()?;
            self.evaluate(expression, encoding, initial)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let base = self.register(*register)?;
                base.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => evaluate(expression, None)?,
        };
        let value = |register: gimli::Register| {
            let rule = row.register(register).unwrap_or(RegisterRule::SameValue);
            match rule {
                RegisterRule::SameValue => self.register(register),
                RegisterRule::Offset(offset) => self.word(cfa.wrapping_add_signed(offset)),
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
                RegisterRule::Register(other) => self.register(other),
                RegisterRule::Expression(e) => self.word(evaluate(&e, Some(cfa))?),
                RegisterRule::ValExpression(e) => evaluate(&e, Some(cfa)),
                RegisterRule::Constant(value) => Some(value),
                _ => None,
            }
        };
        let number = entry.cie().return_address_register();
        let mut x = [None; 32];
        for (n, slot) in (0..).zip(&mut x) {
            *slot = value(gimli::Register(n));
        }
        // By convention, the stack pointer of the caller is the CFA.
        if matches!(
            row.register(gimli::Register(SP as u16)),
            None | Some(RegisterRule::SameValue)
        ) {
            x[SP] = Some(cfa);
        }
        x[0] = Some(0);
        Some(Caller {
            pc: value(number),
            x,
            is_end: matches!(row.register(number), Some(RegisterRule::Undefined)),
        })
    }

    fn register(&self, register: gimli::Register) -> Option<u64> {
        self.x.get(usize::from(register.0)).copied().flatten()
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.memory)(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    fn evaluate(
        &self,
        expression: Expression<Reader>,
        encoding: gimli::Encoding,
        initial: Option<u64>,
    ) -> Option<u64> {
        self.budget.take_bytes(expression.0.len() as u64).ok()?;
        let mut evaluation: Evaluation<Reader> = expression.evaluation(encoding);
        evaluation.set_max_iterations(MOST_OPERATIONS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut step = evaluation.evaluate().ok()?;
        loop {
            self.budget.take(1).ok()?;
            step = match step {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.register(register)?;
                    evaluation
                        .resume_with_register(Value::Generic(value))
                        .ok()?
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let mut bytes = [0; 8];
                    let part = bytes.get_mut(..usize::from(size))?;
                    if !(self.memory)(address, part) {
                        return None;
                    }
                    let value = Value::Generic(u64::from_le_bytes(bytes));
                    evaluation.resume_with_memory(value).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.result().as_slice() {
            [piece] => match piece.location {
                gimli::Location::Address { address } => Some(address),
                gimli::Location::Value { value } => value.to_u64(!0).ok(),
                gimli::Location::Register { register } => self.register(register),
                _ => None,
            },
            _ => None,
        }
    }
}
