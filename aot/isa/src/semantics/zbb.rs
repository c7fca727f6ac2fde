//! Zbb: basic bit manipulation.

use crate::{BinOp, Machine, UnOp, UnaryOp, Width, ZbbOp};

use super::i::{sign_extend_word, word_amount, zero_extend_word};

pub(super) fn register<M: Machine>(m: &mut M, op: ZbbOp, a: M::Int, b: M::Int) -> M::Int {
    match op {
        ZbbOp::Andn => {
            let b = not(m, b);
            m.bin(BinOp::And, a, b)
        }
        ZbbOp::Orn => {
            let b = not(m, b);
            m.bin(BinOp::Or, a, b)
        }
        ZbbOp::Xnor => {
            let value = m.bin(BinOp::Xor, a, b);
            not(m, value)
        }
        ZbbOp::Min => m.bin(BinOp::Min, a, b),
        ZbbOp::Minu => m.bin(BinOp::MinU, a, b),
        ZbbOp::Max => m.bin(BinOp::Max, a, b),
        ZbbOp::Maxu => m.bin(BinOp::MaxU, a, b),
        ZbbOp::Rol => m.bin(BinOp::Rol, a, b),
        ZbbOp::Ror => m.bin(BinOp::Ror, a, b),
        ZbbOp::Rolw => {
            let (twice, amount) = (repeat_word(m, a), word_amount(m, b));
            let (moved, half) = (m.bin(BinOp::Shl, twice, amount), m.int(32));
            let value = m.bin(BinOp::Shr, moved, half);
            sign_extend_word(m, value)
        }
        ZbbOp::Rorw => {
            let (twice, amount) = (repeat_word(m, a), word_amount(m, b));
            let value = m.bin(BinOp::Shr, twice, amount);
            sign_extend_word(m, value)
        }
    }
}

pub(super) fn unary<M: Machine>(m: &mut M, op: UnaryOp, a: M::Int) -> M::Int {
    let op = match op {
        UnaryOp::Clz => UnOp::CountLeadingZeros(Width::Double),
        UnaryOp::Ctz => UnOp::CountTrailingZeros(Width::Double),
        UnaryOp::Cpop => UnOp::PopCount(Width::Double),
        UnaryOp::Clzw => UnOp::CountLeadingZeros(Width::Word),
        UnaryOp::Ctzw => UnOp::CountTrailingZeros(Width::Word),
        UnaryOp::Cpopw => UnOp::PopCount(Width::Word),
        UnaryOp::SextB => UnOp::SignExtend(Width::Byte),
        UnaryOp::SextH => UnOp::SignExtend(Width::Half),
        UnaryOp::ZextH => UnOp::ZeroExtend(Width::Half),
        UnaryOp::Rev8 => UnOp::ByteReverse,
        UnaryOp::OrcB => UnOp::OrCombine,
    };
    m.un(op, a)
}

pub(super) fn not<M: Machine>(m: &mut M, a: M::Int) -> M::Int {
    let ones = m.int(u64::MAX);
    m.bin(BinOp::Xor, a, ones)
}

/// Repeats the low word in both halves, so that a rotation of it is a shift.
fn repeat_word<M: Machine>(m: &mut M, a: M::Int) -> M::Int {
    let (low, half) = (zero_extend_word(m, a), m.int(32));
    let high = m.bin(BinOp::Shl, low, half);
    m.bin(BinOp::Or, high, low)
}
