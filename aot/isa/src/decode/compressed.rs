//! C extension, RV64DC: each 16-bit encoding expands to one 32-bit operation.

use crate::{
    Cmp, FReg, Format, ImmediateOp, IntegerOp, Operation, RegisterOp, ShiftOp, Width, XReg,
};

/// Expands the encoding in the low 16 bits.
pub(super) fn expand(bits: u32) -> Option<Operation> {
    match bits & 3 {
        0 => quadrant0(bits),
        1 => quadrant1(bits),
        _ => quadrant2(bits),
    }
}

const fn funct3(bits: u32) -> u32 {
    bits >> 13 & 7
}

/// rd or rs1 in bits 11..7.
const fn full(bits: u32) -> XReg {
    XReg::at(bits, 7)
}

/// rs2 in bits 6..2.
const fn full2(bits: u32) -> XReg {
    XReg::at(bits, 2)
}

/// rs1′ (or rd′/rs1′) in bits 9..7: x8–x15.
const fn high(bits: u32) -> XReg {
    XReg::at(bits >> 7 & 7 | 8, 0)
}

/// rs2′ or rd′ in bits 4..2: x8–x15.
const fn low(bits: u32) -> XReg {
    XReg::at(bits >> 2 & 7 | 8, 0)
}

const fn float(register: XReg) -> FReg {
    FReg::at(register.number() as u32, 0)
}

/// The field `bits[hi..lo]`, moved so that its lowest bit is at `to`.
const fn field(bits: u32, hi: u32, lo: u32, to: u32) -> i32 {
    ((bits >> lo & ((1 << (hi - lo + 1)) - 1)) << to) as i32
}

/// Six-bit signed immediate in bits 12 and 6..2.
const fn immediate6(bits: u32) -> i32 {
    field(bits, 6, 2, 0) | -field(bits, 12, 12, 5)
}

/// Six-bit shift amount in bits 12 and 6..2.
const fn amount6(bits: u32) -> u8 {
    (field(bits, 6, 2, 0) | field(bits, 12, 12, 5)) as u8
}

const fn word_offset(bits: u32) -> i32 {
    field(bits, 12, 10, 3) | field(bits, 6, 6, 2) | field(bits, 5, 5, 6)
}

const fn double_offset(bits: u32) -> i32 {
    field(bits, 12, 10, 3) | field(bits, 6, 5, 6)
}

const fn branch_offset(bits: u32) -> i32 {
    -field(bits, 12, 12, 8)
        | field(bits, 11, 10, 3)
        | field(bits, 6, 5, 6)
        | field(bits, 4, 3, 1)
        | field(bits, 2, 2, 5)
}

const fn jump_offset(bits: u32) -> i32 {
    -field(bits, 12, 12, 11)
        | field(bits, 11, 11, 4)
        | field(bits, 10, 9, 8)
        | field(bits, 8, 8, 10)
        | field(bits, 7, 7, 6)
        | field(bits, 6, 6, 7)
        | field(bits, 5, 3, 1)
        | field(bits, 2, 2, 5)
}

const fn addi(rd: XReg, rs1: XReg, immediate: i32) -> Operation {
    Operation::Immediate {
        op: ImmediateOp::Addi,
        rd,
        rs1,
        immediate,
    }
}

const fn integer(op: IntegerOp, rd: XReg, rs1: XReg, rs2: XReg) -> Operation {
    Operation::Register {
        op: RegisterOp::I(op),
        rd,
        rs1,
        rs2,
    }
}

const fn load(width: Width, rd: XReg, rs1: XReg, offset: i32) -> Operation {
    Operation::Load {
        width,
        signed: true,
        rd,
        rs1,
        offset,
    }
}

fn quadrant0(bits: u32) -> Option<Operation> {
    let (rs1, word, double) = (high(bits), word_offset(bits), double_offset(bits));
    let format = Format::Double;
    Some(match funct3(bits) {
        0 => {
            let immediate = field(bits, 12, 11, 4)
                | field(bits, 10, 7, 6)
                | field(bits, 6, 6, 2)
                | field(bits, 5, 5, 3);
            if immediate == 0 {
                return None;
            }
            addi(low(bits), XReg::SP, immediate)
        }
        1 => Operation::LoadFloat {
            format,
            rd: float(low(bits)),
            rs1,
            offset: double,
        },
        2 => load(Width::Word, low(bits), rs1, word),
        3 => load(Width::Double, low(bits), rs1, double),
        5 => Operation::StoreFloat {
            format,
            rs1,
            rs2: float(low(bits)),
            offset: double,
        },
        6 => Operation::Store {
            width: Width::Word,
            rs1,
            rs2: low(bits),
            offset: word,
        },
        7 => Operation::Store {
            width: Width::Double,
            rs1,
            rs2: low(bits),
            offset: double,
        },
        _ => return None,
    })
}

fn quadrant1(bits: u32) -> Option<Operation> {
    let (rd, immediate) = (full(bits), immediate6(bits));
    let branch = |condition| Operation::Branch {
        condition,
        rs1: high(bits),
        rs2: XReg::ZERO,
        offset: branch_offset(bits),
    };
    Some(match funct3(bits) {
        0 => addi(rd, rd, immediate),
        1 if rd != XReg::ZERO => Operation::Immediate {
            op: ImmediateOp::Addiw,
            rd,
            rs1: rd,
            immediate,
        },
        2 => addi(rd, XReg::ZERO, immediate),
        3 if immediate == 0 => return None,
        3 if rd == XReg::SP => {
            let immediate = -field(bits, 12, 12, 9)
                | field(bits, 6, 6, 4)
                | field(bits, 5, 5, 6)
                | field(bits, 4, 3, 7)
                | field(bits, 2, 2, 5);
            addi(rd, rd, immediate)
        }
        3 => Operation::Lui {
            rd,
            immediate: immediate << 12,
        },
        4 => arithmetic(bits)?,
        5 => Operation::Jal {
            rd: XReg::ZERO,
            offset: jump_offset(bits),
        },
        6 => branch(Cmp::Eq),
        7 => branch(Cmp::Ne),
        _ => return None,
    })
}

/// Quadrant 1, funct3 100: shifts and register arithmetic on x8–x15.
fn arithmetic(bits: u32) -> Option<Operation> {
    let rd = high(bits);
    let shift = |op| Operation::Shift {
        op,
        rd,
        rs1: rd,
        amount: amount6(bits),
    };
    Some(match bits >> 10 & 3 {
        0 => shift(ShiftOp::Srli),
        1 => shift(ShiftOp::Srai),
        2 => Operation::Immediate {
            op: ImmediateOp::Andi,
            rd,
            rs1: rd,
            immediate: immediate6(bits),
        },
        _ => {
            let op = match (bits >> 12 & 1, bits >> 5 & 3) {
                (0, 0) => IntegerOp::Sub,
                (0, 1) => IntegerOp::Xor,
                (0, 2) => IntegerOp::Or,
                (0, 3) => IntegerOp::And,
                (1, 0) => IntegerOp::Subw,
                (1, 1) => IntegerOp::Addw,
                _ => return None,
            };
            integer(op, rd, rd, low(bits))
        }
    })
}

fn quadrant2(bits: u32) -> Option<Operation> {
    let (rd, rs2, rs1) = (full(bits), full2(bits), XReg::SP);
    let format = Format::Double;
    let word_load = field(bits, 12, 12, 5) | field(bits, 6, 4, 2) | field(bits, 3, 2, 6);
    let double_load = field(bits, 12, 12, 5) | field(bits, 6, 5, 3) | field(bits, 4, 2, 6);
    let word_store = field(bits, 12, 9, 2) | field(bits, 8, 7, 6);
    let double_store = field(bits, 12, 10, 3) | field(bits, 9, 7, 6);
    Some(match funct3(bits) {
        0 => Operation::Shift {
            op: ShiftOp::Slli,
            rd,
            rs1: rd,
            amount: amount6(bits),
        },
        1 => Operation::LoadFloat {
            format,
            rd: float(rd),
            rs1,
            offset: double_load,
        },
        2 if rd != XReg::ZERO => load(Width::Word, rd, rs1, word_load),
        3 if rd != XReg::ZERO => load(Width::Double, rd, rs1, double_load),
        4 => jump_or_move(bits)?,
        5 => Operation::StoreFloat {
            format,
            rs1,
            rs2: float(rs2),
            offset: double_store,
        },
        6 => Operation::Store {
            width: Width::Word,
            rs1,
            rs2,
            offset: word_store,
        },
        7 => Operation::Store {
            width: Width::Double,
            rs1,
            rs2,
            offset: double_store,
        },
        _ => return None,
    })
}

/// Quadrant 2, funct3 100: `c.jr`, `c.mv`, `c.ebreak`, `c.jalr`, `c.add`.
fn jump_or_move(bits: u32) -> Option<Operation> {
    let (rd, rs2) = (full(bits), full2(bits));
    let jump = |link| Operation::Jalr {
        rd: link,
        rs1: rd,
        offset: 0,
    };
    Some(
        match (bits >> 12 & 1, rd == XReg::ZERO, rs2 == XReg::ZERO) {
            (0, true, true) => return None,
            (0, false, true) => jump(XReg::ZERO),
            (0, _, false) => integer(IntegerOp::Add, rd, XReg::ZERO, rs2),
            (_, true, true) => Operation::Ebreak,
            (_, false, true) => jump(XReg::RA),
            (_, _, false) => integer(IntegerOp::Add, rd, rd, rs2),
        },
    )
}
