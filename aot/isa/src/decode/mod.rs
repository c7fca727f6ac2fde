//! Decodes encodings to [`Instruction`]s. The decoder is strict: it rejects encodings that
//! RV64GC_Zba_Zbb_Zbc_Zbs_Zicond reserves and instructions that user mode may not execute. A hint
//! decodes to the instruction that it is encoded as.

mod compressed;
mod float;

use crate::codes::funct5;
use crate::fields::x::{rd, rs1, rs2};
use crate::fields::{
    amount, b_immediate, csr, csr_immediate, f, fence, funct3, i_immediate, j_immediate, order,
    s_immediate, u_immediate,
};
use crate::opcode::major;
use crate::{
    AmoOp, Cmp, CsrOp, CsrSource, Format, ImmediateOp, Instruction, Operation, RegisterOp, ShiftOp,
    UnaryOp, Width, XReg,
};

/// Length in bytes of the instruction whose first 16 bits are `low`: 2 or 4.
/// Encodings of 48 bits and more count as 4; [`decode`] rejects them.
#[must_use]
pub const fn instruction_length(low: u16) -> u8 {
    if low & 3 == 3 { 4 } else { 2 }
}

/// Decodes the instruction in `bits`. For a 16-bit instruction, the upper half is ignored. `None`
/// if the instruction is illegal.
#[must_use]
pub fn decode(bits: u32) -> Option<Instruction> {
    if bits & 3 != 3 {
        let low = bits & 0xffff;
        return compressed::expand(low).map(|operation| Instruction::new(low, operation));
    }
    operation(bits).map(|operation| Instruction::new(bits, operation))
}

fn operation(bits: u32) -> Option<Operation> {
    let rd = rd(bits);
    Some(match bits & 0x7f {
        major::LUI => Operation::Lui {
            rd,
            immediate: u_immediate(bits),
        },
        major::AUIPC => Operation::Auipc {
            rd,
            immediate: u_immediate(bits),
        },
        major::JAL => Operation::Jal {
            rd,
            offset: j_immediate(bits),
        },
        major::JALR if funct3(bits) == 0 => Operation::Jalr {
            rd,
            rs1: rs1(bits),
            offset: i_immediate(bits),
        },
        major::BRANCH => Operation::Branch {
            condition: Cmp::from_code(funct3(bits))?,
            rs1: rs1(bits),
            rs2: rs2(bits),
            offset: b_immediate(bits),
        },
        major::LOAD => load(bits)?,
        major::STORE => Operation::Store {
            width: Width::from_code(funct3(bits))?,
            rs1: rs1(bits),
            rs2: rs2(bits),
            offset: s_immediate(bits),
        },
        major::OP_IMM | major::OP_IMM_32 => immediate(bits)?,
        major::OP | major::OP_32 => register(bits)?,
        major::MISC_MEM => misc_mem(bits)?,
        major::AMO => atomic(bits)?,
        major::SYSTEM => system(bits)?,
        major::LOAD_FP => Operation::LoadFloat {
            format: Format::from_memory_code(funct3(bits))?,
            rd: f::rd(bits),
            rs1: rs1(bits),
            offset: i_immediate(bits),
        },
        major::STORE_FP => Operation::StoreFloat {
            format: Format::from_memory_code(funct3(bits))?,
            rs1: rs1(bits),
            rs2: f::rs2(bits),
            offset: s_immediate(bits),
        },
        major::MADD | major::MSUB | major::NMSUB | major::NMADD => float::fma(bits)?,
        major::OP_FP => float::op_fp(bits)?,
        _ => return None,
    })
}

fn load(bits: u32) -> Option<Operation> {
    let code = funct3(bits);
    if code == 7 {
        return None;
    }
    Some(Operation::Load {
        width: Width::from_code(code & 3)?,
        signed: code & 4 == 0,
        rd: rd(bits),
        rs1: rs1(bits),
        offset: i_immediate(bits),
    })
}

fn immediate(bits: u32) -> Option<Operation> {
    let (opcode, funct3, rd, rs1) = (bits & 0x7f, funct3(bits), rd(bits), rs1(bits));
    if let Some(op) = ImmediateOp::from_fields(opcode, funct3, 0) {
        return Some(Operation::Immediate {
            op,
            rd,
            rs1,
            immediate: i_immediate(bits),
        });
    }
    if let Some(op) = UnaryOp::from_fields(opcode, funct3, bits >> 20) {
        return Some(Operation::Unary { op, rd, rs1 });
    }
    let op = ShiftOp::from_fields(opcode, funct3, bits >> 25 & 0x7e)?;
    let amount = amount(bits);
    if op.amount_bits() == 5 && amount >= 32 {
        return None;
    }
    Some(Operation::Shift {
        op,
        rd,
        rs1,
        amount,
    })
}

fn register(bits: u32) -> Option<Operation> {
    let (opcode, funct3, rd, rs1) = (bits & 0x7f, funct3(bits), rd(bits), rs1(bits));
    if let Some(op) = UnaryOp::from_fields(opcode, funct3, bits >> 20) {
        return Some(Operation::Unary { op, rd, rs1 });
    }
    let op = RegisterOp::from_fields(opcode, funct3, bits >> 25)?;
    Some(Operation::Register {
        op,
        rd,
        rs1,
        rs2: rs2(bits),
    })
}

fn misc_mem(bits: u32) -> Option<Operation> {
    match funct3(bits) {
        // The specification requires reserved values of rd and rs1 to be ignored.
        0 => Some(Operation::Fence(fence(bits))),
        1 => Some(Operation::FenceI),
        _ => None,
    }
}

fn atomic(bits: u32) -> Option<Operation> {
    let width = Width::from_code(funct3(bits)).filter(|width| width.bytes() >= 4)?;
    let order = order(bits);
    let (rd, rs1, rs2) = (rd(bits), rs1(bits), rs2(bits));
    Some(match bits >> 27 {
        funct5::LOAD_RESERVED if rs2 == XReg::ZERO => Operation::LoadReserved {
            width,
            order,
            rd,
            rs1,
        },
        funct5::STORE_CONDITIONAL => Operation::StoreConditional {
            width,
            order,
            rd,
            rs1,
            rs2,
        },
        funct5 => Operation::Amo {
            op: AmoOp::from_code(funct5)?,
            width,
            order,
            rd,
            rs1,
            rs2,
        },
    })
}

fn system(bits: u32) -> Option<Operation> {
    let Some(op) = CsrOp::from_code(funct3(bits) & 3) else {
        return match bits {
            0x0000_0073 => Some(Operation::Ecall),
            0x0010_0073 => Some(Operation::Ebreak),
            _ => None,
        };
    };
    let source = if funct3(bits) & 4 == 0 {
        CsrSource::Register(rs1(bits))
    } else {
        CsrSource::Immediate(csr_immediate(bits))
    };
    Some(Operation::Csr {
        op,
        rd: rd(bits),
        csr: csr(bits),
        source,
    })
}
