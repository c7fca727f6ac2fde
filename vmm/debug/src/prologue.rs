//! Callers of functions without an unwind table, from the function's instructions. Compilers for
//! riscv64 write no unwind tables for C unless they are asked to, so this is common.
//!
//! All paths from the start of the function to the location are followed, until one reaches it. A state
//! says how far the stack pointer has moved on this path, and where registers were saved.

use crate::budget::Budget;
use crate::frames::{Caller, ReadMemory, Registers};
use crate::module::Module;
use hartline_isa::{ImmediateOp, IntegerOp, Operation, RegisterOp, Width, XReg, decode};
use std::collections::BTreeSet;

/// Most instructions of a function that are looked at.
const MOST: usize = 1 << 16;

const RA: usize = 1;
const SP: usize = 2;
const FP: usize = 8;

/// Locations and registers at an instruction. Offsets are from the caller's stack pointer.
#[derive(Debug, Clone)]
struct State {
    /// The stack pointer.
    sp: Option<i64>,
    /// The frame pointer, once it is set.
    fp: Option<i64>,
    /// Where registers were saved.
    saved: [Option<i64>; 32],
    /// Registers with constants, for frames that are too large for an immediate.
    constants: [Option<i64>; 32],
}

/// The caller of the function with the link-time address `pc`, of which the instructions before `pc`
/// have been executed. `None` if these instructions do not show where the return address is; while it is
/// in its register, it is only known for the innermost frame.
pub(crate) fn caller(
    module: &Module,
    pc: u64,
    x: &Registers,
    memory: ReadMemory<'_>,
    is_innermost: bool,
    budget: &Budget,
) -> Option<Caller> {
    let inside = pc.checked_sub(u64::from(!is_innermost))?;
    let function = module.function(inside)?;
    let state = at(module, function, pc, budget)?;
    if state.saved[RA].is_none() && !is_innermost {
        return None;
    }
    let from = |register: usize, offset: Option<i64>| {
        let value = x[register]?;
        Some(value.wrapping_sub(offset?.cast_unsigned()))
    };
    let cfa = from(SP, state.sp).or_else(|| from(FP, state.fp))?;
    let mut caller = *x;
    for (slot, offset) in caller.iter_mut().zip(state.saved).skip(1) {
        if let Some(offset) = offset {
            let mut bytes = [0; 8];
            let is_read = memory(cfa.wrapping_add_signed(offset), &mut bytes);
            *slot = is_read.then(|| u64::from_le_bytes(bytes));
        }
    }
    caller[SP] = Some(cfa);
    let pc = caller[RA]?;
    Some(Caller {
        pc: Some(pc),
        x: caller,
        is_end: pc == 0,
    })
}

/// The state before the instruction at `pc`, on one of the paths that lead there.
fn at(module: &Module, function: (u64, u64), pc: u64, budget: &Budget) -> Option<State> {
    let (start, end) = function;
    let first = State {
        sp: Some(0),
        fp: None,
        saved: [None; 32],
        constants: [None; 32],
    };
    let mut seen = BTreeSet::new();
    let mut paths = vec![(start, first)];
    while let Some((mut at, mut state)) = paths.pop() {
        while at != pc && (start..end).contains(&at) && seen.len() < MOST && seen.insert(at) {
            budget.take(1).ok()?;
            let Some(instruction) = module.code(at).and_then(decode) else {
                break;
            };
            let next = at.wrapping_add(instruction.length().into());
            let target = |offset: i32| at.wrapping_add_signed(offset.into());
            match instruction.operation() {
                Operation::Branch { offset, .. } => paths.push((target(offset), state.clone())),
                Operation::Jal { rd, offset } if usize::from(rd.number()) == 0 => {
                    at = target(offset);
                    continue;
                }
                // A return, or a jump through a table.
                Operation::Jalr { rd, .. } if usize::from(rd.number()) == 0 => break,
                operation => state.step(operation),
            }
            at = next;
        }
        if at == pc {
            return Some(state);
        }
    }
    None
}

impl State {
    /// Applies an instruction that continues with the next one.
    fn step(&mut self, operation: Operation) {
        match operation {
            Operation::Immediate {
                op: ImmediateOp::Addi | ImmediateOp::Addiw,
                rd,
                rs1,
                immediate,
            } => {
                let value = match usize::from(rs1.number()) {
                    0 => Some(0),
                    number => self.constants[number],
                };
                let add = |base: Option<i64>| Some(base? + i64::from(immediate));
                let location = match usize::from(rs1.number()) {
                    SP => add(self.sp),
                    FP => add(self.fp),
                    _ => None,
                };
                self.set(rd, location, add(value));
            }
            Operation::Lui { rd, immediate } => self.set(rd, None, Some(immediate.into())),
            Operation::Register {
                op: RegisterOp::I(IntegerOp::Add),
                rd: XReg::SP,
                rs1: XReg::SP,
                rs2,
            } => {
                let distance = self.constants[usize::from(rs2.number())];
                self.sp = self
                    .sp
                    .zip(distance)
                    .and_then(|(sp, by)| sp.checked_add(by));
            }
            Operation::Store {
                width: Width::Double,
                rs1: XReg::SP,
                rs2,
                offset,
            } => {
                let slot = &mut self.saved[usize::from(rs2.number())];
                let location = self.sp.map(|sp| sp + i64::from(offset));
                // A register that is saved again has another value.
                *slot = slot.or(location);
            }
            Operation::Load {
                width: Width::Double,
                rd,
                rs1: XReg::SP,
                offset,
                ..
            } => {
                let number = usize::from(rd.number());
                let location = self.sp.map(|sp| sp + i64::from(offset));
                if self.saved[number] == location {
                    self.saved[number] = None;
                }
                self.set(rd, None, None);
            }
            // What a call leaves in the stack pointer and the frame pointer is what was there.
            Operation::Jal { .. } | Operation::Jalr { .. } => self.constants = [None; 32],
            other => {
                if let Some(rd) = destination(other) {
                    self.set(rd, None, None);
                }
            }
        }
    }

    /// Sets a register: its location, if it points to the stack, or its value.
    fn set(&mut self, rd: XReg, location: Option<i64>, value: Option<i64>) {
        let number = usize::from(rd.number());
        match number {
            SP => self.sp = location,
            FP => self.fp = location,
            _ => {}
        }
        self.constants[number] = value.filter(|_| number != 0);
    }
}

/// The register that another operation writes, if it is one of those that functions use for their frame.
fn destination(operation: Operation) -> Option<XReg> {
    match operation {
        Operation::Auipc { rd, .. }
        | Operation::Load { rd, .. }
        | Operation::Shift { rd, .. }
        | Operation::Unary { rd, .. }
        | Operation::Immediate { rd, .. }
        | Operation::Register { rd, .. } => Some(rd),
        _ => None,
    }
}
