//! Conversions between integers and both formats.

use hartline_isa::{Format, IntFormat, Width, fflags};

use super::super::memory::sign_extend;
use super::{Environment, Number, Value};
use crate::convert::{low_u32, low_u64};

impl Environment {
    /// `fcvt.s.d` and `fcvt.d.s`: from the other format to `to`.
    pub fn convert(&mut self, to: Format, bits: u64) -> u64 {
        let from = match to {
            Format::Single => Format::Double,
            Format::Double => Format::Single,
        };
        self.pack(to, Value::unpack(from, bits))
    }

    /// Integer to float; the low bits of `value` that `from` names.
    pub fn int_to_float(&mut self, format: Format, from: IntFormat, value: u64) -> u64 {
        let value = match from {
            IntFormat::I32 => i128::from(low_u32(value).cast_signed()),
            IntFormat::U32 => i128::from(low_u32(value)),
            IntFormat::I64 => i128::from(value.cast_signed()),
            IntFormat::U64 => i128::from(value),
        };
        if value == 0 {
            return 0;
        }
        let (negative, significand) = (value < 0, value.unsigned_abs());
        self.round(
            format,
            Number {
                negative,
                exponent: 0,
                significand,
            },
        )
    }

    /// Float to integer, saturating, as a register image: 32-bit results are sign-extended.
    pub fn float_to_int(&mut self, to: IntFormat, format: Format, bits: u64) -> u64 {
        let (lowest, highest) = match to {
            IntFormat::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
            IntFormat::U32 => (0, i128::from(u32::MAX)),
            IntFormat::I64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
            IntFormat::U64 => (0, i128::from(u64::MAX)),
        };
        let (value, exact) = match Value::unpack(format, bits) {
            Value::Zero { .. } => (0, true),
            Value::Finite(number) => self.integer(&number),
            Value::Infinity { negative: true } => (i128::MIN, true),
            Value::Infinity { negative: false } | Value::Nan { .. } => (i128::MAX, true),
        };
        let result = value.clamp(lowest, highest);
        if result != value {
            self.flags |= fflags::NV;
        } else if !exact {
            self.flags |= fflags::NX;
        }
        let bits = low_u64(result.cast_unsigned());
        match to {
            IntFormat::I32 | IntFormat::U32 => sign_extend(Width::Word, bits),
            IntFormat::I64 | IntFormat::U64 => bits,
        }
    }

    /// Rounds to an integer. A value beyond every integer format returns another integer beyond all
    /// of them. The flag says whether the result is exact.
    fn integer(&self, number: &Number) -> (i128, bool) {
        if number.exponent + number.leading() > 64 {
            return (
                if number.negative {
                    i128::MIN
                } else {
                    i128::MAX
                },
                true,
            );
        }
        let (magnitude, exact) = self.round_at(number, 0);
        let magnitude = magnitude.cast_signed();
        (
            if number.negative {
                -magnitude
            } else {
                magnitude
            },
            exact,
        )
    }
}
