//! RV64I.

use crate::{BinOp, Cmp, IntegerOp, Machine, UnOp, Width, XReg};

/// A sign-extended constant.
pub(super) fn signed<M: Machine>(m: &mut M, value: i32) -> M::Int {
    m.int(i64::from(value) as u64)
}

/// Sign-extends the low 32 bits, as every `*w` instruction does with its result.
pub(super) fn sign_extend_word<M: Machine>(m: &mut M, value: M::Int) -> M::Int {
    m.un(UnOp::SignExtend(Width::Word), value)
}

pub(super) fn zero_extend_word<M: Machine>(m: &mut M, value: M::Int) -> M::Int {
    m.un(UnOp::ZeroExtend(Width::Word), value)
}

pub(super) fn lui<M: Machine>(m: &mut M, rd: XReg, immediate: i32) {
    let value = signed(m, immediate);
    m.write_x(rd, value);
}

pub(super) fn auipc<M: Machine>(m: &mut M, rd: XReg, immediate: i32) {
    let value = m.pc_relative(i64::from(immediate));
    m.write_x(rd, value);
}

pub(super) fn jal<M: Machine>(m: &mut M, rd: XReg, offset: i32, length: u8) {
    let link = m.pc_relative(i64::from(length));
    m.write_x(rd, link);
    m.jump(rd, i64::from(offset));
}

pub(super) fn jalr<M: Machine>(m: &mut M, rd: XReg, rs1: XReg, offset: i32, length: u8) {
    // The target is computed before the link is written: rd may be rs1.
    let target = address(m, rs1, offset);
    let link = m.pc_relative(i64::from(length));
    m.write_x(rd, link);
    m.jump_register(rd, rs1, target);
}

pub(super) fn branch<M: Machine>(m: &mut M, condition: Cmp, rs1: XReg, rs2: XReg, offset: i32) {
    let (a, b) = (m.read_x(rs1), m.read_x(rs2));
    let taken = m.cmp(condition, a, b);
    m.branch(taken, i64::from(offset));
}

/// `rs1 + offset`.
pub(super) fn address<M: Machine>(m: &mut M, rs1: XReg, offset: i32) -> M::Int {
    let base = m.read_x(rs1);
    if offset == 0 {
        return base;
    }
    let offset = signed(m, offset);
    m.bin(BinOp::Add, base, offset)
}

pub(super) fn load<M: Machine>(
    m: &mut M,
    width: Width,
    signed: bool,
    rd: XReg,
    rs1: XReg,
    offset: i32,
) {
    let address = address(m, rs1, offset);
    let value = m.load(width, signed, address);
    m.write_x(rd, value);
}

pub(super) fn store<M: Machine>(m: &mut M, width: Width, rs1: XReg, rs2: XReg, offset: i32) {
    let (address, value) = (address(m, rs1, offset), m.read_x(rs2));
    m.store(width, address, value);
}

pub(super) fn register<M: Machine>(m: &mut M, op: IntegerOp, a: M::Int, b: M::Int) -> M::Int {
    match op {
        IntegerOp::Add => m.bin(BinOp::Add, a, b),
        IntegerOp::Sub => m.bin(BinOp::Sub, a, b),
        IntegerOp::Sll => m.bin(BinOp::Shl, a, b),
        IntegerOp::Slt => less_than(m, Cmp::Lt, a, b),
        IntegerOp::Sltu => less_than(m, Cmp::LtU, a, b),
        IntegerOp::Xor => m.bin(BinOp::Xor, a, b),
        IntegerOp::Srl => m.bin(BinOp::Shr, a, b),
        IntegerOp::Sra => m.bin(BinOp::Sar, a, b),
        IntegerOp::Or => m.bin(BinOp::Or, a, b),
        IntegerOp::And => m.bin(BinOp::And, a, b),
        IntegerOp::Addw => word(m, BinOp::Add, a, b),
        IntegerOp::Subw => word(m, BinOp::Sub, a, b),
        IntegerOp::Sllw => {
            let amount = word_amount(m, b);
            word(m, BinOp::Shl, a, amount)
        }
        IntegerOp::Srlw => {
            let (a, amount) = (zero_extend_word(m, a), word_amount(m, b));
            word(m, BinOp::Shr, a, amount)
        }
        IntegerOp::Sraw => {
            let (a, amount) = (sign_extend_word(m, a), word_amount(m, b));
            m.bin(BinOp::Sar, a, amount)
        }
    }
}

fn less_than<M: Machine>(m: &mut M, cmp: Cmp, a: M::Int, b: M::Int) -> M::Int {
    let less = m.cmp(cmp, a, b);
    m.bool_to_int(less)
}

fn word<M: Machine>(m: &mut M, op: BinOp, a: M::Int, b: M::Int) -> M::Int {
    let value = m.bin(op, a, b);
    sign_extend_word(m, value)
}

/// Masks an amount to the low five bits, which word shifts and rotations use.
pub(super) fn word_amount<M: Machine>(m: &mut M, amount: M::Int) -> M::Int {
    let mask = m.int(31);
    m.bin(BinOp::And, amount, mask)
}
