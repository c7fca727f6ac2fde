//! Constants in registers along straight-line code, to find the target of an `auipc` + `jalr` pair
//! and addresses that code takes.

use hartline_isa::ImmediateOp::{Addi, Addiw};
use hartline_isa::{Instruction, IntegerOp, Operation, RegisterOp, XReg};

/// The registers that hold a known constant.
#[derive(Debug, Clone)]
pub(super) struct Constants {
    known: u32,
    values: [u64; 32],
}

impl Constants {
    /// Only `x0` is known.
    pub(super) fn new() -> Self {
        Self {
            known: XReg::ZERO.mask(),
            values: [0; 32],
        }
    }

    /// Returns the constant in a register.
    pub(super) fn get(&self, register: XReg) -> Option<u64> {
        (self.known & register.mask() != 0).then(|| self.values[register.index()])
    }

    /// Updates the state for an instruction. Returns the address that the instruction completed in
    /// a register from `lui` or `auipc`, if any.
    pub(super) fn step(&mut self, pc: u64, instruction: &Instruction) -> Option<u64> {
        let (register, value, completed) = match instruction.operation() {
            Operation::Lui { rd, immediate } => (rd, Some(i64::from(immediate) as u64), false),
            Operation::Auipc { rd, immediate } => (
                rd,
                Some(pc.wrapping_add_signed(i64::from(immediate))),
                false,
            ),
            Operation::Immediate {
                op: op @ (Addi | Addiw),
                rd,
                rs1,
                immediate,
            } => {
                let sum = self
                    .get(rs1)
                    .map(|base| base.wrapping_add_signed(i64::from(immediate)));
                let value = if op == Addiw {
                    sum.map(sign_extend_word)
                } else {
                    sum
                };
                (rd, value, rs1 != XReg::ZERO)
            }
            Operation::Register {
                op: RegisterOp::I(IntegerOp::Add),
                rd,
                rs1,
                rs2,
            } => {
                let sum = self.get(rs1).zip(self.get(rs2));
                (rd, sum.map(|(a, b)| a.wrapping_add(b)), false)
            }
            _ => {
                self.known &= !written(instruction);
                return None;
            }
        };
        if register == XReg::ZERO {
            return None;
        }
        self.known &= !register.mask();
        let value = value?;
        self.known |= register.mask();
        self.values[register.index()] = value;
        completed.then_some(value)
    }
}

/// The low 32 bits, sign-extended.
pub(super) fn sign_extend_word(value: u64) -> u64 {
    i64::from(value as i32) as u64
}

/// Integer registers that an instruction changes, including changes by the operating system at
/// `ecall`.
pub(super) fn written(instruction: &Instruction) -> u32 {
    match instruction.operation() {
        Operation::Ecall => XReg::A0.mask(),
        _ => instruction.register_use().x_written,
    }
}
