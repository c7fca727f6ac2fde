//! Standard assembly syntax, as GNU objdump prints it with
//! `-M no-aliases,numeric`, without the comments and symbols it appends.

mod compressed;
mod float;

use core::fmt;

use crate::{
    AmoOp, CSR_CYCLE, Cmp, CsrOp, CsrSource, Instruction, Operation, Ordering, Rounding, Width,
    XReg, csr_name,
};

/// An instruction at an address, to be printed with `Display`.
#[derive(Debug, Clone, Copy)]
pub struct Disassembly {
    instruction: Instruction,
    pc: u64,
}

impl Instruction {
    /// The instruction as text: mnemonic, a tab unless there are no operands,
    /// operands. `pc` is its address, for the targets of jumps and branches.
    #[must_use]
    pub fn disassemble(&self, pc: u64) -> Disassembly {
        Disassembly {
            instruction: *self,
            pc,
        }
    }
}

impl fmt::Display for Disassembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.instruction.operation();
        if self.instruction.is_compressed() {
            compressed::print(f, self.instruction.raw(), operation, self.pc)
        } else {
            print(f, operation, self.pc)
        }
    }
}

fn print(f: &mut fmt::Formatter<'_>, operation: Operation, pc: u64) -> fmt::Result {
    use Operation as O;
    match operation {
        O::Lui { rd, immediate } => write!(f, "lui\t{rd},{:#x}", immediate as u32 >> 12),
        O::Auipc { rd, immediate } => write!(f, "auipc\t{rd},{:#x}", immediate as u32 >> 12),
        O::Jal { rd, offset } => write!(f, "jal\t{rd},{:x}", target(pc, offset)),
        O::Jalr { rd, rs1, offset } => write!(f, "jalr\t{rd},{offset}({rs1})"),
        O::Branch {
            condition,
            rs1,
            rs2,
            offset,
        } => {
            let name = branch_name(condition);
            write!(f, "{name}\t{rs1},{rs2},{:x}", target(pc, offset))
        }
        O::Load {
            width,
            signed,
            rd,
            rs1,
            offset,
        } => {
            let unsigned = if signed { "" } else { "u" };
            write!(
                f,
                "l{}{unsigned}\t{rd},{offset}({rs1})",
                width_letter(width)
            )
        }
        O::Store {
            width,
            rs1,
            rs2,
            offset,
        } => {
            write!(f, "s{}\t{rs2},{offset}({rs1})", width_letter(width))
        }
        O::Immediate {
            op,
            rd,
            rs1,
            immediate,
        } => {
            write!(f, "{}\t{rd},{rs1},{immediate}", op.mnemonic())
        }
        O::Shift {
            op,
            rd,
            rs1,
            amount,
        } => {
            write!(f, "{}\t{rd},{rs1},{amount:#x}", op.mnemonic())
        }
        O::Unary { op, rd, rs1 } => write!(f, "{}\t{rd},{rs1}", op.mnemonic()),
        O::Register { op, rd, rs1, rs2 } => write!(f, "{}\t{rd},{rs1},{rs2}", op.mnemonic()),
        O::Fence(fence) if fence.tso => f.write_str("fence.tso"),
        O::Fence(fence) => {
            write!(
                f,
                "fence\t{},{}",
                Set(fence.predecessor),
                Set(fence.successor)
            )
        }
        O::FenceI => f.write_str("fence.i"),
        O::Ecall => f.write_str("ecall"),
        O::Ebreak => f.write_str("ebreak"),
        O::Csr {
            op,
            rd,
            csr,
            source,
        } => print_csr(f, op, rd, csr, source),
        O::LoadReserved {
            width,
            order,
            rd,
            rs1,
        } => {
            write!(
                f,
                "lr.{}{}\t{rd},({rs1})",
                width_letter(width),
                suffix(order)
            )
        }
        O::StoreConditional {
            width,
            order,
            rd,
            rs1,
            rs2,
        } => {
            write!(
                f,
                "sc.{}{}\t{rd},{rs2},({rs1})",
                width_letter(width),
                suffix(order)
            )
        }
        O::Amo {
            op,
            width,
            order,
            rd,
            rs1,
            rs2,
        } => {
            let (op, width, order) = (amo_name(op), width_letter(width), suffix(order));
            write!(f, "amo{op}.{width}{order}\t{rd},{rs2},({rs1})")
        }
        _ => float::print(f, operation),
    }
}

fn target(pc: u64, offset: i32) -> u64 {
    pc.wrapping_add_signed(i64::from(offset))
}

fn print_csr(
    f: &mut fmt::Formatter<'_>,
    op: CsrOp,
    rd: XReg,
    csr: u16,
    source: CsrSource,
) -> fmt::Result {
    // The assembler's idiom for an instruction that is illegal on every machine.
    if (op, rd, csr, source)
        == (
            CsrOp::Write,
            XReg::ZERO,
            CSR_CYCLE,
            CsrSource::Register(XReg::ZERO),
        )
    {
        return f.write_str("unimp");
    }
    let op = match op {
        CsrOp::Write => "csrrw",
        CsrOp::Set => "csrrs",
        CsrOp::Clear => "csrrc",
    };
    match source {
        CsrSource::Register(_) => write!(f, "{op}\t{rd},")?,
        CsrSource::Immediate(_) => write!(f, "{op}i\t{rd},")?,
    }
    match csr_name(csr) {
        Some(name) => f.write_str(name)?,
        None => write!(f, "{csr:#x}")?,
    }
    match source {
        CsrSource::Register(rs1) => write!(f, ",{rs1}"),
        CsrSource::Immediate(value) => write!(f, ",{value}"),
    }
}

/// Predecessor or successor set of a fence.
struct Set(u8);

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("unknown");
        }
        for (bit, letter) in [(8, 'i'), (4, 'o'), (2, 'r'), (1, 'w')] {
            if self.0 & bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// A rounding mode as a further operand; the dynamic one is not written.
struct RoundingOperand(Rounding);

impl fmt::Display for RoundingOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Rounding::Rne => ",rne",
            Rounding::Rtz => ",rtz",
            Rounding::Rdn => ",rdn",
            Rounding::Rup => ",rup",
            Rounding::Rmm => ",rmm",
            Rounding::Dyn => "",
        })
    }
}

fn branch_name(condition: Cmp) -> &'static str {
    match condition {
        Cmp::Eq => "beq",
        Cmp::Ne => "bne",
        Cmp::Lt => "blt",
        Cmp::Ge => "bge",
        Cmp::LtU => "bltu",
        Cmp::GeU => "bgeu",
    }
}

fn width_letter(width: Width) -> char {
    match width {
        Width::Byte => 'b',
        Width::Half => 'h',
        Width::Word => 'w',
        Width::Double => 'd',
    }
}

fn suffix(order: Ordering) -> &'static str {
    match (order.acquire, order.release) {
        (false, false) => "",
        (true, false) => ".aq",
        (false, true) => ".rl",
        (true, true) => ".aqrl",
    }
}

fn amo_name(op: AmoOp) -> &'static str {
    match op {
        AmoOp::Swap => "swap",
        AmoOp::Add => "add",
        AmoOp::Xor => "xor",
        AmoOp::And => "and",
        AmoOp::Or => "or",
        AmoOp::Min => "min",
        AmoOp::Max => "max",
        AmoOp::MinU => "minu",
        AmoOp::MaxU => "maxu",
    }
}
