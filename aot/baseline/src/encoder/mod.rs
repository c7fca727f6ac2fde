//! An encoder of the x86-64 instructions that the translator emits.
//!
//! [`Assembler`] appends instructions to a buffer. Each method is one instruction; its name is the
//! mnemonic, and operands are in Intel's order, destination first. Branches lead to [`Label`]s,
//! whose displacements are filled in by [`Assembler::finish`].

mod integer;
mod operand;
mod register;
mod sse;
#[cfg(test)]
mod tests;

pub use integer::{Alu, BitOp, CountOp, Shift, ShiftX, Unary};
pub use operand::{Condition, Mem, Rm, Size, XmmRm};
pub use register::{Gpr, Xmm};
pub use sse::{FmaOp, Precision, RoundMode, Scalar};

/// A location in the code that branches lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(u32);

/// Offset of a label that is not bound.
const UNBOUND: u32 = u32::MAX;

/// A code buffer.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u8>,
    /// Offset of each label.
    labels: Vec<u32>,
    /// Offsets of displacement fields, with the label that each leads to.
    fixups: Vec<(u32, Label)>,
}

/// Finished code.
#[derive(Debug)]
pub struct Code {
    /// The code.
    pub bytes: Vec<u8>,
    labels: Vec<u32>,
}

impl Code {
    /// Returns the offset of a label.
    #[must_use]
    pub fn offset(&self, label: Label) -> u32 {
        self.labels[label.0 as usize]
    }
}

/// A state of an [`Assembler`] to which it can go back.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    code: usize,
    labels: usize,
    fixups: usize,
}

impl Assembler {
    /// Returns the offset of the next instruction.
    #[must_use]
    pub fn offset(&self) -> u32 {
        // Regions are limited in length, so that code is much shorter than this.
        self.code.len() as u32
    }

    /// Makes an unbound label.
    pub fn label(&mut self) -> Label {
        self.labels.push(UNBOUND);
        Label(self.labels.len() as u32 - 1)
    }

    /// Binds a label to the next instruction.
    pub fn bind(&mut self, label: Label) {
        let offset = self.offset();
        self.labels[label.0 as usize] = offset;
    }

    /// Returns the current state.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            code: self.code.len(),
            labels: self.labels.len(),
            fixups: self.fixups.len(),
        }
    }

    /// Drops everything that was added since `mark`. Labels that are older must not have been bound
    /// since then.
    pub fn rewind(&mut self, mark: Mark) {
        self.code.truncate(mark.code);
        self.labels.truncate(mark.labels);
        self.fixups.truncate(mark.fixups);
    }

    /// Fills in the displacements and returns the code. A displacement whose label was never bound
    /// leads to the instruction after it.
    #[must_use]
    pub fn finish(mut self) -> Code {
        for (at, label) in self.fixups {
            let target = self.labels[label.0 as usize];
            if target == UNBOUND {
                continue;
            }
            let at = at as usize;
            let distance = (target as i32).wrapping_sub(at as i32 + 4);
            self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        Code {
            bytes: self.code,
            labels: self.labels,
        }
    }

    fn byte(&mut self, byte: u8) {
        self.code.push(byte);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// Appends a displacement to `label`.
    fn displacement_to(&mut self, label: Label) {
        self.fixups.push((self.offset(), label));
        self.bytes(&[0; 4]);
    }
}
