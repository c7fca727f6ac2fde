//! Conversions between floating-point formats and integers.

use hartline_abi::hart::offset;
use hartline_isa::{Format, IntFormat, Rounding, fflags};

use super::memory::{format_size, precision};
use super::registers::slot_of_f;
use super::stubs::StubKind;
use super::values::{Int, Value};
use super::{Emitter, Float};
use crate::encoder::{
    Alu, BitOp, Condition, Gpr, Label, Mem, Precision, Rm, RoundMode, Scalar, Shift, Size, Xmm,
    XmmRm,
};

/// A conversion from float to integer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversion {
    to: IntFormat,
    format: Format,
    rounding: Rounding,
    operand: XmmRm,
    result: Gpr,
    scratch: Gpr,
}

impl Conversion {
    const fn is_signed(&self) -> bool {
        matches!(self.to, IntFormat::I32 | IntFormat::I64)
    }

    const fn is_word(&self) -> bool {
        matches!(self.to, IntFormat::I32 | IntFormat::U32)
    }

    /// The mode of `roundss` and `roundsd`. RMM truncates first.
    const fn mode(&self) -> RoundMode {
        match self.rounding {
            Rounding::Rne => RoundMode::Nearest,
            Rounding::Rtz | Rounding::Rmm => RoundMode::Truncate,
            Rounding::Rdn => RoundMode::Down,
            Rounding::Rup => RoundMode::Up,
            Rounding::Dyn => RoundMode::Mxcsr,
        }
    }

    /// Whether the instruction is one that rounds and converts at once: MXCSR has the mode, or the
    /// instruction truncates.
    const fn is_direct(&self) -> bool {
        matches!(self.rounding, Rounding::Dyn | Rounding::Rne | Rounding::Rtz)
    }

    /// The lowest and the highest integer, as register images.
    const fn limits(&self) -> (u64, u64) {
        match self.to {
            IntFormat::I32 => (i32::MIN as u64, i32::MAX as u64),
            IntFormat::U32 => (0, u64::MAX),
            IntFormat::I64 => (i64::MIN as u64, i64::MAX as u64),
            IntFormat::U64 => (0, u64::MAX),
        }
    }

    /// A limit for unsigned conversions, as a single or the upper half of a double: positive values
    /// below it are in range in every rounding mode, and in the range of `i64`.
    const fn unsigned_limit(&self) -> i32 {
        match (self.format, self.is_word()) {
            // 2^32 − 2^11.
            (Format::Double, true) => 0x41ef_ffff,
            // 2^63: from 2^52 on all doubles are integers.
            (Format::Double, false) => 0x43e0_0000,
            // 2^32: from 2^23 on all singles are integers.
            (Format::Single, true) => 0x4f80_0000,
            // 2^63.
            (Format::Single, false) => 0x5f00_0000,
        }
    }
}

impl Emitter<'_> {
    /// Float to integer. The main path is for values for which SSE has RISC-V's result and flags.
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
        let (result, scratch) = (self.acquire(), self.acquire());
        let conversion = Conversion {
            to,
            format,
            rounding,
            operand: self.location_f(register),
            result,
            scratch,
        };
        let back = self.asm.label();
        match (conversion.is_signed(), conversion.is_direct()) {
            (true, true) => self.convert_signed(&conversion, back),
            (true, false) if rounding != Rounding::Rmm => self.round_signed(&conversion, back),
            (false, true) => self.convert_unsigned(&conversion, back),
            _ => {
                let aside = self.stub(StubKind::Convert { conversion, back });
                self.asm.jmp(aside);
            }
        }
        self.asm.bind(back);
        self.release(scratch);
        self.values.add(Value::Temporary(result))
    }

    /// SSE gives the lowest integer for values out of range, and sets no flag but IE.
    fn convert_signed(&mut self, conversion: &Conversion, back: Label) {
        let truncates = conversion.rounding == Rounding::Rtz;
        self.convert_to_word_or_double(conversion, truncates, conversion.operand);
        let overflow = StubKind::Saturate {
            conversion: *conversion,
            back,
        };
        self.check_overflow(conversion, overflow);
        self.extend_word(conversion);
    }

    /// Rounds in a mode that MXCSR does not have, and then converts.
    fn round_signed(&mut self, conversion: &Conversion, back: Label) {
        let integer = self.acquire_f();
        let precision = precision(conversion.format);
        self.asm
            .round(precision, conversion.mode(), integer, conversion.operand);
        self.convert_to_word_or_double(conversion, true, XmmRm::Reg(integer));
        self.release_f(integer);
        let overflow = StubKind::Convert {
            conversion: *conversion,
            back,
        };
        self.check_overflow(conversion, overflow);
        self.note_inexact(conversion);
        self.extend_word(conversion);
    }

    fn convert_to_word_or_double(
        &mut self,
        conversion: &Conversion,
        truncates: bool,
        operand: XmmRm,
    ) {
        let precision = precision(conversion.format);
        let size = word_or_double(conversion);
        self.asm
            .cvt_to_int(precision, truncates, size, conversion.result, operand);
    }

    /// Jumps to a stub if the result is the lowest integer.
    fn check_overflow(&mut self, conversion: &Conversion, stub: StubKind) {
        // Subtracting 1 overflows from the lowest integer only.
        self.asm
            .alu_imm(Alu::Cmp, word_or_double(conversion), conversion.result, 1);
        let aside = self.stub(stub);
        self.asm.jcc(Condition::Overflow, aside);
    }

    fn extend_word(&mut self, conversion: &Conversion) {
        if conversion.is_word() {
            self.asm
                .movsx(Size::Word, conversion.result, conversion.result);
        }
    }

    /// Sets the precision flag if the operand, which is in the range of `i64`, is not an integer.
    fn note_inexact(&mut self, conversion: &Conversion) {
        let precision = precision(conversion.format);
        let (scratch, operand) = (conversion.scratch, conversion.operand);
        self.asm
            .cvt_to_int(precision, true, Size::Double, scratch, operand);
    }

    /// Positive values below the limit become signed 64-bit integers.
    fn convert_unsigned(&mut self, conversion: &Conversion, back: Label) {
        let (result, operand) = (conversion.result, conversion.operand);
        self.load_upper(conversion.format, result, operand);
        self.asm
            .alu_imm(Alu::Cmp, Size::Word, result, conversion.unsigned_limit());
        let aside = match self.features.sse41 {
            true => {
                let conversion = *conversion;
                self.stub(StubKind::Convert { conversion, back })
            }
            false => self.interpret_aside(),
        };
        self.asm.jcc(Condition::AboveOrEqual, aside);
        let truncates = conversion.rounding == Rounding::Rtz;
        let precision = precision(conversion.format);
        self.asm
            .cvt_to_int(precision, truncates, Size::Double, result, operand);
        self.extend_word(conversion);
    }

    /// Converts any value: rounds it to an integer in a temporary SSE register, converts that to
    /// `i64`, and compares it with the range.
    pub(super) fn convert_aside(&mut self, conversion: &Conversion, back: Label) {
        let Conversion {
            format,
            operand,
            result,
            ..
        } = *conversion;
        let precision = precision(format);
        let [integer, fraction] = match operand {
            XmmRm::Reg(Xmm::Xmm14 | Xmm::Xmm15) => [Xmm::Xmm12, Xmm::Xmm13],
            _ => [Xmm::Xmm14, Xmm::Xmm15],
        };
        for register in [integer, fraction] {
            self.asm
                .movs_store(Precision::Double, slot_of_f(register), register);
        }
        let done = self.asm.label();
        if conversion.to == IntFormat::U64 {
            self.convert_upper_half(conversion, integer, done);
        }
        self.asm
            .round(precision, conversion.mode(), integer, operand);
        self.asm
            .cvt_to_int(precision, true, Size::Double, result, integer);
        if conversion.rounding == Rounding::Rmm {
            self.round_half_away(conversion, integer, fraction);
        }
        let outside = self.asm.label();
        self.compare_with_range(conversion, outside);
        self.note_inexact(conversion);
        self.extend_word(conversion);
        self.asm.jmp(done);
        self.asm.bind(outside);
        // SSE has set IE only for values out of the range of `i64`.
        if conversion.to != IntFormat::I64 {
            let (flags, invalid) = (Mem::Gs(offset::FFLAGS as u32), fflags::NV as i32);
            self.asm.alu_imm(Alu::Or, Size::Word, flags, invalid);
        }
        self.saturate(conversion, done);
        self.asm.bind(done);
        for register in [integer, fraction] {
            self.asm
                .movs_load(Precision::Double, register, slot_of_f(register));
        }
        self.asm.jmp(back);
    }

    /// Converts values from 2^63 to 2^64, which are integers, to `u64`, and jumps to `done`.
    fn convert_upper_half(&mut self, conversion: &Conversion, temporary: Xmm, done: Label) {
        let Conversion {
            format,
            operand,
            result,
            scratch,
            ..
        } = *conversion;
        // The upper half, or the single, that is 2^63, and the distance to 2^64. −2^63 as bits.
        let (lowest, distance, subtrahend) = match format {
            Format::Single => (0x5f00_0000, 0x0080_0000, 0xdf00_0000),
            Format::Double => (0x43e0_0000, 0x0010_0000, 0xc3e0_0000_0000_0000),
        };
        let others = self.asm.label();
        self.load_upper(format, scratch, operand);
        self.asm.alu_imm(Alu::Sub, Size::Word, scratch, lowest);
        self.asm.alu_imm(Alu::Cmp, Size::Word, scratch, distance);
        self.asm.jcc(Condition::AboveOrEqual, others);
        self.asm.mov_imm(result, subtrahend);
        self.asm
            .mov_to_xmm(Size::Double, temporary, Rm::Reg(result));
        let precision = precision(format);
        self.asm.scalar(Scalar::Add, precision, temporary, operand);
        self.asm
            .cvt_to_int(precision, true, Size::Double, result, temporary);
        self.asm.bit(BitOp::Btc, result, 63);
        self.asm.jmp(done);
        self.asm.bind(others);
    }

    /// Adds the sign of the operand to the result, which is truncated, if the fraction is at least
    /// one half. The subtraction is exact.
    fn round_half_away(&mut self, conversion: &Conversion, integer: Xmm, fraction: Xmm) {
        let Conversion {
            format,
            operand,
            result,
            scratch,
            ..
        } = *conversion;
        let precision = precision(format);
        match operand {
            XmmRm::Reg(operand) => self.asm.movaps(fraction, operand),
            XmmRm::Mem(word) => self.asm.movs_load(precision, fraction, word),
        }
        self.asm.scalar(Scalar::Sub, precision, fraction, integer);
        // The bits of 1/2 and the distance to 1, without the sign. The fraction of an infinity or
        // NaN is a NaN.
        let (half, distance) = match format {
            Format::Single => (0x3f00_0000, 0x0080_0000),
            Format::Double => (0x3fe0_0000, 0x0010_0000),
        };
        let less = self.asm.label();
        self.load_upper(format, scratch, XmmRm::Reg(fraction));
        self.asm.alu_imm(Alu::And, Size::Word, scratch, i32::MAX);
        self.asm.alu_imm(Alu::Sub, Size::Word, scratch, half);
        self.asm.alu_imm(Alu::Cmp, Size::Word, scratch, distance);
        self.asm.jcc(Condition::AboveOrEqual, less);
        self.load_upper(format, scratch, operand);
        self.asm.movsx(Size::Word, scratch, scratch);
        self.asm.shift_imm(Shift::Sar, Size::Double, scratch, 63);
        self.asm.alu_imm(Alu::Or, Size::Double, scratch, 1);
        self.asm.alu(Alu::Add, Size::Double, result, scratch);
        self.asm.bind(less);
    }

    /// Jumps to `outside` if the result, an `i64` that is the lowest one for values out of its
    /// range, is not an integer of the format.
    fn compare_with_range(&mut self, conversion: &Conversion, outside: Label) {
        let (result, scratch) = (conversion.result, conversion.scratch);
        match conversion.to {
            IntFormat::I32 | IntFormat::U32 => {
                match conversion.is_signed() {
                    true => self.asm.movsx(Size::Word, scratch, result),
                    false => self.asm.mov(Size::Word, scratch, result),
                }
                self.asm.alu(Alu::Cmp, Size::Double, scratch, result);
                self.asm.jcc(Condition::NotEqual, outside);
            }
            IntFormat::I64 => {
                self.asm.alu_imm(Alu::Cmp, Size::Double, result, 1);
                self.asm.jcc(Condition::Overflow, outside);
            }
            IntFormat::U64 => {
                self.asm.test(Size::Double, result, result);
                self.asm.jcc(Condition::Sign, outside);
            }
        }
    }

    /// Sets the result to the highest integer for a NaN or a positive value, otherwise to the
    /// lowest, and goes `back`.
    pub(super) fn saturate(&mut self, conversion: &Conversion, back: Label) {
        let Conversion {
            format,
            operand,
            result,
            scratch,
            ..
        } = *conversion;
        let size = format_size(format);
        let (lowest, highest) = conversion.limits();
        let negative_infinity = match format {
            Format::Single => u64::from(f32::NEG_INFINITY.to_bits()),
            Format::Double => f64::NEG_INFINITY.to_bits(),
        };
        let high = self.asm.label();
        self.load_image(format, result, operand);
        self.asm.test(size, result, result);
        self.asm.mov_imm(scratch, negative_infinity);
        // `mov` keeps the flags.
        self.asm.jcc(Condition::NotSign, high);
        self.asm.alu(Alu::Cmp, size, result, scratch);
        self.asm.jcc(Condition::Above, high);
        self.asm.mov_imm(result, lowest);
        self.asm.jmp(back);
        self.asm.bind(high);
        self.asm.mov_imm(result, highest);
        self.asm.jmp(back);
    }

    /// Loads the bits of a value.
    pub(super) fn load_image(&mut self, format: Format, into: Gpr, operand: XmmRm) {
        let size = format_size(format);
        match operand {
            XmmRm::Reg(register) => self.asm.mov_from_xmm(size, into, register),
            XmmRm::Mem(word) => self.asm.mov(size, into, word),
        }
    }

    /// Loads the bits of a single, or the upper half of a double's bits.
    fn load_upper(&mut self, format: Format, into: Gpr, operand: XmmRm) {
        self.load_image(format, into, operand);
        if format == Format::Double {
            self.asm.shift_imm(Shift::Shr, Size::Double, into, 32);
        }
    }

    /// Integer to float. In a static mode other than the nearest, only integers that are exact are
    /// converted.
    pub(super) fn int_to_float(
        &mut self,
        format: Format,
        from: IntFormat,
        rounding: Rounding,
        a: Int,
    ) -> Float {
        self.values.note_use(a);
        let by_mxcsr = matches!(rounding, Rounding::Dyn | Rounding::Rne);
        let only_exact = !by_mxcsr && !from.is_exact_in(format);
        let is_unsigned = matches!(from, IntFormat::U32 | IntFormat::U64);
        let (operand, scratch) = match only_exact || is_unsigned {
            false => self.operand(a),
            true => {
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
            (IntFormat::I32, Rm::Reg(register)) if only_exact => {
                self.asm.movsx(Size::Word, register, register);
            }
            _ => {}
        }
        if let (true, Rm::Reg(register)) = (only_exact, operand) {
            self.check_exact(format, register);
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

    /// Checks that the significand of `format` has enough bits for an integer and no more than its
    /// sign is in the bits above them.
    fn check_exact(&mut self, format: Format, integer: Gpr) {
        let above = self.acquire();
        self.asm.mov(Size::Double, above, integer);
        self.asm
            .shift_imm(Shift::Sar, Size::Double, above, format.precision());
        // These bits are 0 or −1.
        self.asm.alu_imm(Alu::Add, Size::Double, above, 1);
        self.asm.alu_imm(Alu::Cmp, Size::Double, above, 1);
        self.release(above);
        let slow = self.interpret_aside();
        self.asm.jcc(Condition::Above, slow);
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

/// The size in which SSE converts to a signed integer.
const fn word_or_double(conversion: &Conversion) -> Size {
    match conversion.is_word() {
        true => Size::Word,
        false => Size::Double,
    }
}
