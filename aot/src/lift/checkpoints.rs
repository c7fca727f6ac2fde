//! Where code of the precise variant has checkpoints inside blocks and between them; what
//! they are for is told in [`precise`](super::precise).

use std::collections::HashSet;
use std::mem;

use hartline_abi::hart::{FAULT_PLACE_LONG, FAULT_PLACE_STORE};
use hartline_isa::{Instruction, Operation};

use super::Unit;
use super::registers::{RegisterSet, dirty_out, is_call, leaves_code, unpinned, uses};
use super::ways::Ways;
use crate::cfg::{Block, Function, Terminator};

/// The stack pointer.
const SP: usize = 2;

/// Most registers that a meeting of paths merges only for the next checkpoint.
const MERGED: u32 = 2;

/// The checkpoint before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// There is none.
    Nothing,
    /// One with these flags of its place.
    Checkpoint(u32),
}

/// The checkpoint before each instruction of a block.
///
/// Stores to the stack that follow each other have one in common, before the first, if
/// nothing between them reads memory or orders accesses: to do all of them again leaves
/// the same in memory.
pub(super) fn before_each(block: &Block, unit: &Unit) -> Vec<Before> {
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
                // What is done more than once has no mark.
                Some(first) => result[first] = Before::Checkpoint(0),
            }
        } else if instruction.is_store()
            || instruction.is_load()
            || matches!(instruction.operation(), Operation::Fence { .. })
            || leaves_code(instruction, &unit.features)
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
    match (is_plain_store(instruction), instruction.length()) {
        (false, _) => 0,
        (true, 2) => FAULT_PLACE_STORE,
        (true, _) => FAULT_PLACE_STORE | FAULT_PLACE_LONG,
    }
}

/// Whether the instruction stores and does nothing else.
pub(super) fn is_plain_store(instruction: &Instruction) -> bool {
    matches!(
        instruction.operation(),
        Operation::Store { .. } | Operation::StoreFloat { .. }
    )
}

fn is_stack_store(instruction: &Instruction) -> bool {
    match instruction.operation() {
        Operation::Store { rs1, .. } | Operation::StoreFloat { rs1, .. } => rs1.index() == SP,
        _ => false,
    }
}

/// Whether a checkpoint is before the jump that ends the block.
pub(super) fn ends_in_checkpoint(block: &Block, unit: &Unit) -> bool {
    unit.precise && matches!(block.terminator, Terminator::JumpTable(_))
}

/// The blocks that have a checkpoint on each way to them: where paths meet, and more
/// registers would have to be merged for the next checkpoint only than is worth it.
pub(super) fn checkpoint_blocks(function: &Function, unit: &Unit) -> HashSet<u64> {
    if !unit.precise {
        return HashSet::new();
    }
    Meetings::of(function, unit).costly()
}

/// What is known of the meetings of paths of a function.
struct Meetings<'f> {
    function: &'f Function,
    unit: &'f Unit,
    ways: Ways,
}

impl<'f> Meetings<'f> {
    fn of(function: &'f Function, unit: &'f Unit) -> Self {
        Self {
            function,
            unit,
            ways: Ways::of(function),
        }
    }

    /// Blocks at whose start too much would have to be merged.
    fn costly(&self) -> HashSet<u64> {
        let live = self.live();
        let merged = self.merged();
        let mut out = self.dirty_out();
        let mut result = HashSet::new();
        for &number in &self.ways.order {
            let before = self.ways.before[number].iter();
            let dirty = before.fold(RegisterSet::default(), |set, &block| set.union(out[block]));
            let for_later = dirty.intersection(merged[number]).difference(live[number]);
            let costly = for_later.x.count_ones() + for_later.f.count_ones() > MERGED;
            let block = &self.function.blocks[number];
            if costly {
                result.insert(block.start);
            }
            let dirty = if costly {
                RegisterSet::default()
            } else {
                dirty
            };
            out[number] = dirty_out(block, dirty, self.unit);
        }
        result
    }

    /// Registers that the code reads after the start of each block, before it overwrites
    /// them.
    fn live(&self) -> Vec<RegisterSet> {
        let mut live = vec![RegisterSet::default(); self.function.blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for &number in self.ways.order.iter().rev() {
                let now = self.live_before(number, &live);
                changed |= mem::replace(&mut live[number], now) != now;
            }
        }
        live
    }

    fn live_before(&self, number: usize, live: &[RegisterSet]) -> RegisterSet {
        let block = &self.function.blocks[number];
        let passed = RegisterSet::ALL.difference(unpinned());
        let mut now = match &block.terminator {
            // Registers that do not change host registers.
            Terminator::Call { .. }
            | Terminator::CallIndirect { .. }
            | Terminator::Return
            | Terminator::JumpIndirect
            | Terminator::Trap
            | Terminator::Illegal { .. } => passed,
            _ => RegisterSet::default(),
        };
        if !is_call(block) {
            for &next in &self.ways.after[number] {
                now = now.union(live[next]);
            }
        }
        for (_, instruction) in block.instructions.iter().rev() {
            let (read, written) = uses(instruction);
            now = match leaves_code(instruction, &self.unit.features) {
                true => passed,
                false => now.difference(written).union(read),
            };
        }
        now
    }

    /// Registers that have different values on the ways to each block, as far as they
    /// were written in different places.
    fn merged(&self) -> Vec<RegisterSet> {
        let count = self.function.blocks.len();
        // Where a register was written: in a block, or by a merge before it.
        let mut places = vec![None::<Box<[u32; 64]>>; count];
        let mut merged = vec![0u64; count];
        let mut changed = true;
        while changed {
            changed = false;
            for &number in &self.ways.order {
                let mut at_start: Option<[u32; 64]> = None;
                for &block in &self.ways.before[number] {
                    let Some(places) = &places[block] else {
                        continue;
                    };
                    let known = at_start.get_or_insert(**places);
                    for register in 0..64 {
                        if known[register] != places[register] {
                            merged[number] |= 1 << register;
                        }
                    }
                }
                let mut now = at_start.unwrap_or([0; 64]);
                let written = written_in(&self.function.blocks[number]);
                let written = u64::from(written.f) << 32 | u64::from(written.x);
                for (register, place) in now.iter_mut().enumerate() {
                    if written >> register & 1 != 0 {
                        *place = 2 * number as u32 + 2;
                    } else if merged[number] >> register & 1 != 0 {
                        *place = 2 * number as u32 + 1;
                    }
                }
                let now = Some(Box::new(now));
                changed |= places[number] != now;
                places[number] = now;
            }
        }
        let set = |bits: u64| RegisterSet {
            x: bits as u32,
            f: (bits >> 32) as u32,
        };
        merged.into_iter().map(set).collect()
    }

    /// Registers that are dirty at the end of each block if there is no checkpoint
    /// between blocks.
    fn dirty_out(&self) -> Vec<RegisterSet> {
        let mut out = vec![RegisterSet::default(); self.function.blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for &number in &self.ways.order {
                let before = self.ways.before[number].iter();
                let dirty =
                    before.fold(RegisterSet::default(), |set, &block| set.union(out[block]));
                let now = dirty_out(&self.function.blocks[number], dirty, self.unit);
                changed |= mem::replace(&mut out[number], now) != now;
            }
        }
        out
    }
}

fn written_in(block: &Block) -> RegisterSet {
    let instructions = block.instructions.iter();
    instructions.fold(RegisterSet::default(), |set, (_, instruction)| {
        set.union(uses(instruction).1)
    })
}
