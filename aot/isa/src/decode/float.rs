//! F and D: the OP-FP and fused multiply-add formats.

use crate::codes::funct5;
use crate::fields::{f, funct3, x};
use crate::{FBinOp, FCmp, FMinMax, Fma, Format, IntFormat, Operation, Rounding, SignOp};

fn rounding(bits: u32) -> Option<Rounding> {
    Rounding::from_code(funct3(bits))
}

fn format(bits: u32) -> Option<Format> {
    Format::from_code(bits >> 25 & 3)
}

fn int_format(bits: u32) -> Option<IntFormat> {
    IntFormat::from_code(bits >> 20 & 31)
}

pub(super) fn fma(bits: u32) -> Option<Operation> {
    Some(Operation::FloatFma {
        fma: Fma::from_opcode(bits & 0x7f)?,
        format: format(bits)?,
        rounding: rounding(bits)?,
        rd: f::rd(bits),
        rs1: f::rs1(bits),
        rs2: f::rs2(bits),
        rs3: f::rs3(bits),
    })
}

pub(super) fn op_fp(bits: u32) -> Option<Operation> {
    let format = format(bits)?;
    let (rd, rs1, rs2) = (f::rd(bits), f::rs1(bits), f::rs2(bits));
    let (x_rd, x_rs1) = (x::rd(bits), x::rs1(bits));
    Some(match bits >> 27 {
        funct5::SQRT if rs2.number() == 0 => Operation::FloatSqrt {
            format,
            rounding: rounding(bits)?,
            rd,
            rs1,
        },
        funct5::SIGN => Operation::FloatSign {
            op: SignOp::from_code(funct3(bits))?,
            format,
            rd,
            rs1,
            rs2,
        },
        funct5::MIN_MAX => Operation::FloatMinMax {
            op: FMinMax::from_code(funct3(bits))?,
            format,
            rd,
            rs1,
            rs2,
        },
        funct5::CONVERT => Operation::FloatConvert {
            to: convert(format, rs2.number())?,
            rounding: rounding(bits)?,
            rd,
            rs1,
        },
        funct5::COMPARE => Operation::FloatCompare {
            op: FCmp::from_code(funct3(bits))?,
            format,
            rd: x_rd,
            rs1,
            rs2,
        },
        funct5::TO_INT => Operation::FloatToInt {
            to: int_format(bits)?,
            format,
            rounding: rounding(bits)?,
            rd: x_rd,
            rs1,
        },
        funct5::FROM_INT => Operation::IntToFloat {
            from: int_format(bits)?,
            format,
            rounding: rounding(bits)?,
            rd,
            rs1: x_rs1,
        },
        funct5::TO_BITS_OR_CLASS if rs2.number() == 0 => match funct3(bits) {
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
        funct5::FROM_BITS if rs2.number() == 0 && funct3(bits) == 0 => Operation::BitsToFloat {
            format,
            rd,
            rs1: x_rs1,
        },
        funct5 => Operation::FloatBinary {
            op: FBinOp::from_code(funct5)?,
            format,
            rounding: rounding(bits)?,
            rd,
            rs1,
            rs2,
        },
    })
}

/// Destination format of `fcvt`, if the source format in the rs2 field is the other one.
const fn convert(to: Format, source: u8) -> Option<Format> {
    match (to, source) {
        (Format::Single, 1) | (Format::Double, 0) => Some(to),
        _ => None,
    }
}
