//! Zbs: single bits. The bit number is taken modulo 64.

use crate::{BinOp, Machine, ZbsOp};

use super::zbb::not;

pub(super) fn register<M: Machine>(m: &mut M, op: ZbsOp, a: M::Int, number: M::Int) -> M::Int {
    let one = m.int(1);
    if op == ZbsOp::Bext {
        let value = m.bin(BinOp::Shr, a, number);
        return m.bin(BinOp::And, value, one);
    }
    let bit = m.bin(BinOp::Shl, one, number);
    match op {
        ZbsOp::Bset => m.bin(BinOp::Or, a, bit),
        ZbsOp::Binv => m.bin(BinOp::Xor, a, bit),
        ZbsOp::Bclr | ZbsOp::Bext => {
            let others = not(m, bit);
            m.bin(BinOp::And, a, others)
        }
    }
}
