//! Scratch registers that still have the value of a guest register that is not pinned.
//!
//! The word of such a register is always up to date. But a load from a word that has just been stored waits for the
//! store, and most code uses a result soon. So an instruction that needs the register uses the scratch register that
//! has the same value, until another value takes its place. Only instructions that leave r10 and r11 alone, except for
//! scratch registers that they take, keep these copies; code that others jump to has none.

use hartline_isa::{MulDivOp, Operation, RegisterOp, XReg};

use super::Emitter;
use super::registers::host;
use super::values::{Int, Value};
use crate::encoder::Gpr;

/// The scratch registers that are not pinned.
pub(super) const FREE: [Gpr; 2] = [Gpr::R10, Gpr::R11];

/// The guest registers whose values the [`FREE`] registers have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Copies {
    of: [Option<XReg>; 2],
    /// The index of the newest copy.
    newest: usize,
}

impl Copies {
    /// Returns the register that has the value of a guest register.
    pub fn of(&self, register: XReg) -> Option<Gpr> {
        let index = self.of.iter().position(|&of| of == Some(register))?;
        Some(FREE[index])
    }

    /// Returns the free registers in the order in which new values take their places.
    pub fn order(&self) -> [Gpr; 2] {
        let first = match self.of {
            [None, _] => 0,
            [_, None] => 1,
            _ => 1 - self.newest,
        };
        [FREE[first], FREE[1 - first]]
    }

    /// Records that a register gets another value.
    pub fn drop_in(&mut self, register: Gpr) {
        for (of, free) in self.of.iter_mut().zip(FREE) {
            if free == register {
                *of = None;
            }
        }
    }

    /// Records that a guest register gets another value.
    pub fn drop_of(&mut self, register: XReg) {
        for of in &mut self.of {
            if *of == Some(register) {
                *of = None;
            }
        }
    }

    fn add(&mut self, register: XReg, copy: Gpr) {
        if let Some(index) = FREE.iter().position(|&free| free == copy) {
            self.drop_of(register);
            self.of[index] = Some(register);
            self.newest = index;
        }
    }
}

impl Emitter<'_> {
    /// Decides which copies the current instruction uses. Returns whether it keeps copies.
    pub(super) fn begin_with_copies(&mut self, operation: Operation) -> bool {
        let Some(taken) = scratch_registers(operation) else {
            self.known.copies = Copies::default();
            return false;
        };
        let written = self.registers.x_written;
        let to_word = (1..32).any(|number| {
            written >> number & 1 != 0 && XReg::new(number).is_some_and(|x| host(x).is_none())
        });
        let mut left = FREE.len().saturating_sub(taken + usize::from(to_word));
        let copies = &mut self.known.copies;
        for index in [copies.newest, 1 - copies.newest] {
            let Some(register) = copies.of[index] else {
                continue;
            };
            if self.registers.x_read & register.mask() == 0 {
                continue;
            }
            match left {
                0 => copies.of[index] = None,
                _ => {
                    left -= 1;
                    self.in_use.x |= FREE[index].mask();
                }
            }
        }
        true
    }

    /// Records that a word of `Hart` and a host register have the same value, which `register` has been given.
    pub(super) fn note_written(&mut self, register: XReg, source: Gpr) {
        self.known.copies.drop_of(register);
        self.known.copies.add(register, source);
    }

    /// Records that a scratch register, which nothing has changed since, was loaded with a value.
    pub(super) fn note_loaded(&mut self, value: Int, scratch: Option<Gpr>) {
        if let (Value::X(register), Some(scratch)) = (self.values.get(value), scratch)
            && host(register).is_none()
        {
            self.known.copies.add(register, scratch);
        }
    }
}

/// Returns the number of scratch registers that an instruction takes besides that for its result; `None`: it does not
/// keep copies.
fn scratch_registers(operation: Operation) -> Option<usize> {
    match operation {
        Operation::Lui { .. }
        | Operation::Auipc { .. }
        | Operation::Branch { .. }
        | Operation::Load { .. }
        | Operation::Store { .. }
        | Operation::Immediate { .. }
        | Operation::Shift { .. }
        | Operation::Unary { .. } => Some(0),
        Operation::Register { op, .. } => match op {
            RegisterOp::I(_) | RegisterOp::Zba(_) | RegisterOp::Zbb(_) | RegisterOp::Zbs(_) => {
                Some(0)
            }
            RegisterOp::M(MulDivOp::Mul | MulDivOp::Mulw) => Some(0),
            RegisterOp::M(MulDivOp::Mulhu) | RegisterOp::Zicond(_) => Some(1),
            RegisterOp::M(_) | RegisterOp::Zbc(_) => None,
        },
        _ => None,
    }
}
