//! Conversions between floating-point formats and integers.

use hartline_isa::{Format, IntFormat, Rounding};

use super::memory::precision;
use super::values::{Int, Value};
use super::{Emitter, Float};
use crate::encoder::{Alu, Condition, Gpr, Precision, Rm, Size, Xmm, XmmRm};

/// 2^32 − 1 as a double.
const U32_LIMIT: u64 = 0x41ef_ffff_ffe0_0000;
/// 2^63 as a double.
const U64_LIMIT: u64 = 0x43e0_0000_0000_0000;

impl Emitter<'_> {
    /// Float to integer. SSE converts where its result and flags are RISC-V's; the interpreter
    /// handles other values.
    pub(super) fn float_to_int(
        &mut self,
        to: IntFormat,
        format: Format,
        rounding: Rounding,
        a: Float,
    ) -> Int {
        let Some(register) = self.checked(format, a) else {
            return self.values.add(Value::Const(0));
        };
        let truncates = rounding == Rounding::Rtz;
        let result = self.acquire();
        match to {
            IntFormat::I32 | IntFormat::I64 => {
                let operand = self.location_f(register);
                self.convert_signed(to, format, truncates, result, operand);
            }
            IntFormat::U32 | IntFormat::U64 => {
                let (value, scratch) = match format {
                    Format::Double => self.in_xmm(format, register),
                    Format::Single => {
                        let wide = self.acquire_f();
                        let operand = self.location_f(register);
                        self.asm.cvt(Precision::Single, wide, operand);
                        (wide, true)
                    }
                };
                self.convert_unsigned(to, truncates, result, value);
                self.release_if(value, scratch);
            }
        }
        self.values.add(Value::Temporary(result))
    }

    /// SSE gives the lowest integer for values out of range.
    fn convert_signed(
        &mut self,
        to: IntFormat,
        format: Format,
        truncates: bool,
        result: Gpr,
        operand: XmmRm,
    ) {
        let size = match to {
            IntFormat::I32 => Size::Word,
            _ => Size::Double,
        };
        self.asm
            .cvt_to_int(precision(format), truncates, size, result, operand);
        // Subtracting 1 overflows from the lowest integer only.
        self.asm.alu_imm(Alu::Cmp, size, result, 1);
        let slow = self.interpret_aside();
        self.asm.jcc(Condition::Overflow, slow);
        if size == Size::Word {
            self.asm.movsx(Size::Word, result, result);
        }
    }

    fn convert_unsigned(&mut self, to: IntFormat, truncates: bool, result: Gpr, value: Xmm) {
        let limit = self.acquire_f();
        self.asm.xorps(limit, limit);
        self.asm.ucomis(Precision::Double, value, limit);
        // Negative, or a NaN.
        let slow = self.interpret_aside();
        self.asm.jcc(Condition::Below, slow);
        let bits = match to {
            IntFormat::U32 => U32_LIMIT,
            _ => U64_LIMIT,
        };
        self.asm.mov_imm(result, bits);
        self.asm.mov_to_xmm(Size::Double, limit, Rm::Reg(result));
        self.asm.ucomis(Precision::Double, value, limit);
        let slow = self.interpret_aside();
        self.asm.jcc(Condition::AboveOrEqual, slow);
        self.release_f(limit);
        let operand = XmmRm::Reg(value);
        self.asm
            .cvt_to_int(Precision::Double, truncates, Size::Double, result, operand);
        if to == IntFormat::U32 {
            self.asm.movsx(Size::Word, result, result);
        }
    }

    /// Integer to float.
    pub(super) fn int_to_float(&mut self, format: Format, from: IntFormat, a: Int) -> Float {
        self.values.note_use(a);
        let (operand, scratch) = match from {
            IntFormat::I32 | IntFormat::I64 => self.operand(a),
            IntFormat::U32 | IntFormat::U64 => {
                let scratch = self.acquire();
                self.compute(a, scratch);
                (Rm::Reg(scratch), Some(scratch))
            }
        };
        match (from, operand) {
            (IntFormat::U32, Rm::Reg(register)) => self.asm.mov(Size::Word, register, register),
            (IntFormat::U64, Rm::Reg(register)) => {
                self.asm.test(Size::Double, register, register);
                // SSE would take it as negative.
                let slow = self.interpret_aside();
                self.asm.jcc(Condition::Sign, slow);
            }
            _ => {}
        }
        let size = match from {
            IntFormat::I32 => Size::Word,
            _ => Size::Double,
        };
        let result = self.result_register(&[]);
        // The instruction keeps the rest of the register: without this it waits for that.
        self.asm.xorps(result, result);
        self.asm
            .cvt_from_int(precision(format), size, result, operand);
        self.release_scratch(scratch);
        Float::Result(format, result)
    }

    /// Conversion between formats.
    pub(super) fn convert(&mut self, to: Format, a: Float) -> Float {
        let from = match to {
            Format::Single => Format::Double,
            Format::Double => Format::Single,
        };
        let Some(register) = self.checked(from, a) else {
            return a;
        };
        let result = self.result_register(&[]);
        let operand = self.location_f(register);
        self.asm.cvt(precision(from), result, operand);
        self.canonical(to, result)
    }
}
