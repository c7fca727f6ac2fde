//! Properties of an instruction that a translator needs without executing it.

use crate::{Format, Immediate, Instruction, Operands, Operation, Register, Rounding, XReg};

/// The control flow after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flow {
    /// At the next instruction.
    Next,
    /// At pc + `offset` or at the next instruction.
    Branch {
        /// Bytes from the branch.
        offset: i32,
    },
    /// At pc + `offset`.
    Jump {
        /// Meaning for the call stack.
        kind: JumpKind,
        /// Bytes from the jump.
        offset: i32,
    },
    /// At the address in `base`, plus `offset`.
    JumpRegister {
        /// Meaning for the call stack.
        kind: JumpKind,
        /// Register that holds the target.
        base: XReg,
        /// Bytes added to it.
        offset: i32,
    },
    /// In the operating system; after `ecall` at the next instruction.
    SystemCall,
    /// In the operating system: `ebreak`. Execution continues only if the operating system resumes
    /// it.
    Breakpoint,
}

/// Meaning of a jump for the call stack, as the return-address-stack hints of
/// the unprivileged specification (section "Unconditional Jumps") define it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JumpKind {
    /// Neither pushes nor pops: a jump or tail call.
    Jump,
    /// Pushes: a call.
    Call,
    /// Pops: a return.
    Return,
    /// Pops, then pushes: a coroutine switch.
    Swap,
}

impl JumpKind {
    /// Kind of a `jalr` with these registers. For `jal` pass [`XReg::ZERO`] as base.
    #[must_use]
    pub fn of(link: XReg, base: XReg) -> Self {
        match (link.is_link(), base.is_link()) {
            (false, false) => Self::Jump,
            (false, true) => Self::Return,
            (true, false) => Self::Call,
            (true, true) if link == base => Self::Call,
            (true, true) => Self::Swap,
        }
    }
}

/// Registers that an instruction uses; bit n stands for register n. `x0` is
/// never among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegisterUse {
    /// Integer registers read.
    pub x_read: u32,
    /// Integer registers written.
    pub x_written: u32,
    /// Floating-point registers read.
    pub f_read: u32,
    /// Floating-point registers written.
    pub f_written: u32,
}

impl Instruction {
    /// Returns where execution continues.
    #[must_use]
    pub fn flow(&self) -> Flow {
        match self.operation() {
            Operation::Branch { offset, .. } => Flow::Branch { offset },
            Operation::Jal { rd, offset } => Flow::Jump {
                kind: JumpKind::of(rd, XReg::ZERO),
                offset,
            },
            Operation::Jalr { rd, rs1, offset } => Flow::JumpRegister {
                kind: JumpKind::of(rd, rs1),
                base: rs1,
                offset,
            },
            Operation::Ecall => Flow::SystemCall,
            Operation::Ebreak => Flow::Breakpoint,
            _ => Flow::Next,
        }
    }

    /// Whether anything other than the next instruction may follow, `ecall` included.
    #[must_use]
    pub fn is_control_transfer(&self) -> bool {
        self.flow() != Flow::Next
    }

    /// Bytes from this instruction to the target of a branch or of `jal`.
    #[must_use]
    pub fn direct_offset(&self) -> Option<i32> {
        match self.flow() {
            Flow::Branch { offset } | Flow::Jump { offset, .. } => Some(offset),
            _ => None,
        }
    }

    /// Whether it only loads a register: not an instruction of the A extension.
    #[must_use]
    pub fn is_plain_load(&self) -> bool {
        matches!(
            self.operation(),
            Operation::Load { .. } | Operation::LoadFloat { .. }
        )
    }

    /// Whether it only stores a register: not an instruction of the A extension.
    #[must_use]
    pub fn is_plain_store(&self) -> bool {
        matches!(
            self.operation(),
            Operation::Store { .. } | Operation::StoreFloat { .. }
        )
    }

    /// Whether it reads memory (atomics included).
    #[must_use]
    pub fn is_load(&self) -> bool {
        let operation = self.operation();
        self.is_plain_load()
            || matches!(
                operation,
                Operation::LoadReserved { .. } | Operation::Amo { .. }
            )
    }

    /// Whether it writes memory (atomics included).
    #[must_use]
    pub fn is_store(&self) -> bool {
        let operation = self.operation();
        self.is_plain_store()
            || matches!(
                operation,
                Operation::StoreConditional { .. } | Operation::Amo { .. }
            )
    }

    /// Number of bytes of its access to memory, if it has one.
    #[must_use]
    pub fn access_bytes(&self) -> Option<u32> {
        match self.operation() {
            Operation::Load { width, .. }
            | Operation::Store { width, .. }
            | Operation::LoadReserved { width, .. }
            | Operation::StoreConditional { width, .. }
            | Operation::Amo { width, .. } => Some(width.bytes()),
            Operation::LoadFloat { format, .. } | Operation::StoreFloat { format, .. } => {
                Some(format.bytes())
            }
            _ => None,
        }
    }

    /// Base register and offset of the address of its access to memory, if it has one.
    #[must_use]
    pub fn memory_operand(&self) -> Option<(XReg, i32)> {
        let operands = self.operands();
        let offset = match operands.immediate {
            Some(Immediate::I(offset) | Immediate::S(offset)) => offset,
            _ => 0,
        };
        match operands.rs1 {
            Some(Register::X(base)) if self.may_fault() => Some((base, offset)),
            _ => None,
        }
    }

    /// Whether it accesses memory, and so may fault.
    #[must_use]
    pub fn may_fault(&self) -> bool {
        self.is_load() || self.is_store()
    }

    /// Its operands.
    #[must_use]
    pub fn operands(&self) -> Operands {
        self.operation().operands()
    }

    /// Its rounding mode field, if it has one.
    #[must_use]
    pub fn rounding(&self) -> Option<Rounding> {
        self.operands().rounding
    }

    /// The rounding mode that it names itself, if it rounds. `None` if it uses `frm`, or if its
    /// result is exact.
    #[must_use]
    pub fn static_rounding(&self) -> Option<Rounding> {
        let exact = match self.operation() {
            Operation::IntToFloat { from, format, .. } => from.is_exact_in(format),
            Operation::FloatConvert { to, .. } => to == Format::Double,
            _ => false,
        };
        self.rounding()
            .filter(|&rounding| rounding != Rounding::Dyn && !exact)
    }

    /// Registers read and written.
    #[must_use]
    pub fn register_use(&self) -> RegisterUse {
        let operands = self.operands();
        let mut registers = RegisterUse::default();
        for source in operands.sources() {
            match source {
                Register::X(register) => registers.x_read |= register.mask(),
                Register::F(register) => registers.f_read |= register.mask(),
            }
        }
        match operands.rd {
            Some(Register::X(register)) => registers.x_written |= register.mask(),
            Some(Register::F(register)) => registers.f_written |= register.mask(),
            None => {}
        }
        registers.x_read &= !1;
        registers.x_written &= !1;
        registers
    }
}
