//! The precise variant of translated code, for programs that handle their own faults.
//!
//! Its registers are in the same locations as in the normal variant, but at *checkpoints* all of
//! them are also stored to the `Hart` structure, with the location of the checkpoint
//! ([`fault_place`](hartline_abi::hart::Hart::fault_place)). Between two checkpoints the code reads
//! memory, computes, and makes only stores that may be repeated. When an access faults, the runtime
//! discards the results since the last checkpoint. The interpreter repeats the code up to the
//! access: then all registers are exact. Checkpoints are
//!
//! - before each store that may not be repeated: if a load after it faults, the store is not
//!   repeated, for which the location has a flag,
//! - before the first of several consecutive stores to the stack,
//! - before and after each atomic operation,
//! - at calls, returns and other calls of the runtime: entries of functions, and addresses that
//!   calls return to,
//! - on the edges to joins, which would merge registers only for a later checkpoint, and before a
//!   jump through a table.
//!
//! Stores, to the `Hart` structure and to guest memory, are volatile in this variant, so that LLVM
//! keeps their order. The location is stored because LLVM may merge the code of two accesses, so
//! that the address of the code does not identify one.

use hartline_abi::hart::offset;
use hartline_isa::Instruction;

use super::lifter::Lifter;
use crate::analysis::{Before, RegisterSet, ends_checkpoint, ends_in_checkpoint};
use crate::cfg::{Block, Edge};

impl Lifter<'_, '_> {
    /// Generates the checkpoint before an instruction.
    pub(super) fn checkpoint_before(&mut self, before: Before) {
        if let Before::Checkpoint(flags) = before {
            self.store_dirty();
            self.store_location(self.instruction.pc, flags);
        }
    }

    /// Generates the checkpoint after an instruction.
    pub(super) fn checkpoint_after(&mut self, instruction: &Instruction) {
        if ends_checkpoint(instruction, self.unit) {
            self.store_dirty();
            self.store_location(self.instruction.pc + u64::from(instruction.length()), 0);
        }
    }

    /// Makes a checkpoint at the link-time address `link`; all registers are in the `Hart`
    /// structure.
    pub(super) fn checkpoint_at(&self, link: u64) {
        if self.unit.precise {
            self.store_location(link, 0);
        }
    }

    /// Generates the checkpoint before the jump that ends a block.
    pub(super) fn checkpoint_at_end(&mut self, block: &Block) {
        if ends_in_checkpoint(block, self.unit) && self.block.dirty != RegisterSet::default() {
            self.store_dirty();
            self.store_location(self.instruction.pc, 0);
        }
    }

    /// Whether an edge inside the function has a checkpoint.
    pub(super) fn has_checkpoint(&self, edge: &Edge) -> bool {
        self.block.dirty != RegisterSet::default() && self.function.flow.is_checkpoint(edge.target)
    }

    /// Generates the checkpoint on an edge; other edges from the block have their own.
    pub(super) fn checkpoint_on(&self, edge: &Edge) {
        if self.has_checkpoint(edge) {
            self.registers.store(self.ir, self.block.dirty);
            self.store_location(edge.target, 0);
        }
    }

    fn store_dirty(&mut self) {
        self.registers.store(self.ir, self.block.dirty);
        self.block.dirty = RegisterSet::default();
    }

    fn store_location(&self, link: u64, flags: u32) {
        // The text is at most `MAX_TEXT` long.
        let distance = link.wrapping_sub(self.unit.text.start) as u32;
        let location = self.ir.fault_place(link, distance, flags);
        self.ir.store_hart(offset::FAULT_PLACE, location);
    }
}
