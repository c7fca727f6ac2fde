//! The precise variant of translated code, for programs that handle their own faults.
//!
//! Its registers are where the normal variant has them, but at *checkpoints* all of
//! them are also stored to the `Hart` structure, with the place of the checkpoint
//! ([`fault_place`](hartline_abi::hart::Hart::fault_place)). Between two checkpoints
//! the code reads memory, computes, and stores only what may be stored twice. So when an
//! access faults, the runtime forgets what was computed since the last checkpoint and
//! lets the interpreter do it again, up to the access: then all registers are exact.
//! Checkpoints are
//!
//! - before each store that may not be done twice: if a load after it faults it is not
//!   done again, for which the place has a mark,
//! - before the first of several stores to the stack that follow each other,
//! - before and after each atomic operation,
//! - at calls, returns and whatever else the runtime does: entries of functions, and
//!   places where calls return to,
//! - on the ways to where paths meet, which would merge registers for a later checkpoint
//!   only, and before a jump through a table.
//!
//! Stores, to the `Hart` structure and to guest memory, are volatile in this variant, so that
//! LLVM keeps their order; what loads may do is told in [`loads`](super::loads). The place is
//! stored and not found by the address of the code, because LLVM may merge the code of two
//! accesses.

use hartline_abi::hart::offset;
use hartline_isa::Instruction;

use super::Unit;
use super::checkpoints::{Before, ends_in_checkpoint, is_plain_store};
use super::function::Lifter;
use super::registers::{RegisterSet, unpinned};
use crate::cfg::{Block, Edge};

/// Whether a checkpoint is after the instruction too: to do it twice is not to do it.
pub(super) fn ends_checkpoint(instruction: &Instruction, unit: &Unit) -> bool {
    unit.precise && instruction.is_store() && !is_plain_store(instruction)
}

/// Registers whose `Hart` words follow what is written to them.
pub(super) fn tracked(unit: &Unit) -> RegisterSet {
    match unit.precise {
        true => RegisterSet { x: !1, f: !0 },
        false => unpinned(),
    }
}

impl Lifter<'_, '_> {
    /// The checkpoint before an instruction.
    pub(super) fn checkpoint_before(&mut self, before: Before) {
        if let Before::Checkpoint(flags) = before {
            self.store_dirty();
            self.store_place(self.pc, flags);
        }
    }

    /// The checkpoint after an instruction.
    pub(super) fn checkpoint_after(&mut self, instruction: &Instruction) {
        if ends_checkpoint(instruction, self.unit) {
            self.store_dirty();
            self.store_place(self.pc + u64::from(instruction.length()), 0);
        }
    }

    /// Makes the place `link` a checkpoint; all registers are in the `Hart` structure.
    pub(super) fn checkpoint_at(&self, link: u64) {
        if self.unit.precise {
            self.store_place(link, 0);
        }
    }

    /// The checkpoint before the jump that ends a block.
    pub(super) fn checkpoint_at_end(&mut self, block: &Block) {
        if ends_in_checkpoint(block, self.unit) && self.dirty != RegisterSet::default() {
            self.store_dirty();
            self.store_place(self.pc, 0);
        }
    }

    /// Whether the way of an edge inside the function has a checkpoint.
    pub(super) fn has_checkpoint(&self, edge: &Edge) -> bool {
        self.dirty != RegisterSet::default() && self.flow.is_checkpoint(edge.target)
    }

    /// That checkpoint; other ways from the block have their own.
    pub(super) fn checkpoint_on(&self, edge: &Edge) {
        if self.has_checkpoint(edge) {
            self.registers.store(self.ir, self.dirty);
            self.store_place(edge.target, 0);
        }
    }

    fn store_dirty(&mut self) {
        self.registers.store(self.ir, self.dirty);
        self.dirty = RegisterSet::default();
    }

    fn store_place(&self, link: u64, flags: u32) {
        // Text is at most `MAX_TEXT` long.
        let place = link.wrapping_sub(self.unit.text.start) as u32 | flags;
        let place = self.ir.int_of(32).const_int(place.into(), false);
        self.ir.store_hart(offset::FAULT_PLACE, place);
    }
}
