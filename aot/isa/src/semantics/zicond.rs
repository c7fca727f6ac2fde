//! Zicond: conditional zeroing.

use crate::{Cmp, Machine, ZicondOp};

pub(super) fn register<M: Machine>(m: &mut M, op: ZicondOp, a: M::Int, b: M::Int) -> M::Int {
    let zero = m.int(0);
    let condition = match op {
        ZicondOp::CzeroEqz => Cmp::Eq,
        ZicondOp::CzeroNez => Cmp::Ne,
    };
    let clear = m.cmp(condition, b, zero);
    m.select(clear, zero, a)
}
