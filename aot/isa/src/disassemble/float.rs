//! F and D.

use core::fmt;

use crate::{FBinOp, FCmp, FMinMax, Fma, Format, IntFormat, Operation, SignOp};

use super::RoundingOperand as Rm;

/// Prints a floating-point instruction, and nothing for any other operation.
pub(super) fn print(f: &mut fmt::Formatter<'_>, operation: Operation) -> fmt::Result {
    use Operation as O;
    match operation {
        O::LoadFloat {
            format,
            rd,
            rs1,
            offset,
        } => {
            write!(f, "fl{}\t{rd},{offset}({rs1})", memory_letter(format))
        }
        O::StoreFloat {
            format,
            rs1,
            rs2,
            offset,
        } => {
            write!(f, "fs{}\t{rs2},{offset}({rs1})", memory_letter(format))
        }
        O::FloatBinary {
            op,
            format,
            rounding,
            rd,
            rs1,
            rs2,
        } => {
            let (name, format) = (binary_name(op), letter(format));
            write!(f, "{name}.{format}\t{rd},{rs1},{rs2}{}", Rm(rounding))
        }
        O::FloatSqrt {
            format,
            rounding,
            rd,
            rs1,
        } => {
            write!(f, "fsqrt.{}\t{rd},{rs1}{}", letter(format), Rm(rounding))
        }
        O::FloatFma {
            fma,
            format,
            rounding,
            rd,
            rs1,
            rs2,
            rs3,
        } => {
            let (name, format) = (fma_name(fma), letter(format));
            write!(f, "{name}.{format}\t{rd},{rs1},{rs2},{rs3}{}", Rm(rounding))
        }
        O::FloatSign {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => {
            write!(f, "{}.{}\t{rd},{rs1},{rs2}", sign_name(op), letter(format))
        }
        O::FloatMinMax {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => {
            let name = if op == FMinMax::Min { "fmin" } else { "fmax" };
            write!(f, "{name}.{}\t{rd},{rs1},{rs2}", letter(format))
        }
        O::FloatCompare {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => {
            write!(
                f,
                "{}.{}\t{rd},{rs1},{rs2}",
                compare_name(op),
                letter(format)
            )
        }
        O::FloatClass { format, rd, rs1 } => write!(f, "fclass.{}\t{rd},{rs1}", letter(format)),
        O::FloatToInt {
            to,
            format,
            rounding,
            rd,
            rs1,
        } => {
            let (to, format) = (int_name(to), letter(format));
            write!(f, "fcvt.{to}.{format}\t{rd},{rs1}{}", Rm(rounding))
        }
        O::IntToFloat {
            from,
            format,
            rounding,
            rd,
            rs1,
        } => {
            let name = int_name(from);
            // Exact conversions are written with rm = 000 and without the operand.
            if exact(from, format) {
                return write!(f, "fcvt.d.{name}\t{rd},{rs1}");
            }
            write!(
                f,
                "fcvt.{}.{name}\t{rd},{rs1}{}",
                letter(format),
                Rm(rounding)
            )
        }
        O::FloatConvert {
            to: Format::Single,
            rounding,
            rd,
            rs1,
        } => {
            write!(f, "fcvt.s.d\t{rd},{rs1}{}", Rm(rounding))
        }
        O::FloatConvert {
            to: Format::Double,
            rd,
            rs1,
            ..
        } => write!(f, "fcvt.d.s\t{rd},{rs1}"),
        O::FloatToBits { format, rd, rs1 } => {
            write!(f, "fmv.x.{}\t{rd},{rs1}", memory_letter(format))
        }
        O::BitsToFloat { format, rd, rs1 } => {
            write!(f, "fmv.{}.x\t{rd},{rs1}", memory_letter(format))
        }
        _ => Ok(()),
    }
}

fn exact(from: IntFormat, format: Format) -> bool {
    format == Format::Double && matches!(from, IntFormat::I32 | IntFormat::U32)
}

fn letter(format: Format) -> char {
    match format {
        Format::Single => 's',
        Format::Double => 'd',
    }
}

fn memory_letter(format: Format) -> char {
    match format {
        Format::Single => 'w',
        Format::Double => 'd',
    }
}

fn binary_name(op: FBinOp) -> &'static str {
    match op {
        FBinOp::Add => "fadd",
        FBinOp::Sub => "fsub",
        FBinOp::Mul => "fmul",
        FBinOp::Div => "fdiv",
    }
}

fn fma_name(fma: Fma) -> &'static str {
    match (fma.negate_product, fma.negate_addend) {
        (false, false) => "fmadd",
        (false, true) => "fmsub",
        (true, false) => "fnmsub",
        (true, true) => "fnmadd",
    }
}

fn sign_name(op: SignOp) -> &'static str {
    match op {
        SignOp::Copy => "fsgnj",
        SignOp::Negate => "fsgnjn",
        SignOp::Xor => "fsgnjx",
    }
}

fn compare_name(op: FCmp) -> &'static str {
    match op {
        FCmp::Eq => "feq",
        FCmp::Lt => "flt",
        FCmp::Le => "fle",
    }
}

fn int_name(format: IntFormat) -> &'static str {
    match format {
        IntFormat::I32 => "w",
        IntFormat::U32 => "wu",
        IntFormat::I64 => "l",
        IntFormat::U64 => "lu",
    }
}
