//! M: multiplication and division. Division never traps: by zero the quotient
//! is all ones and the remainder the dividend; on overflow the quotient is the
//! dividend and the remainder zero.

use crate::{BinOp, Cmp, DivOp, Machine, MulDivOp, Width};

use super::i::{sign_extend_word, zero_extend_word};

pub(super) fn register<M: Machine>(m: &mut M, op: MulDivOp, a: M::Int, b: M::Int) -> M::Int {
    match op {
        MulDivOp::Mul => m.bin(BinOp::Mul, a, b),
        MulDivOp::Mulh => m.bin(BinOp::MulHigh, a, b),
        MulDivOp::Mulhsu => m.bin(BinOp::MulHighSU, a, b),
        MulDivOp::Mulhu => m.bin(BinOp::MulHighU, a, b),
        MulDivOp::Mulw => {
            let product = m.bin(BinOp::Mul, a, b);
            sign_extend_word(m, product)
        }
        MulDivOp::Div => divide(m, DivOp::Div, Width::Double, a, b),
        MulDivOp::Divu => divide(m, DivOp::DivU, Width::Double, a, b),
        MulDivOp::Rem => divide(m, DivOp::Rem, Width::Double, a, b),
        MulDivOp::Remu => divide(m, DivOp::RemU, Width::Double, a, b),
        MulDivOp::Divw => divide_words(m, DivOp::Div, a, b),
        MulDivOp::Divuw => divide_words(m, DivOp::DivU, a, b),
        MulDivOp::Remw => divide_words(m, DivOp::Rem, a, b),
        MulDivOp::Remuw => divide_words(m, DivOp::RemU, a, b),
    }
}

fn divide_words<M: Machine>(m: &mut M, op: DivOp, a: M::Int, b: M::Int) -> M::Int {
    let (a, b) = match op {
        DivOp::Div | DivOp::Rem => (sign_extend_word(m, a), sign_extend_word(m, b)),
        DivOp::DivU | DivOp::RemU => (zero_extend_word(m, a), zero_extend_word(m, b)),
    };
    let value = divide(m, op, Width::Word, a, b);
    sign_extend_word(m, value)
}

/// Divides values that are extended from `width`. Divisors that the machine does not accept are
/// replaced by 1: on overflow that gives the right result, and the result of a division by zero is
/// selected afterwards.
fn divide<M: Machine>(m: &mut M, op: DivOp, width: Width, a: M::Int, b: M::Int) -> M::Int {
    let (zero, one, ones) = (m.int(0), m.int(1), m.int(u64::MAX));
    let by_zero = m.cmp(Cmp::Eq, b, zero);
    let mut divisor = m.select(by_zero, one, b);
    if matches!(op, DivOp::Div | DivOp::Rem) {
        let lowest = m.int(match width {
            Width::Word => i64::from(i32::MIN) as u64,
            _ => i64::MIN as u64,
        });
        let (is_lowest, is_minus_one) = (m.cmp(Cmp::Eq, a, lowest), m.cmp(Cmp::Eq, b, ones));
        let overflow = m.and(is_lowest, is_minus_one);
        divisor = m.select(overflow, one, divisor);
    }
    let value = m.div(op, width, a, divisor);
    match op {
        DivOp::Div | DivOp::DivU => m.select(by_zero, ones, value),
        DivOp::Rem | DivOp::RemU => m.select(by_zero, a, value),
    }
}
