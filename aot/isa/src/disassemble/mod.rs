//! Standard assembly syntax, as GNU objdump prints it with
//! `-M no-aliases,numeric`, without the comments and symbols it appends.

mod compressed;
mod mnemonic;

use core::fmt;

use crate::{
    CSR_CYCLE, CsrOp, CsrSource, Immediate, Instruction, Operands, Operation, Register, Rounding,
    Syntax, XReg, csr_name,
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

/// The assembler's idiom for an always illegal instruction.
const UNIMP: Operation = Operation::Csr {
    op: CsrOp::Write,
    rd: XReg::ZERO,
    csr: CSR_CYCLE,
    source: CsrSource::Register(XReg::ZERO),
};

impl fmt::Display for Disassembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.instruction.operation();
        if self.instruction.is_compressed() {
            let (name, operands) = compressed::parts(self.instruction.raw(), operation);
            f.write_str(name)?;
            return print(f, &operands, self.pc);
        }
        if operation == UNIMP {
            return f.write_str("unimp");
        }
        mnemonic::print(f, operation)?;
        print(f, &operation.operands(), self.pc)
    }
}

/// Prints operands, with a tab before the first one.
fn print(f: &mut fmt::Formatter<'_>, operands: &Operands, pc: u64) -> fmt::Result {
    let mut list = List { f, separator: '\t' };
    let &Operands {
        rd,
        rs1,
        rs2,
        rs3,
        immediate,
        ..
    } = operands;
    match operands.syntax {
        Syntax::List | Syntax::Exact => {
            list.registers([rd, rs1, rs2, rs3])?;
            list.immediate(immediate, pc)?;
            match operands.rounding {
                Some(rounding) if operands.syntax == Syntax::List => list.rounding(rounding),
                _ => Ok(()),
            }
        }
        Syntax::Offset => {
            list.registers([rd, rs2])?;
            list.immediate(immediate, pc)?;
            list.base(rs1)
        }
        Syntax::Address => {
            list.registers([rd, rs2])?;
            list.add("")?;
            list.base(rs1)
        }
        Syntax::Csr => {
            list.registers([rd])?;
            list.csr(operands.csr)?;
            list.registers([rs1])?;
            list.immediate(immediate, pc)
        }
    }
}

/// Operands and their separators.
struct List<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    separator: char,
}

impl List<'_, '_> {
    fn add(&mut self, operand: impl fmt::Display) -> fmt::Result {
        write!(self.f, "{}{operand}", self.separator)?;
        self.separator = ',';
        Ok(())
    }

    /// A base register, which follows its offset.
    fn base(&mut self, register: Option<Register>) -> fmt::Result {
        match register {
            Some(register) => write!(self.f, "({register})"),
            None => Ok(()),
        }
    }

    fn registers<const N: usize>(&mut self, registers: [Option<Register>; N]) -> fmt::Result {
        let mut registers = registers.into_iter().flatten();
        registers.try_for_each(|register| self.add(register))
    }

    fn immediate(&mut self, immediate: Option<Immediate>, pc: u64) -> fmt::Result {
        let Some(immediate) = immediate else {
            return Ok(());
        };
        match immediate {
            Immediate::I(value) | Immediate::S(value) => self.add(value),
            Immediate::B(offset) | Immediate::J(offset) => {
                let target = pc.wrapping_add_signed(i64::from(offset));
                self.add(format_args!("{target:x}"))
            }
            Immediate::U(value) => self.add(format_args!("{:#x}", value as u32 >> 12)),
            Immediate::Amount(amount) => self.add(format_args!("{amount:#x}")),
            Immediate::Csr(value) => self.add(value),
            // The mnemonic already includes the mode.
            Immediate::Fence(fence) if fence.tso => Ok(()),
            Immediate::Fence(fence) => {
                self.add(Set(fence.predecessor))?;
                self.add(Set(fence.successor))
            }
        }
    }

    fn csr(&mut self, csr: Option<u16>) -> fmt::Result {
        match csr.map(|csr| (csr, csr_name(csr))) {
            Some((_, Some(name))) => self.add(name),
            Some((csr, None)) => self.add(format_args!("{csr:#x}")),
            None => Ok(()),
        }
    }

    /// Adds the rounding mode, unless it is the dynamic one.
    fn rounding(&mut self, rounding: Rounding) -> fmt::Result {
        match rounding {
            Rounding::Dyn => Ok(()),
            rounding => self.add(rounding.name()),
        }
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::X(register) => register.fmt(f),
            Self::F(register) => register.fmt(f),
        }
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
