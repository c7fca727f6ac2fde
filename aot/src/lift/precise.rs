//! The precise variant of translated code, for programs that handle their own faults.
//!
//! Its registers are where the normal variant has them, but at *checkpoints* all of
//! them are also stored to the `Hart` structure, with the place of the checkpoint
//! ([`fault_place`](hartline_abi::hart::Hart::fault_place)). Between two checkpoints
//! the code only reads memory and computes. So when a load faults, the runtime forgets
//! what was computed since the last checkpoint and lets the interpreter do it again,
//! up to the load: then all registers are exact. Checkpoints are
//!
//! - before each store, which is exact therefore; it is not done again if a load after
//!   it faults, for which the place has a mark,
//! - before and after each atomic operation,
//! - at calls, returns and whatever else the runtime does: entries of functions, and
//!   places where calls return to.
//!
//! Stores to the `Hart` structure and accesses to guest memory are volatile in this
//! variant, so that LLVM keeps their order. The place is stored and not found by the
//! address of the code, because LLVM may merge the code of two accesses.

use hartline_abi::hart::{FAULT_PLACE_LONG, FAULT_PLACE_STORE, offset};
use hartline_isa::{Instruction, Operation};

use super::Unit;
use super::function::Lifter;
use super::registers::{RegisterSet, unpinned};

/// Whether a checkpoint is before the instruction.
pub(super) fn starts_checkpoint(instruction: &Instruction, unit: &Unit) -> bool {
    unit.precise && instruction.is_store()
}

/// Whether a checkpoint is after the instruction too: to do it twice is not to do it.
pub(super) fn ends_checkpoint(instruction: &Instruction, unit: &Unit) -> bool {
    starts_checkpoint(instruction, unit) && !is_plain_store(instruction)
}

fn is_plain_store(instruction: &Instruction) -> bool {
    matches!(
        instruction.operation(),
        Operation::Store { .. } | Operation::StoreFloat { .. }
    )
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
    pub(super) fn checkpoint_before(&mut self, instruction: &Instruction) {
        if starts_checkpoint(instruction, self.unit) {
            let flags = match (is_plain_store(instruction), instruction.length()) {
                (false, _) => 0,
                (true, 2) => FAULT_PLACE_STORE,
                (true, _) => FAULT_PLACE_STORE | FAULT_PLACE_LONG,
            };
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
