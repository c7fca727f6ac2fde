//! Encodes operations to 32-bit instructions: the bits that select the operation, and the fields of
//! its operands.

use crate::codes::funct5;
use crate::opcode::major;
use crate::{CsrSource, Format, Operation, Width};

/// The 32-bit encoding of an operation. Immediates and offsets are truncated to
/// their fields; bits that the specification reserves are zero.
#[must_use]
pub fn encode(operation: Operation) -> u32 {
    selecting(operation) | operation.operands().bits()
}

/// The bits that select an operation.
fn selecting(operation: Operation) -> u32 {
    use Operation as O;
    match operation {
        O::Lui { .. } => major::LUI,
        O::Auipc { .. } => major::AUIPC,
        O::Jal { .. } => major::JAL,
        O::Jalr { .. } => major::JALR,
        O::Branch { condition, .. } => i_type(major::BRANCH, condition.code()),
        O::Load { width, signed, .. } => {
            let unsigned = if signed { 0 } else { 4 };
            i_type(major::LOAD, width.code() | unsigned)
        }
        O::Store { width, .. } => i_type(major::STORE, width.code()),
        O::Immediate { op, .. } => {
            let (opcode, funct3, _) = op.fields();
            i_type(opcode, funct3)
        }
        O::Shift { op, .. } => {
            let (opcode, funct3, funct7) = op.fields();
            i_type(opcode, funct3) | funct7 << 25
        }
        O::Unary { op, .. } => {
            let (opcode, funct3, funct12) = op.fields();
            i_type(opcode, funct3) | funct12 << 20
        }
        O::Register { op, .. } => {
            let (opcode, funct3, funct7) = op.fields();
            i_type(opcode, funct3) | funct7 << 25
        }
        O::Fence(_) => major::MISC_MEM,
        O::FenceI => i_type(major::MISC_MEM, 1),
        O::Ecall => major::SYSTEM,
        O::Ebreak => major::SYSTEM | 1 << 20,
        O::Csr { op, source, .. } => {
            let immediate = match source {
                CsrSource::Register(_) => 0,
                CsrSource::Immediate(_) => 4,
            };
            i_type(major::SYSTEM, op.code() | immediate)
        }
        O::LoadReserved { width, .. } => atomic(funct5::LOAD_RESERVED, width),
        O::StoreConditional { width, .. } => atomic(funct5::STORE_CONDITIONAL, width),
        O::Amo { op, width, .. } => atomic(op.code(), width),
        _ => selecting_float(operation),
    }
}

/// F and D.
fn selecting_float(operation: Operation) -> u32 {
    use Operation as O;
    match operation {
        O::LoadFloat { format, .. } => i_type(major::LOAD_FP, format.memory_code()),
        O::StoreFloat { format, .. } => i_type(major::STORE_FP, format.memory_code()),
        O::FloatBinary { op, format, .. } => op_fp(op.code(), format, 0),
        O::FloatSqrt { format, .. } => op_fp(funct5::SQRT, format, 0),
        O::FloatFma { fma, format, .. } => fma.opcode() | format.code() << 25,
        O::FloatSign { op, format, .. } => op_fp(funct5::SIGN, format, op.code()),
        O::FloatMinMax { op, format, .. } => op_fp(funct5::MIN_MAX, format, op.code()),
        O::FloatCompare { op, format, .. } => op_fp(funct5::COMPARE, format, op.code()),
        O::FloatClass { format, .. } => op_fp(funct5::TO_BITS_OR_CLASS, format, 1),
        O::FloatToInt { to, format, .. } => op_fp(funct5::TO_INT, format, 0) | to.code() << 20,
        O::IntToFloat { from, format, .. } => {
            op_fp(funct5::FROM_INT, format, 0) | from.code() << 20
        }
        O::FloatConvert { to, .. } => {
            let source = 1 - to.code();
            op_fp(funct5::CONVERT, to, 0) | source << 20
        }
        O::FloatToBits { format, .. } => op_fp(funct5::TO_BITS_OR_CLASS, format, 0),
        O::BitsToFloat { format, .. } => op_fp(funct5::FROM_BITS, format, 0),
        _ => unreachable!("`selecting` handles everything else"),
    }
}

const fn i_type(opcode: u32, funct3: u32) -> u32 {
    opcode | funct3 << 12
}

const fn atomic(funct5: u32, width: Width) -> u32 {
    i_type(major::AMO, width.code()) | funct5 << 27
}

const fn op_fp(funct5: u32, format: Format, funct3: u32) -> u32 {
    i_type(major::OP_FP, funct3) | format.code() << 25 | funct5 << 27
}
