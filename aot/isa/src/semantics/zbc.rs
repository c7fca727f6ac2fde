//! Zbc: carry-less multiplication.

use crate::{BinOp, Machine, ZbcOp};

pub(super) fn register<M: Machine>(m: &mut M, op: ZbcOp, a: M::Int, b: M::Int) -> M::Int {
    let op = match op {
        ZbcOp::Clmul => BinOp::ClMul,
        ZbcOp::Clmulr => BinOp::ClMulReversed,
        ZbcOp::Clmulh => BinOp::ClMulHigh,
    };
    m.bin(op, a, b)
}
