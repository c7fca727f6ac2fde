//! F and D: one definition for both formats.

use crate::{
    BinOp, Cmp, FBinOp, FCmp, FMinMax, FReg, Fma, Format, IntFormat, Machine, Operation, Rounding,
    SignOp, XReg,
};

use super::i::{address, sign_extend_word, zero_extend_word};

/// The upper half of a properly NaN-boxed single.
const BOX: u64 = 0xffff_ffff_0000_0000;
/// The canonical NaN of binary32, boxed.
const CANONICAL_NAN_SINGLE: u64 = BOX | 0x7fc0_0000;

pub(super) fn execute<M: Machine>(m: &mut M, operation: Operation) {
    use Operation as O;
    match operation {
        O::LoadFloat {
            format,
            rd,
            rs1,
            offset,
        } => {
            let address = address(m, rs1, offset);
            let value = m.load_f(format, address);
            m.write_f(rd, value);
        }
        O::StoreFloat {
            format,
            rs1,
            rs2,
            offset,
        } => {
            let (address, value) = (address(m, rs1, offset), m.read_f(rs2));
            m.store_f(format, address, value);
        }
        O::FloatBinary {
            op,
            format,
            rounding,
            rd,
            rs1,
            rs2,
        } => {
            binary(m, op, format, rounding, rd, rs1, rs2);
        }
        O::FloatSqrt {
            format,
            rounding,
            rd,
            rs1,
        } => {
            let a = m.read_f(rs1);
            let value = m.f_sqrt(format, rounding, a);
            m.write_f(rd, value);
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
            multiply_add(m, fma, format, rounding, rd, [rs1, rs2, rs3]);
        }
        O::FloatSign {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => sign(m, op, format, rd, rs1, rs2),
        O::FloatMinMax {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => min_max(m, op, format, rd, rs1, rs2),
        O::FloatCompare {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => compare(m, op, format, rd, rs1, rs2),
        O::FloatClass { format, rd, rs1 } => {
            let a = m.read_f(rs1);
            let value = m.f_class(format, a);
            m.write_x(rd, value);
        }
        O::FloatToInt {
            to,
            format,
            rounding,
            rd,
            rs1,
        } => {
            let a = m.read_f(rs1);
            let value = m.f_to_int(to, format, rounding, a);
            m.write_x(rd, value);
        }
        O::IntToFloat {
            from,
            format,
            rounding,
            rd,
            rs1,
        } => {
            from_int(m, from, format, rounding, rd, rs1);
        }
        O::FloatConvert {
            to,
            rounding,
            rd,
            rs1,
        } => {
            let a = m.read_f(rs1);
            let value = m.f_convert(to, rounding, a);
            m.write_f(rd, value);
        }
        O::FloatToBits { format, rd, rs1 } => to_bits(m, format, rd, rs1),
        O::BitsToFloat { format, rd, rs1 } => from_bits(m, format, rd, rs1),
        _ => unreachable!("not of F or D"),
    }
}

fn binary<M: Machine>(
    m: &mut M,
    op: FBinOp,
    format: Format,
    rounding: Rounding,
    rd: FReg,
    rs1: FReg,
    rs2: FReg,
) {
    let (a, b) = (m.read_f(rs1), m.read_f(rs2));
    let value = m.f_bin(op, format, rounding, a, b);
    m.write_f(rd, value);
}

fn multiply_add<M: Machine>(
    m: &mut M,
    fma: Fma,
    format: Format,
    rounding: Rounding,
    rd: FReg,
    operands: [FReg; 3],
) {
    let [a, b, c] = operands.map(|register| m.read_f(register));
    let value = m.f_fma(fma, format, rounding, a, b, c);
    m.write_f(rd, value);
}

fn min_max<M: Machine>(m: &mut M, op: FMinMax, format: Format, rd: FReg, rs1: FReg, rs2: FReg) {
    let (a, b) = (m.read_f(rs1), m.read_f(rs2));
    let value = m.f_min_max(op, format, a, b);
    m.write_f(rd, value);
}

fn compare<M: Machine>(m: &mut M, op: FCmp, format: Format, rd: XReg, rs1: FReg, rs2: FReg) {
    let (a, b) = (m.read_f(rs1), m.read_f(rs2));
    let holds = m.f_cmp(op, format, a, b);
    let value = m.bool_to_int(holds);
    m.write_x(rd, value);
}

fn from_int<M: Machine>(
    m: &mut M,
    from: IntFormat,
    format: Format,
    rounding: Rounding,
    rd: FReg,
    rs1: XReg,
) {
    let a = m.read_x(rs1);
    let value = m.f_from_int(format, from, rounding, a);
    m.write_f(rd, value);
}

fn to_bits<M: Machine>(m: &mut M, format: Format, rd: XReg, rs1: FReg) {
    let a = m.read_f(rs1);
    let bits = m.f_bits(a);
    let value = match format {
        Format::Single => sign_extend_word(m, bits),
        Format::Double => bits,
    };
    m.write_x(rd, value);
}

fn from_bits<M: Machine>(m: &mut M, format: Format, rd: FReg, rs1: XReg) {
    let bits = m.read_x(rs1);
    let image = match format {
        Format::Single => {
            let (low, upper) = (zero_extend_word(m, bits), m.int(BOX));
            m.bin(BinOp::Or, low, upper)
        }
        Format::Double => bits,
    };
    let value = m.f_from_bits(image);
    m.write_f(rd, value);
}

fn sign<M: Machine>(m: &mut M, op: SignOp, format: Format, rd: FReg, rs1: FReg, rs2: FReg) {
    // `fmv.d`: the value need not leave the floating-point registers.
    if op == SignOp::Copy && format == Format::Double && rs1 == rs2 {
        let value = m.read_f(rs1);
        m.write_f(rd, value);
        return;
    }
    let bit = match format {
        Format::Single => 1 << 31,
        Format::Double => 1 << 63,
    };
    let (a, b) = (unboxed(m, format, rs1), unboxed(m, format, rs2));
    let (bit, others) = (m.int(bit), m.int(!bit));
    let value = match op {
        SignOp::Xor => {
            let sign = m.bin(BinOp::And, b, bit);
            m.bin(BinOp::Xor, a, sign)
        }
        SignOp::Copy | SignOp::Negate => {
            let b = if op == SignOp::Negate {
                m.bin(BinOp::Xor, b, bit)
            } else {
                b
            };
            let (magnitude, sign) = (m.bin(BinOp::And, a, others), m.bin(BinOp::And, b, bit));
            m.bin(BinOp::Or, magnitude, sign)
        }
    };
    let value = m.f_from_bits(value);
    m.write_f(rd, value);
}

/// The register image, or the canonical NaN for a single that is not NaN-boxed.
fn unboxed<M: Machine>(m: &mut M, format: Format, register: FReg) -> M::Int {
    let image = m.read_f(register);
    let bits = m.f_bits(image);
    if format == Format::Double {
        return bits;
    }
    let (thirty_two, ones, nan) = (m.int(32), m.int(0xffff_ffff), m.int(CANONICAL_NAN_SINGLE));
    let upper = m.bin(BinOp::Shr, bits, thirty_two);
    let boxed = m.cmp(Cmp::Eq, upper, ones);
    m.select(boxed, bits, nan)
}
