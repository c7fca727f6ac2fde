//! Raw values: arithmetic results whose NaN is not canonical yet.
//!
//! RISC-V arithmetic has a single result NaN; x86 passes on an operand's NaN. If the result is only
//! an operand of further arithmetic, the difference is not visible: a NaN leads to a NaN, and a
//! quiet one raises no flag. So a result stays raw inside its block until its bits are visible: in
//! a store, in a move, or at the end of the block. A result that is overwritten before is never
//! checked for a NaN.

use hartline_isa::{Format, Instruction, Operation};

use super::lifter::Lifter;
use crate::analysis::RegisterSet;

/// Returns the format in which an instruction computes with all its floating-point operands, if its
/// effect does not depend on which NaN they are.
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
    /// Makes the registers canonical whose bits are visible to an instruction.
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
