//! The checkpoints of precise code, inside blocks and between them. At a checkpoint all registers
//! are in the `Hart` structure, so that after a fault the interpreter can repeat the instructions
//! that followed it.

use std::collections::HashSet;

use hartline_abi::hart::{FAULT_PLACE_LONG, FAULT_PLACE_STORE};
use hartline_isa::{Instruction, Operation, XReg};

use super::register_set::{RegisterSet, unpinned};
use super::unit::Unit;
use crate::cfg::{Block, Function, Terminator};

/// The checkpoint before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// There is none.
    Nothing,
    /// A checkpoint whose location has these flags.
    Checkpoint(u32),
}

/// The checkpoint before each instruction of a block.
///
/// Consecutive stores to the stack share one checkpoint, before the first, if nothing between them
/// reads memory or orders accesses: repeating all of them leaves the same memory contents.
#[must_use]
pub fn before_each(block: &Block, unit: &Unit) -> Vec<Before> {
    let instructions = &block.instructions;
    let mut result = vec![Before::Nothing; instructions.len()];
    if !unit.precise {
        return result;
    }
    let mut run = None;
    for (index, (_, instruction)) in instructions.iter().enumerate() {
        if is_stack_store(instruction) {
            match run {
                None => run = Some(index),
                // The checkpoint of stores that may be repeated has no flags.
                Some(first) => result[first] = Before::Checkpoint(0),
            }
        } else if instruction.is_store()
            || instruction.is_load()
            || matches!(instruction.operation(), Operation::Fence { .. })
            || unit.features.leaves_code(instruction)
        {
            run = None;
        }
        if instruction.is_store() && run.is_none_or(|first| first == index) {
            result[index] = Before::Checkpoint(flags(instruction));
        }
    }
    result
}

fn flags(instruction: &Instruction) -> u32 {
    match (instruction.is_plain_store(), instruction.length()) {
        (false, _) => 0,
        (true, 2) => FAULT_PLACE_STORE,
        (true, _) => FAULT_PLACE_STORE | FAULT_PLACE_LONG,
    }
}

fn is_stack_store(instruction: &Instruction) -> bool {
    let base = instruction.memory_operand().map(|(base, _)| base);
    instruction.is_plain_store() && base == Some(XReg::SP)
}

/// Whether a checkpoint is before the jump that ends the block.
#[must_use]
pub fn ends_in_checkpoint(block: &Block, unit: &Unit) -> bool {
    unit.precise && matches!(block.terminator, Terminator::JumpTable(_))
}

/// The blocks that have a checkpoint on each edge to them: blocks where paths join. Otherwise
/// registers would be merged there, only for the next checkpoint.
pub(super) fn checkpoint_blocks(function: &Function, unit: &Unit) -> HashSet<u64> {
    if !unit.precise {
        return HashSet::new();
    }
    let mut reached = HashSet::from([function.entry]);
    let edges = function
        .blocks
        .iter()
        .flat_map(|block| block.terminator.edges());
    let inside = edges.filter(|edge| edge.is_internal());
    let again = inside.filter(|edge| !reached.insert(edge.target));
    again.map(|edge| edge.target).collect()
}

/// Whether a checkpoint follows the instruction too, because executing it twice has another effect
/// than executing it once.
#[must_use]
pub fn ends_checkpoint(instruction: &Instruction, unit: &Unit) -> bool {
    unit.precise && instruction.is_store() && !instruction.is_plain_store()
}

/// Registers whose words in the `Hart` structure must be up to date at a checkpoint, or after a
/// call.
#[must_use]
pub fn tracked(unit: &Unit) -> RegisterSet {
    match unit.precise {
        true => RegisterSet { x: !1, f: !0 },
        false => unpinned(),
    }
}
