//! Addition, multiplication, fused multiply-add, division, square root.

use hartline_isa::{FBinOp, Fma, Format, fflags};

use super::{Environment, Number, Value, infinity, shift_right_jam, with_sign};

/// Bit position of a summand's leading one. A carry still fits, and a product of two significands
/// (106 bits) keeps all of its bits when a neighbouring exponent shifts it by one. At larger
/// distances at most one leading bit cancels, so a jammed last bit rounds correctly.
const SUM_LEADING: u32 = 126;

impl Environment {
    /// `fadd`, `fsub`, `fmul`, `fdiv`.
    pub fn binary(&mut self, op: FBinOp, format: Format, a: u64, b: u64) -> u64 {
        let (a, b) = (Value::unpack(format, a), Value::unpack(format, b));
        if matches!(a, Value::Nan { .. }) || matches!(b, Value::Nan { .. }) {
            return self.propagate(format, &[a, b]);
        }
        match op {
            FBinOp::Add => self.sum(format, a, b),
            FBinOp::Sub => self.sum(format, a, b.negate_if(true)),
            FBinOp::Mul => match product(a, b) {
                Some(value) => self.pack(format, value),
                None => self.invalid(format),
            },
            FBinOp::Div => self.quotient(format, a, b),
        }
    }

    /// ±(a × b) ± c with one rounding.
    pub fn multiply_add(&mut self, fma: Fma, format: Format, a: u64, b: u64, c: u64) -> u64 {
        let [a, b, c] = [a, b, c].map(|bits| Value::unpack(format, bits));
        // Infinity times zero is invalid even if the addend is a quiet NaN.
        let nan = [a, b, c]
            .iter()
            .any(|value| matches!(value, Value::Nan { .. }));
        let Some(product) = product(a, b) else {
            return self.invalid(format);
        };
        if nan {
            return self.propagate(format, &[a, b, c]);
        }
        let product = product.negate_if(fma.negate_product);
        self.sum(format, product, c.negate_if(fma.negate_addend))
    }

    /// `fsqrt`.
    pub fn square_root(&mut self, format: Format, a: u64) -> u64 {
        let value = Value::unpack(format, a);
        match value {
            Value::Nan { .. } => self.propagate(format, &[value]),
            Value::Zero { .. } | Value::Infinity { negative: false } => a,
            Value::Infinity { negative: true } => self.invalid(format),
            Value::Finite(number) if number.negative => self.invalid(format),
            Value::Finite(number) => self.root(format, number),
        }
    }

    fn root(&mut self, format: Format, number: Number) -> u64 {
        // An even exponent, and at least 63 bits of root.
        let mut n = number.normalized(126);
        if n.exponent & 1 != 0 {
            n.significand <<= 1;
            n.exponent -= 1;
        }
        let root = n.significand.isqrt();
        let inexact = root * root != n.significand;
        let significand = root << 1 | u128::from(inexact);
        self.round(
            format,
            Number {
                negative: false,
                exponent: n.exponent / 2 - 1,
                significand,
            },
        )
    }

    /// Rounds a value that is not NaN.
    pub(super) fn pack(&mut self, format: Format, value: Value) -> u64 {
        match value {
            Value::Zero { negative } => with_sign(format, negative, 0),
            Value::Infinity { negative } => infinity(format, negative),
            Value::Finite(number) => self.round(format, number),
            Value::Nan { .. } => self.propagate(format, &[value]),
        }
    }

    /// The sum of two values that are not NaN.
    fn sum(&mut self, format: Format, a: Value, b: Value) -> u64 {
        match (a, b) {
            (Value::Infinity { negative: x }, Value::Infinity { negative: y }) if x != y => {
                self.invalid(format)
            }
            (Value::Infinity { .. }, _) => self.pack(format, a),
            (_, Value::Infinity { .. }) => self.pack(format, b),
            (Value::Zero { negative: x }, Value::Zero { negative: y }) if x != y => {
                self.zero_sum(format)
            }
            (_, Value::Zero { .. }) => self.pack(format, a),
            (Value::Zero { .. }, _) => self.pack(format, b),
            (Value::Finite(a), Value::Finite(b)) => self.finite_sum(format, a, b),
            (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => self.propagate(format, &[a, b]),
        }
    }

    fn finite_sum(&mut self, format: Format, a: Number, b: Number) -> u64 {
        let (a, b) = (a.normalized(SUM_LEADING), b.normalized(SUM_LEADING));
        let (large, small) = if a.exponent >= b.exponent {
            (a, b)
        } else {
            (b, a)
        };
        let distance = large.exponent.abs_diff(small.exponent);
        let other = shift_right_jam(small.significand, distance);
        let (negative, significand) = if large.negative == small.negative {
            (large.negative, large.significand + other)
        } else if large.significand >= other {
            (large.negative, large.significand - other)
        } else {
            (small.negative, other - large.significand)
        };
        if significand == 0 {
            return self.zero_sum(format);
        }
        self.round(
            format,
            Number {
                negative,
                exponent: large.exponent,
                significand,
            },
        )
    }

    /// The quotient of two values that are not NaN.
    fn quotient(&mut self, format: Format, a: Value, b: Value) -> u64 {
        let negative = a.is_negative() ^ b.is_negative();
        match (a, b) {
            (Value::Infinity { .. }, Value::Infinity { .. })
            | (Value::Zero { .. }, Value::Zero { .. }) => self.invalid(format),
            (Value::Infinity { .. }, _) => infinity(format, negative),
            (_, Value::Infinity { .. }) | (Value::Zero { .. }, _) => with_sign(format, negative, 0),
            (_, Value::Zero { .. }) => {
                self.flags |= fflags::DZ;
                infinity(format, negative)
            }
            (Value::Finite(a), Value::Finite(b)) => self.finite_quotient(format, a, b),
            (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => self.propagate(format, &[a, b]),
        }
    }

    fn finite_quotient(&mut self, format: Format, a: Number, b: Number) -> u64 {
        // The quotient has 64 or 65 bits.
        let (a, b) = (a.normalized(126), b.normalized(62));
        let quotient = a.significand / b.significand;
        let inexact = quotient * b.significand != a.significand;
        let number = Number {
            negative: a.negative ^ b.negative,
            exponent: a.exponent - b.exponent - 1,
            significand: quotient << 1 | u128::from(inexact),
        };
        self.round(format, number)
    }
}

/// The exact product; `None` for infinity times zero. A NaN factor gives NaN.
fn product(a: Value, b: Value) -> Option<Value> {
    let negative = a.is_negative() ^ b.is_negative();
    Some(match (a, b) {
        (Value::Nan { .. }, _) => a,
        (_, Value::Nan { .. }) => b,
        (Value::Infinity { .. }, Value::Zero { .. })
        | (Value::Zero { .. }, Value::Infinity { .. }) => return None,
        (Value::Infinity { .. }, _) | (_, Value::Infinity { .. }) => Value::Infinity { negative },
        (Value::Zero { .. }, _) | (_, Value::Zero { .. }) => Value::Zero { negative },
        (Value::Finite(a), Value::Finite(b)) => Value::Finite(Number {
            negative,
            exponent: a.exponent + b.exponent,
            significand: a.significand * b.significand,
        }),
    })
}
