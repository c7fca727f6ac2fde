//! Raw values: arithmetic results whose NaN is not canonical yet.
//!
//! RISC-V's arithmetic has one NaN as its result, x86's passes on that of an operand.
//! But if the result is only an operand of further arithmetic, nobody can tell: a NaN
//! leads to a NaN, a quiet one raises no flag. So a result stays raw inside its block
//! until something sees its bits: a store, a move, the end of the block. What is
//! overwritten before is never compared with itself.

use hartline_isa::{Format, Instruction, Operation};

use super::lifter::Lifter;
use crate::analysis::RegisterSet;

/// The format in which an instruction computes with all its floating-point operands,
/// if it takes no notice of which NaN they are.
fn computes_in(instruction: &Instruction) -> Option<Format> {
    match instruction.operation() {
        Operation::FloatBinary { format, .. }
        | Operation::FloatSqrt { format, .. }
        | Operation::FloatFma { format, .. }
        | Operation::FloatMinMax { format, .. }
        | Operation::FloatCompare { format, .. }
        | Operation::FloatClass { format, .. }
        | Operation::FloatToInt { format, .. } => Some(format),
        Operation::FloatConvert { to, .. } => Some(match to {
            Format::Single => Format::Double,
            Format::Double => Format::Single,
        }),
        _ => None,
    }
}

impl Lifter<'_, '_> {
    /// Makes those registers canonical whose bits an instruction sees.
    pub(super) fn settle_before(&mut self, instruction: &Instruction) {
        if self.unit.features.leaves_code(instruction) {
            return self.settle(RegisterSet::ALL);
        }
        let read = instruction.register_use().f_read;
        let format = computes_in(instruction);
        let seen = (0..32)
            .filter(|&number| read >> number & 1 == 1)
            .filter(|&number| self.block.raw[number].is_some() && self.block.raw[number] != format)
            .fold(0, |set, number| set | 1 << number);
        self.settle(RegisterSet { x: 0, f: seen });
    }

    /// Makes registers canonical.
    pub(super) fn settle(&mut self, set: RegisterSet) {
        for number in set.f_numbers() {
            let Some(format) = self.block.raw[number].take() else {
                continue;
            };
            let bits = self.registers.f(self.ir, number);
            let value = self.block.singles[number].unwrap_or(bits);
            let image = self.canonical(format, value, || ());
            self.registers.set_f(self.ir, number, image.bits);
            self.block.singles[number] = image.single;
        }
    }
}
