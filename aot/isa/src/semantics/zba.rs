//! Zba: address generation.

use crate::{BinOp, Machine, ZbaOp};

use super::i::zero_extend_word;

pub(super) fn register<M: Machine>(m: &mut M, op: ZbaOp, a: M::Int, b: M::Int) -> M::Int {
    let (shift, word) = match op {
        ZbaOp::AddUw => (0, true),
        ZbaOp::Sh1add => (1, false),
        ZbaOp::Sh2add => (2, false),
        ZbaOp::Sh3add => (3, false),
        ZbaOp::Sh1addUw => (1, true),
        ZbaOp::Sh2addUw => (2, true),
        ZbaOp::Sh3addUw => (3, true),
    };
    let index = if word { zero_extend_word(m, a) } else { a };
    let shift = m.int(shift);
    let scaled = m.bin(BinOp::Shl, index, shift);
    m.bin(BinOp::Add, scaled, b)
}

pub(super) fn slli_uw<M: Machine>(m: &mut M, a: M::Int, amount: M::Int) -> M::Int {
    let word = zero_extend_word(m, a);
    m.bin(BinOp::Shl, word, amount)
}
