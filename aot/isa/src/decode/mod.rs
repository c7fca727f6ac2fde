//! Encodings to [`Instruction`]s. Strict: what RV64GC_Zba_Zbb_Zbc_Zbs_Zicond
//! reserves, and what user mode may not execute, is rejected; hints are the
//! instructions that they are encoded as.

mod compressed;
mod float;

use crate::opcode::major;
use crate::{
    AmoOp, Cmp, CsrOp, CsrSource, FReg, Fence, Format, ImmediateOp, Instruction, Operation,
    Ordering, RegisterOp, ShiftOp, UnaryOp, Width, XReg,
};

/// Length in bytes of the instruction whose first 16 bits are `low`: 2 or 4.
/// Encodings of 48 bits and more count as 4; [`decode`] rejects them.
#[must_use]
pub const fn instruction_length(low: u16) -> u8 {
    if low & 3 == 3 { 4 } else { 2 }
}

/// Decodes the instruction in `bits`; if it is a 16-bit one, the upper half is
/// ignored. `None`: an illegal instruction.
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
            condition: branch_condition(funct3(bits))?,
            rs1: rs1(bits),
            rs2: rs2(bits),
            offset: b_immediate(bits),
        },
        major::LOAD => load(bits)?,
        major::STORE => Operation::Store {
            width: width(funct3(bits))?,
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
            format: memory_format(funct3(bits))?,
            rd: FReg::at(bits, 7),
            rs1: rs1(bits),
            offset: i_immediate(bits),
        },
        major::STORE_FP => Operation::StoreFloat {
            format: memory_format(funct3(bits))?,
            rs1: rs1(bits),
            rs2: FReg::at(bits, 20),
            offset: s_immediate(bits),
        },
        major::MADD | major::MSUB | major::NMSUB | major::NMADD => float::fma(bits)?,
        major::OP_FP => float::op_fp(bits)?,
        _ => return None,
    })
}

const fn rd(bits: u32) -> XReg {
    XReg::at(bits, 7)
}

const fn rs1(bits: u32) -> XReg {
    XReg::at(bits, 15)
}

const fn rs2(bits: u32) -> XReg {
    XReg::at(bits, 20)
}

const fn funct3(bits: u32) -> u32 {
    bits >> 12 & 7
}

const fn i_immediate(bits: u32) -> i32 {
    bits as i32 >> 20
}

const fn s_immediate(bits: u32) -> i32 {
    (bits as i32 >> 25 << 5) | (bits >> 7 & 0x1f) as i32
}

const fn b_immediate(bits: u32) -> i32 {
    (bits as i32 >> 31 << 12)
        | ((bits >> 7 & 1) << 11 | (bits >> 25 & 0x3f) << 5 | (bits >> 8 & 0xf) << 1) as i32
}

const fn u_immediate(bits: u32) -> i32 {
    (bits & 0xffff_f000) as i32
}

const fn j_immediate(bits: u32) -> i32 {
    (bits as i32 >> 31 << 20)
        | (bits & 0xf_f000 | (bits >> 20 & 1) << 11 | (bits >> 21 & 0x3ff) << 1) as i32
}

const fn branch_condition(funct3: u32) -> Option<Cmp> {
    Some(match funct3 {
        0 => Cmp::Eq,
        1 => Cmp::Ne,
        4 => Cmp::Lt,
        5 => Cmp::Ge,
        6 => Cmp::LtU,
        7 => Cmp::GeU,
        _ => return None,
    })
}

const fn width(code: u32) -> Option<Width> {
    Some(match code {
        0 => Width::Byte,
        1 => Width::Half,
        2 => Width::Word,
        3 => Width::Double,
        _ => return None,
    })
}

const fn memory_format(funct3: u32) -> Option<Format> {
    match funct3 {
        2 => Some(Format::Single),
        3 => Some(Format::Double),
        _ => None,
    }
}

fn load(bits: u32) -> Option<Operation> {
    let code = funct3(bits);
    if code == 7 {
        return None;
    }
    Some(Operation::Load {
        width: width(code & 3)?,
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
    let amount = (bits >> 20 & 0x3f) as u8;
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
        // Reserved values of fm, rd and rs1 are to be taken for a normal fence.
        0 => {
            let (predecessor, successor) = ((bits >> 24 & 15) as u8, (bits >> 20 & 15) as u8);
            let tso = bits >> 28 == 8 && predecessor == 3 && successor == 3;
            Some(Operation::Fence(Fence {
                predecessor,
                successor,
                tso,
            }))
        }
        1 => Some(Operation::FenceI),
        _ => None,
    }
}

const fn amo_op(funct5: u32) -> Option<AmoOp> {
    Some(match funct5 {
        0x00 => AmoOp::Add,
        0x01 => AmoOp::Swap,
        0x04 => AmoOp::Xor,
        0x08 => AmoOp::Or,
        0x0c => AmoOp::And,
        0x10 => AmoOp::Min,
        0x14 => AmoOp::Max,
        0x18 => AmoOp::MinU,
        0x1c => AmoOp::MaxU,
        _ => return None,
    })
}

fn atomic(bits: u32) -> Option<Operation> {
    let width = match funct3(bits) {
        2 => Width::Word,
        3 => Width::Double,
        _ => return None,
    };
    let order = Ordering {
        acquire: bits >> 26 & 1 == 1,
        release: bits >> 25 & 1 == 1,
    };
    let (rd, rs1, rs2) = (rd(bits), rs1(bits), rs2(bits));
    Some(match bits >> 27 {
        0x02 if rs2 == XReg::ZERO => Operation::LoadReserved {
            width,
            order,
            rd,
            rs1,
        },
        0x03 => Operation::StoreConditional {
            width,
            order,
            rd,
            rs1,
            rs2,
        },
        funct5 => Operation::Amo {
            op: amo_op(funct5)?,
            width,
            order,
            rd,
            rs1,
            rs2,
        },
    })
}

fn system(bits: u32) -> Option<Operation> {
    let op = match funct3(bits) & 3 {
        1 => CsrOp::Write,
        2 => CsrOp::Set,
        3 => CsrOp::Clear,
        _ => {
            return match bits {
                0x0000_0073 => Some(Operation::Ecall),
                0x0010_0073 => Some(Operation::Ebreak),
                _ => None,
            };
        }
    };
    let source = if funct3(bits) & 4 == 0 {
        CsrSource::Register(rs1(bits))
    } else {
        CsrSource::Immediate((bits >> 15 & 31) as u8)
    };
    Some(Operation::Csr {
        op,
        rd: rd(bits),
        csr: (bits >> 20) as u16,
        source,
    })
}
