//! `fclass`, with integer instructions, which set no exception flag.

use hartline_isa::Format;

use super::memory::format_size;
use super::stubs::StubKind;
use super::values::{Int, Value};
use super::{Emitter, Float};
use crate::encoder::{Alu, Condition, Gpr, Label, Mem, Shift, Size, XmmRm};

/// A value to classify.
#[derive(Debug, Clone, Copy)]
pub(super) struct Classified {
    format: Format,
    operand: XmmRm,
    /// The result. Before that, the sign and the exponent.
    result: Gpr,
    scratch: Gpr,
}

impl Classified {
    const fn exponent_bits(&self) -> u8 {
        match self.format {
            Format::Single => 8,
            Format::Double => 11,
        }
    }

    /// The largest exponent, of infinities and NaNs.
    const fn largest_exponent(&self) -> i32 {
        (1 << self.exponent_bits()) - 1
    }
}

impl Emitter<'_> {
    /// Returns the class of a value as a mask. Normal numbers are on the main path.
    pub(super) fn classify(&mut self, format: Format, a: Float) -> Int {
        let Some(register) = self.checked(format, a) else {
            return self.values.add(Value::Const(0));
        };
        let size = format_size(format);
        let (result, scratch) = (self.acquire(), self.acquire());
        let classified = Classified {
            format,
            operand: self.location_f(register),
            result,
            scratch,
        };
        let back = self.asm.label();
        let others = self.stub(StubKind::Classify { classified, back });
        let exponent_bits = classified.exponent_bits();
        let mantissa_bits = 8 * format.bytes() as u8 - 1 - exponent_bits;
        self.load_image(format, result, classified.operand);
        self.asm.shift_imm(Shift::Shr, size, result, mantissa_bits);
        // The exponents 0 and `largest` are not those of normal numbers.
        let largest = classified.largest_exponent();
        self.asm.lea(scratch, Mem::Base(result, -1));
        self.asm.alu_imm(Alu::And, Size::Word, scratch, largest);
        self.asm.alu_imm(Alu::Cmp, Size::Word, scratch, largest - 1);
        self.asm.jcc(Condition::AboveOrEqual, others);
        // The sign 1 becomes bit 1, the sign 0 becomes bit 6.
        self.asm
            .shift_imm(Shift::Shr, Size::Word, result, exponent_bits);
        self.asm.alu_imm(Alu::Sub, Size::Word, result, 1);
        self.asm
            .alu_imm(Alu::And, Size::Word, result, (1 << 6) - (1 << 1));
        self.asm.alu_imm(Alu::Add, Size::Word, result, 1 << 1);
        self.asm.bind(back);
        self.release(scratch);
        self.values.add(Value::Temporary(result))
    }

    /// Classifies zeros, subnormal numbers, infinities and NaNs.
    pub(super) fn classify_aside(&mut self, classified: &Classified, back: Label) {
        let Classified {
            format,
            operand,
            result,
            scratch,
        } = *classified;
        let size = format_size(format);
        let [zero, infinite, nan, quiet] = [(); 4].map(|()| self.asm.label());
        // The exponent becomes the low bits, the mantissa the high bits.
        self.load_image(format, scratch, operand);
        self.asm.alu(Alu::Add, size, scratch, scratch);
        self.asm
            .shift_imm(Shift::Rol, size, scratch, classified.exponent_bits());
        self.asm.test(size, scratch, scratch);
        self.asm.jcc(Condition::Equal, zero);
        let largest = classified.largest_exponent();
        self.asm.alu_imm(Alu::Cmp, size, scratch, largest);
        self.asm.jcc(Condition::Equal, infinite);
        self.asm.test_imm(Size::Word, scratch, 1);
        self.asm.jcc(Condition::NotEqual, nan);
        self.class_by_sign(classified, 2, 5, back);
        self.asm.bind(zero);
        self.class_by_sign(classified, 3, 4, back);
        self.asm.bind(infinite);
        self.class_by_sign(classified, 0, 7, back);
        self.asm.bind(nan);
        self.asm.test(size, scratch, scratch);
        self.asm.mov_imm(result, 1 << 9);
        self.asm.jcc(Condition::Sign, quiet);
        self.asm.mov_imm(result, 1 << 8);
        self.asm.bind(quiet);
        self.asm.jmp(back);
    }

    /// Sets the bit of the result for a negative or a positive value, and goes `back`.
    fn class_by_sign(&mut self, classified: &Classified, minus: u8, plus: u8, back: Label) {
        let result = classified.result;
        let sign = 1 << classified.exponent_bits();
        self.asm.test_imm(Size::Word, result, sign);
        self.asm.mov_imm(result, 1 << minus);
        self.asm.jcc(Condition::NotEqual, back);
        self.asm.mov_imm(result, 1 << plus);
        self.asm.jmp(back);
    }
}
