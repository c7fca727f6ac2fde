//! Operations back to 32-bit encodings.

use crate::opcode::major;
use crate::{
    AmoOp, Cmp, CsrOp, CsrSource, FBinOp, FCmp, FMinMax, FReg, Fma, Format, IntFormat, Operation,
    Ordering, SignOp, Width, XReg,
};

/// The 32-bit encoding of an operation. Immediates and offsets are truncated to
/// their fields; bits that the specification reserves are zero.
#[must_use]
pub fn encode(operation: Operation) -> u32 {
    use Operation as O;
    match operation {
        O::Lui { rd, immediate } => major::LUI | x(rd, 7) | immediate as u32 & !0xfff,
        O::Auipc { rd, immediate } => major::AUIPC | x(rd, 7) | immediate as u32 & !0xfff,
        O::Jal { rd, offset } => major::JAL | x(rd, 7) | j_immediate(offset),
        O::Jalr { rd, rs1, offset } => i_type(major::JALR, 0, x(rd, 7), rs1, offset),
        O::Branch {
            condition,
            rs1,
            rs2,
            offset,
        } => {
            let f3 = branch_code(condition) << 12;
            major::BRANCH | f3 | x(rs1, 15) | x(rs2, 20) | b_immediate(offset)
        }
        O::Load {
            width,
            signed,
            rd,
            rs1,
            offset,
        } => {
            let f3 = width_code(width) | if signed { 0 } else { 4 };
            i_type(major::LOAD, f3, x(rd, 7), rs1, offset)
        }
        O::Store {
            width,
            rs1,
            rs2,
            offset,
        } => s_type(major::STORE, width_code(width), rs1, x(rs2, 20), offset),
        O::Immediate {
            op,
            rd,
            rs1,
            immediate,
        } => {
            let (opcode, f3, _) = op.fields();
            i_type(opcode, f3, x(rd, 7), rs1, immediate)
        }
        O::Shift {
            op,
            rd,
            rs1,
            amount,
        } => {
            let (opcode, f3, f7) = op.fields();
            r_type(opcode, f3, f7) | x(rd, 7) | x(rs1, 15) | u32::from(amount & 63) << 20
        }
        O::Unary { op, rd, rs1 } => {
            let (opcode, f3, f12) = op.fields();
            opcode | f3 << 12 | f12 << 20 | x(rd, 7) | x(rs1, 15)
        }
        O::Register { op, rd, rs1, rs2 } => {
            let (opcode, f3, f7) = op.fields();
            r_type(opcode, f3, f7) | x(rd, 7) | x(rs1, 15) | x(rs2, 20)
        }
        O::Fence(fence) => {
            let sets =
                u32::from(fence.predecessor & 15) << 24 | u32::from(fence.successor & 15) << 20;
            major::MISC_MEM | sets | if fence.tso { 8 << 28 } else { 0 }
        }
        O::FenceI => major::MISC_MEM | 1 << 12,
        O::Ecall => major::SYSTEM,
        O::Ebreak => major::SYSTEM | 1 << 20,
        O::Csr {
            op,
            rd,
            csr,
            source,
        } => csr_encoding(op, rd, csr, source),
        O::LoadReserved {
            width,
            order,
            rd,
            rs1,
        } => atomic(0x02, width, order) | x(rd, 7) | x(rs1, 15),
        O::StoreConditional {
            width,
            order,
            rd,
            rs1,
            rs2,
        } => atomic(0x03, width, order) | x(rd, 7) | x(rs1, 15) | x(rs2, 20),
        O::Amo {
            op,
            width,
            order,
            rd,
            rs1,
            rs2,
        } => atomic(amo_code(op), width, order) | x(rd, 7) | x(rs1, 15) | x(rs2, 20),
        _ => float(operation),
    }
}

/// F and D.
fn float(operation: Operation) -> u32 {
    use Operation as O;
    match operation {
        O::LoadFloat {
            format,
            rd,
            rs1,
            offset,
        } => i_type(major::LOAD_FP, memory_code(format), f(rd, 7), rs1, offset),
        O::StoreFloat {
            format,
            rs1,
            rs2,
            offset,
        } => s_type(
            major::STORE_FP,
            memory_code(format),
            rs1,
            f(rs2, 20),
            offset,
        ),
        O::FloatBinary {
            op,
            format,
            rounding,
            rd,
            rs1,
            rs2,
        } => op_fp(binary_code(op), format, rounding as u32) | f(rd, 7) | f(rs1, 15) | f(rs2, 20),
        O::FloatSqrt {
            format,
            rounding,
            rd,
            rs1,
        } => op_fp(0x0b, format, rounding as u32) | f(rd, 7) | f(rs1, 15),
        O::FloatFma {
            fma,
            format,
            rounding,
            rd,
            rs1,
            rs2,
            rs3,
        } => {
            let registers = f(rd, 7) | f(rs1, 15) | f(rs2, 20) | f(rs3, 27);
            fma_opcode(fma) | (rounding as u32) << 12 | format_code(format) << 25 | registers
        }
        O::FloatSign {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => op_fp(0x04, format, sign_code(op)) | f(rd, 7) | f(rs1, 15) | f(rs2, 20),
        O::FloatMinMax {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => {
            let f3 = u32::from(op == FMinMax::Max);
            op_fp(0x05, format, f3) | f(rd, 7) | f(rs1, 15) | f(rs2, 20)
        }
        O::FloatCompare {
            op,
            format,
            rd,
            rs1,
            rs2,
        } => op_fp(0x14, format, compare_code(op)) | x(rd, 7) | f(rs1, 15) | f(rs2, 20),
        O::FloatClass { format, rd, rs1 } => op_fp(0x1c, format, 1) | x(rd, 7) | f(rs1, 15),
        O::FloatToInt {
            to,
            format,
            rounding,
            rd,
            rs1,
        } => op_fp(0x18, format, rounding as u32) | int_code(to) << 20 | x(rd, 7) | f(rs1, 15),
        O::IntToFloat {
            from,
            format,
            rounding,
            rd,
            rs1,
        } => op_fp(0x1a, format, rounding as u32) | int_code(from) << 20 | f(rd, 7) | x(rs1, 15),
        O::FloatConvert {
            to,
            rounding,
            rd,
            rs1,
        } => {
            let source = 1 - format_code(to);
            op_fp(0x08, to, rounding as u32) | source << 20 | f(rd, 7) | f(rs1, 15)
        }
        O::FloatToBits { format, rd, rs1 } => op_fp(0x1c, format, 0) | x(rd, 7) | f(rs1, 15),
        O::BitsToFloat { format, rd, rs1 } => op_fp(0x1e, format, 0) | f(rd, 7) | x(rs1, 15),
        _ => unreachable!("`encode` handles everything else"),
    }
}

const fn x(register: XReg, shift: u32) -> u32 {
    (register.number() as u32) << shift
}

const fn f(register: FReg, shift: u32) -> u32 {
    (register.number() as u32) << shift
}

const fn i_type(opcode: u32, funct3: u32, rd: u32, rs1: XReg, immediate: i32) -> u32 {
    opcode | funct3 << 12 | rd | x(rs1, 15) | (immediate as u32) << 20
}

const fn s_type(opcode: u32, funct3: u32, rs1: XReg, rs2: u32, immediate: i32) -> u32 {
    let i = immediate as u32;
    opcode | funct3 << 12 | x(rs1, 15) | rs2 | (i & 31) << 7 | (i >> 5 & 127) << 25
}

const fn r_type(opcode: u32, funct3: u32, funct7: u32) -> u32 {
    opcode | funct3 << 12 | funct7 << 25
}

const fn b_immediate(offset: i32) -> u32 {
    let o = offset as u32;
    (o >> 11 & 1) << 7 | (o >> 1 & 15) << 8 | (o >> 5 & 63) << 25 | (o >> 12 & 1) << 31
}

const fn j_immediate(offset: i32) -> u32 {
    let o = offset as u32;
    o & 0xf_f000 | (o >> 11 & 1) << 20 | (o >> 1 & 0x3ff) << 21 | (o >> 20 & 1) << 31
}

const fn atomic(funct5: u32, width: Width, order: Ordering) -> u32 {
    let order = (order.acquire as u32) << 26 | (order.release as u32) << 25;
    major::AMO | width_code(width) << 12 | order | funct5 << 27
}

const fn op_fp(funct5: u32, format: Format, funct3: u32) -> u32 {
    major::OP_FP | funct3 << 12 | format_code(format) << 25 | funct5 << 27
}

const fn csr_encoding(op: CsrOp, rd: XReg, csr: u16, source: CsrSource) -> u32 {
    let funct3 = match op {
        CsrOp::Write => 1,
        CsrOp::Set => 2,
        CsrOp::Clear => 3,
    };
    let source = match source {
        CsrSource::Register(register) => x(register, 15),
        CsrSource::Immediate(value) => 4 << 12 | (value as u32 & 31) << 15,
    };
    major::SYSTEM | x(rd, 7) | funct3 << 12 | source | (csr as u32) << 20
}

const fn branch_code(condition: Cmp) -> u32 {
    match condition {
        Cmp::Eq => 0,
        Cmp::Ne => 1,
        Cmp::Lt => 4,
        Cmp::Ge => 5,
        Cmp::LtU => 6,
        Cmp::GeU => 7,
    }
}

const fn width_code(width: Width) -> u32 {
    match width {
        Width::Byte => 0,
        Width::Half => 1,
        Width::Word => 2,
        Width::Double => 3,
    }
}

const fn format_code(format: Format) -> u32 {
    match format {
        Format::Single => 0,
        Format::Double => 1,
    }
}

const fn memory_code(format: Format) -> u32 {
    format_code(format) + 2
}

const fn amo_code(op: AmoOp) -> u32 {
    match op {
        AmoOp::Add => 0x00,
        AmoOp::Swap => 0x01,
        AmoOp::Xor => 0x04,
        AmoOp::Or => 0x08,
        AmoOp::And => 0x0c,
        AmoOp::Min => 0x10,
        AmoOp::Max => 0x14,
        AmoOp::MinU => 0x18,
        AmoOp::MaxU => 0x1c,
    }
}

const fn binary_code(op: FBinOp) -> u32 {
    match op {
        FBinOp::Add => 0,
        FBinOp::Sub => 1,
        FBinOp::Mul => 2,
        FBinOp::Div => 3,
    }
}

const fn fma_opcode(fma: Fma) -> u32 {
    match (fma.negate_product, fma.negate_addend) {
        (false, false) => major::MADD,
        (false, true) => major::MSUB,
        (true, false) => major::NMSUB,
        (true, true) => major::NMADD,
    }
}

const fn sign_code(op: SignOp) -> u32 {
    match op {
        SignOp::Copy => 0,
        SignOp::Negate => 1,
        SignOp::Xor => 2,
    }
}

const fn compare_code(op: FCmp) -> u32 {
    match op {
        FCmp::Le => 0,
        FCmp::Lt => 1,
        FCmp::Eq => 2,
    }
}

const fn int_code(format: IntFormat) -> u32 {
    match format {
        IntFormat::I32 => 0,
        IntFormat::U32 => 1,
        IntFormat::I64 => 2,
        IntFormat::U64 => 3,
    }
}
