//! Comparison, minimum and maximum, classification.

use hartline_isa::{FCmp, FMinMax, Format, fflags};

use super::{Environment, Number, Value, canonical_nan, fraction_bits, sign_bit};

impl Environment {
    /// `feq`, `flt`, `fle`.
    pub fn compare(&mut self, op: FCmp, format: Format, a: u64, b: u64) -> bool {
        let values = [Value::unpack(format, a), Value::unpack(format, b)];
        if values
            .iter()
            .any(|value| matches!(value, Value::Nan { .. }))
        {
            self.propagate(format, &values);
            if op != FCmp::Eq {
                self.flags |= fflags::NV;
            }
            return false;
        }
        let both_zero = values
            .iter()
            .all(|value| matches!(value, Value::Zero { .. }));
        let (a, b) = (order(format, a), order(format, b));
        match op {
            FCmp::Eq => both_zero || a == b,
            FCmp::Lt => !both_zero && a < b,
            FCmp::Le => both_zero || a <= b,
        }
    }

    /// `fmin`, `fmax`.
    pub fn min_max(&mut self, op: FMinMax, format: Format, a: u64, b: u64) -> u64 {
        let values = [Value::unpack(format, a), Value::unpack(format, b)];
        self.propagate(format, &values);
        match values {
            [Value::Nan { .. }, Value::Nan { .. }] => canonical_nan(format),
            [Value::Nan { .. }, _] => b,
            [_, Value::Nan { .. }] => a,
            _ if (order(format, a) < order(format, b)) == (op == FMinMax::Min) => a,
            _ => b,
        }
    }
}

/// An integer that orders non-NaN values, −0 before +0.
fn order(format: Format, bits: u64) -> i64 {
    let magnitude = (bits & (sign_bit(format) - 1)).cast_signed();
    if bits & sign_bit(format) == 0 {
        magnitude
    } else {
        !magnitude
    }
}

/// `fclass`: one of bits 0–9.
#[must_use]
pub fn classify(format: Format, bits: u64) -> u64 {
    let negative = bits & sign_bit(format) != 0;
    let (when_negative, when_positive) = match Value::unpack(format, bits) {
        Value::Infinity { .. } => (0, 7),
        Value::Finite(number) if is_subnormal(format, &number) => (2, 5),
        Value::Finite(_) => (1, 6),
        Value::Zero { .. } => (3, 4),
        Value::Nan { signalling: true } => (8, 8),
        Value::Nan { signalling: false } => (9, 9),
    };
    1 << if negative {
        when_negative
    } else {
        when_positive
    }
}

fn is_subnormal(format: Format, number: &Number) -> bool {
    number.leading() < fraction_bits(format)
}
