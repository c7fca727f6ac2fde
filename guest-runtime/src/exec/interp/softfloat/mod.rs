//! IEEE 754 binary32 and binary64 arithmetic on integers, exact in all five
//! rounding modes of RISC-V and in its flags: tininess is detected after
//! rounding, and every NaN result is the canonical one.
//!
//! Values are bit patterns in the low 32 or 64 bits of a `u64`. This code does not touch the CPU's
//! floating-point state, which belongs to translated code.

mod arithmetic;
mod compare;
mod convert;
#[cfg(test)]
pub(super) mod tests;

use crate::convert::{low_u32, low_u64};
pub use compare::classify;
use hartline_isa::{Format, Rounding, fflags};

/// Rounding mode and accrued flags of a series of operations.
#[derive(Debug, Clone, Copy)]
pub struct Environment {
    /// The rounding mode; [`Rounding::Dyn`] has to be resolved first and counts as RNE.
    pub rounding: Rounding,
    /// Flags raised so far ([`fflags`]).
    pub flags: u32,
}

/// Bits of the significand, the leading one included.
pub(super) const fn precision(format: Format) -> u32 {
    match format {
        Format::Single => 24,
        Format::Double => 53,
    }
}

/// Bits of the fraction, as part of an exponent.
const fn fraction_bits(format: Format) -> i32 {
    precision(format).cast_signed() - 1
}

/// Exponent of the largest values; also the bias.
const fn max_exponent(format: Format) -> i32 {
    match format {
        Format::Single => 127,
        Format::Double => 1023,
    }
}

const fn sign_bit(format: Format) -> u64 {
    match format {
        Format::Single => 1 << 31,
        Format::Double => 1 << 63,
    }
}

/// The canonical quiet NaN.
pub const fn canonical_nan(format: Format) -> u64 {
    match format {
        Format::Single => 0x7fc0_0000,
        Format::Double => 0x7ff8_0000_0000_0000,
    }
}

const fn infinity(format: Format, negative: bool) -> u64 {
    let magnitude = match format {
        Format::Single => 0x7f80_0000,
        Format::Double => 0x7ff0_0000_0000_0000,
    };
    with_sign(format, negative, magnitude)
}

const fn with_sign(format: Format, negative: bool, magnitude: u64) -> u64 {
    if negative {
        magnitude | sign_bit(format)
    } else {
        magnitude
    }
}

/// A number that is neither zero, infinite nor NaN:
/// ± `significand` × 2^`exponent`, the significand not zero.
#[derive(Debug, Clone, Copy)]
struct Number {
    negative: bool,
    exponent: i32,
    significand: u128,
}

/// An operand.
#[derive(Debug, Clone, Copy)]
enum Value {
    Zero { negative: bool },
    Finite(Number),
    Infinity { negative: bool },
    Nan { signalling: bool },
}

impl Value {
    fn unpack(format: Format, bits: u64) -> Self {
        let fraction_bits = precision(format) - 1;
        let negative = bits & sign_bit(format) != 0;
        let magnitude = bits & (sign_bit(format) - 1);
        let biased = low_u32(magnitude >> fraction_bits).cast_signed();
        let fraction = magnitude & ((1 << fraction_bits) - 1);
        let lowest = 1 - max_exponent(format) - fraction_bits.cast_signed();
        if biased == 2 * max_exponent(format) + 1 {
            return match fraction {
                0 => Self::Infinity { negative },
                _ => Self::Nan {
                    signalling: fraction >> (fraction_bits - 1) == 0,
                },
            };
        }
        match (biased, fraction) {
            (0, 0) => Self::Zero { negative },
            (0, _) => Self::Finite(Number {
                negative,
                exponent: lowest,
                significand: fraction.into(),
            }),
            _ => Self::Finite(Number {
                negative,
                exponent: lowest + biased - 1,
                significand: u128::from(fraction | 1 << fraction_bits),
            }),
        }
    }

    fn is_negative(self) -> bool {
        match self {
            Self::Zero { negative } | Self::Infinity { negative } => negative,
            Self::Finite(number) => number.negative,
            Self::Nan { .. } => false,
        }
    }

    fn negate_if(self, negate: bool) -> Self {
        match self {
            Self::Zero { negative } => Self::Zero {
                negative: negative ^ negate,
            },
            Self::Infinity { negative } => Self::Infinity {
                negative: negative ^ negate,
            },
            Self::Finite(n) => Self::Finite(Number {
                negative: n.negative ^ negate,
                ..n
            }),
            Self::Nan { .. } => self,
        }
    }
}

impl Number {
    /// Position of the leading one.
    fn leading(&self) -> i32 {
        127 - self.significand.leading_zeros().cast_signed()
    }

    /// The same value with the leading one at bit `position`, which must leave room for all bits of
    /// the significand.
    fn normalized(self, position: u32) -> Self {
        let shift = position.cast_signed() - self.leading();
        debug_assert!(shift >= 0);
        Self {
            significand: self.significand << shift,
            exponent: self.exponent - shift,
            ..self
        }
    }
}

/// Returns `value` / 2^`shift` as an integer, and the remainder.
fn shift_right(value: u128, shift: u32) -> (u128, Remainder) {
    if shift == 0 {
        return (value, Remainder::Zero);
    }
    if shift > 128 {
        return (
            0,
            if value == 0 {
                Remainder::Zero
            } else {
                Remainder::BelowHalf
            },
        );
    }
    let quotient = value.checked_shr(shift).unwrap_or(0);
    let half = 1 << (shift - 1);
    let rest = value & (half | (half - 1));
    let remainder = match rest.cmp(&half) {
        _ if rest == 0 => Remainder::Zero,
        core::cmp::Ordering::Less => Remainder::BelowHalf,
        core::cmp::Ordering::Equal => Remainder::Half,
        core::cmp::Ordering::Greater => Remainder::AboveHalf,
    };
    (quotient, remainder)
}

/// Returns `value` / 2^`shift`, with the lowest bit set if the remainder is not 0. It rounds like
/// the exact value if at least two more bits are cut off later.
fn shift_right_jam(value: u128, shift: u32) -> u128 {
    let (quotient, remainder) = shift_right(value, shift);
    quotient | u128::from(remainder != Remainder::Zero)
}

/// The part of a value below its last kept bit, in units of that bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remainder {
    Zero,
    BelowHalf,
    Half,
    AboveHalf,
}

impl Environment {
    /// An environment without flags.
    #[must_use]
    pub const fn new(rounding: Rounding) -> Self {
        Self { rounding, flags: 0 }
    }

    /// The NaN result of an operation on NaNs, one of which may be signalling.
    fn propagate(&mut self, format: Format, operands: &[Value]) -> u64 {
        if operands
            .iter()
            .any(|value| matches!(value, Value::Nan { signalling: true }))
        {
            self.flags |= fflags::NV;
        }
        canonical_nan(format)
    }

    /// The result of an invalid operation, which raises NV.
    fn invalid(&mut self, format: Format) -> u64 {
        self.flags |= fflags::NV;
        canonical_nan(format)
    }

    /// Whether the magnitude is to be incremented.
    fn rounds_up(&self, negative: bool, odd: bool, remainder: Remainder) -> bool {
        match (self.rounding, remainder) {
            (_, Remainder::Zero) | (Rounding::Rtz, _) => false,
            (Rounding::Rdn, _) => negative,
            (Rounding::Rup, _) => !negative,
            (_, Remainder::BelowHalf) => false,
            (_, Remainder::AboveHalf) => true,
            (Rounding::Rmm, Remainder::Half) => true,
            (Rounding::Rne | Rounding::Dyn, Remainder::Half) => odd,
        }
    }

    /// Rounds to an integer multiple of 2^`target`. Returns the multiple and
    /// whether that was exact.
    fn round_at(&self, number: &Number, target: i32) -> (u128, bool) {
        let shift = target - number.exponent;
        if shift <= 0 {
            return (number.significand << -shift, true);
        }
        let (quotient, remainder) = shift_right(number.significand, shift.unsigned_abs());
        let up = self.rounds_up(number.negative, quotient & 1 == 1, remainder);
        (quotient + u128::from(up), remainder == Remainder::Zero)
    }

    /// Rounds to the format and raises OF, UF and NX.
    fn round(&mut self, format: Format, number: Number) -> u64 {
        let fraction_bits = fraction_bits(format);
        let (max, min) = (max_exponent(format), 1 - max_exponent(format));
        let leading_exponent = number.exponent + number.leading();
        let mut target = (leading_exponent - fraction_bits).max(min - fraction_bits);
        let (mut significand, exact) = self.round_at(&number, target);
        if significand >> (fraction_bits + 1) != 0 {
            significand >>= 1;
            target += 1;
        }
        if !exact {
            self.flags |= fflags::NX;
            if leading_exponent < min && self.is_tiny(format, &number) {
                self.flags |= fflags::UF;
            }
        }
        if target + fraction_bits > max {
            return self.overflow(format, number.negative);
        }
        // The leading one of a normal number adds 1 to the exponent field.
        let field = u64::from((target + fraction_bits - min).cast_unsigned());
        let magnitude = (field << fraction_bits) + low_u64(significand);
        with_sign(format, number.negative, magnitude)
    }

    /// Whether a value below the least normal number is still below it after
    /// rounding with an unbounded exponent.
    fn is_tiny(&self, format: Format, number: &Number) -> bool {
        let fraction_bits = fraction_bits(format);
        let leading_exponent = number.exponent + number.leading();
        if leading_exponent < -max_exponent(format) {
            return true;
        }
        let (significand, _) = self.round_at(number, leading_exponent - fraction_bits);
        significand >> (fraction_bits + 1) == 0
    }

    fn overflow(&mut self, format: Format, negative: bool) -> u64 {
        self.flags |= fflags::OF | fflags::NX;
        let to_infinity = match self.rounding {
            Rounding::Rne | Rounding::Rmm | Rounding::Dyn => true,
            Rounding::Rtz => false,
            Rounding::Rdn => negative,
            Rounding::Rup => !negative,
        };
        let infinity = infinity(format, negative);
        if to_infinity { infinity } else { infinity - 1 }
    }

    /// The sign of an exact zero sum of values with opposite signs.
    fn zero_sum(&self, format: Format) -> u64 {
        with_sign(format, self.rounding == Rounding::Rdn, 0)
    }
}
