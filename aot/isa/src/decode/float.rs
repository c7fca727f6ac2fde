//! F and D: the OP-FP and fused multiply-add formats.

use crate::opcode::major;
use crate::{
    FBinOp, FCmp, FMinMax, FReg, Fma, Format, IntFormat, Operation, Rounding, SignOp, XReg,
};

use super::funct3;

/// Rounding mode; 5 and 6 are reserved.
const fn rounding(bits: u32) -> Option<Rounding> {
    Some(match funct3(bits) {
        0 => Rounding::Rne,
        1 => Rounding::Rtz,
        2 => Rounding::Rdn,
        3 => Rounding::Rup,
        4 => Rounding::Rmm,
        7 => Rounding::Dyn,
        _ => return None,
    })
}

const fn format(bits: u32) -> Option<Format> {
    match bits >> 25 & 3 {
        0 => Some(Format::Single),
        1 => Some(Format::Double),
        _ => None,
    }
}

const fn int_format(bits: u32) -> Option<IntFormat> {
    Some(match bits >> 20 & 31 {
        0 => IntFormat::I32,
        1 => IntFormat::U32,
        2 => IntFormat::I64,
        3 => IntFormat::U64,
        _ => return None,
    })
}

pub(super) fn fma(bits: u32) -> Option<Operation> {
    let opcode = bits & 0x7f;
    Some(Operation::FloatFma {
        fma: Fma {
            negate_product: matches!(opcode, major::NMSUB | major::NMADD),
            negate_addend: matches!(opcode, major::MSUB | major::NMADD),
        },
        format: format(bits)?,
        rounding: rounding(bits)?,
        rd: FReg::at(bits, 7),
        rs1: FReg::at(bits, 15),
        rs2: FReg::at(bits, 20),
        rs3: FReg::at(bits, 27),
    })
}

pub(super) fn op_fp(bits: u32) -> Option<Operation> {
    let format = format(bits)?;
    let (rd, rs1, rs2) = (FReg::at(bits, 7), FReg::at(bits, 15), FReg::at(bits, 20));
    let (x_rd, x_rs1) = (XReg::at(bits, 7), XReg::at(bits, 15));
    let binary = |op| {
        let rounding = rounding(bits)?;
        Some(Operation::FloatBinary {
            op,
            format,
            rounding,
            rd,
            rs1,
            rs2,
        })
    };
    Some(match bits >> 27 {
        0x00 => binary(FBinOp::Add)?,
        0x01 => binary(FBinOp::Sub)?,
        0x02 => binary(FBinOp::Mul)?,
        0x03 => binary(FBinOp::Div)?,
        0x0b if rs2.number() == 0 => Operation::FloatSqrt {
            format,
            rounding: rounding(bits)?,
            rd,
            rs1,
        },
        0x04 => Operation::FloatSign {
            op: sign_op(funct3(bits))?,
            format,
            rd,
            rs1,
            rs2,
        },
        0x05 => Operation::FloatMinMax {
            op: min_max(funct3(bits))?,
            format,
            rd,
            rs1,
            rs2,
        },
        0x08 => Operation::FloatConvert {
            to: convert(format, rs2.number())?,
            rounding: rounding(bits)?,
            rd,
            rs1,
        },
        0x14 => Operation::FloatCompare {
            op: compare(funct3(bits))?,
            format,
            rd: x_rd,
            rs1,
            rs2,
        },
        0x18 => Operation::FloatToInt {
            to: int_format(bits)?,
            format,
            rounding: rounding(bits)?,
            rd: x_rd,
            rs1,
        },
        0x1a => Operation::IntToFloat {
            from: int_format(bits)?,
            format,
            rounding: rounding(bits)?,
            rd,
            rs1: x_rs1,
        },
        0x1c if rs2.number() == 0 => match funct3(bits) {
            0 => Operation::FloatToBits {
                format,
                rd: x_rd,
                rs1,
            },
            1 => Operation::FloatClass {
                format,
                rd: x_rd,
                rs1,
            },
            _ => return None,
        },
        0x1e if rs2.number() == 0 && funct3(bits) == 0 => Operation::BitsToFloat {
            format,
            rd,
            rs1: x_rs1,
        },
        _ => return None,
    })
}

const fn sign_op(funct3: u32) -> Option<SignOp> {
    Some(match funct3 {
        0 => SignOp::Copy,
        1 => SignOp::Negate,
        2 => SignOp::Xor,
        _ => return None,
    })
}

const fn min_max(funct3: u32) -> Option<FMinMax> {
    match funct3 {
        0 => Some(FMinMax::Min),
        1 => Some(FMinMax::Max),
        _ => None,
    }
}

const fn compare(funct3: u32) -> Option<FCmp> {
    Some(match funct3 {
        0 => FCmp::Le,
        1 => FCmp::Lt,
        2 => FCmp::Eq,
        _ => return None,
    })
}

/// Destination format of `fcvt`, if the source format in the rs2 field is the other one.
const fn convert(to: Format, source: u8) -> Option<Format> {
    match (to, source) {
        (Format::Single, 1) | (Format::Double, 0) => Some(to),
        _ => None,
    }
}
