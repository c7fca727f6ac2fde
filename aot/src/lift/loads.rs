//! Which loads have to stay in the code although LLVM may find no use for their value: a load
//! of what is not mapped is a fault all the same.
//!
//! In the normal variant that is a load whose value is overwritten in its block; one that goes
//! missing otherwise only loses the report of a fault that ends the program.
//!
//! In the precise variant it is each load whose value is not stored at a checkpoint as it is,
//! unless a word that takes in all its bytes is loaded before the next checkpoint
//! ([`words`](super::words)): both fault, and the interpreter does the loads one by one.
//! Arithmetic with a value is not enough, as LLVM loads no more of a word than it needs.

use std::collections::{HashMap, HashSet};

use hartline_isa::{ImmediateOp, Instruction, Operation};
use inkwell::values::BasicValueEnum;

use super::Unit;
use super::checkpoints::{Before, before_each};
use super::function::Lifter;
use super::ir::Ir;
use super::precise::ends_checkpoint;
use super::registers::{RegisterSet, leaves_code, uses};
use super::words::Extent;
use crate::cfg::{Block, Function, Terminator};

/// Of a function of the precise variant: registers whose value at the start of a block is in
/// the `Hart` structure at the next checkpoint, whichever way the guest goes.
#[derive(Debug, Default)]
pub(super) struct Stored(HashMap<u64, RegisterSet>);

impl Stored {
    /// `checkpoints` are the blocks that have one on each way to them.
    pub(super) fn of(function: &Function, checkpoints: &HashSet<u64>, unit: &Unit) -> Self {
        let mut stored = Self::default();
        let mut changed = unit.precise;
        while changed {
            changed = false;
            for block in function.blocks.iter().rev() {
                let end = stored.at_end(block, checkpoints);
                let start = before_all(block, end, unit, |_, _| ());
                changed |= stored.0.insert(block.start, start) != Some(start);
            }
        }
        stored
    }

    fn at_end(&self, block: &Block, checkpoints: &HashSet<u64>) -> RegisterSet {
        match &block.terminator {
            Terminator::FallThrough { .. }
            | Terminator::Jump { .. }
            | Terminator::Branch { .. } => {}
            // It writes registers of its own.
            Terminator::TopByte(_) => return RegisterSet::default(),
            // All others end in one, or leave for the runtime.
            _ => return RegisterSet::ALL,
        }
        let edges = block.terminator.edges();
        edges.fold(RegisterSet::ALL, |all, edge| {
            let stops = !edge.is_internal() || checkpoints.contains(&edge.target);
            match (stops, self.0.get(&edge.target)) {
                (true, _) => all,
                (false, Some(&stored)) => all.intersection(stored),
                (false, None) => RegisterSet::default(),
            }
        })
    }

    /// For each instruction of a block, whether what it writes is not stored.
    pub(super) fn lost(&self, block: &Block, checkpoints: &HashSet<u64>, unit: &Unit) -> Vec<bool> {
        let mut result = vec![false; block.instructions.len()];
        let end = self.at_end(block, checkpoints);
        before_all(block, end, unit, |index, stored| {
            let written = uses(&block.instructions[index].1).1;
            let nothing = written == RegisterSet::default();
            result[index] = nothing || written.difference(stored) != RegisterSet::default();
        });
        result
    }
}

/// What is stored of the registers at the start of a block if `stored` is at its end. `see` is
/// told what is stored after each instruction.
fn before_all(
    block: &Block,
    mut stored: RegisterSet,
    unit: &Unit,
    mut see: impl FnMut(usize, RegisterSet),
) -> RegisterSet {
    let checkpoints = before_each(block, unit);
    for (index, (_, instruction)) in block.instructions.iter().enumerate().rev() {
        if ends_checkpoint(instruction, unit) {
            stored = RegisterSet::ALL;
        }
        see(index, stored);
        let leaves = leaves_code(instruction, &unit.features);
        stored = match leaves || checkpoints[index] != Before::Nothing {
            true => RegisterSet::ALL,
            false => before(instruction, stored),
        };
    }
    stored
}

fn before(instruction: &Instruction, stored: RegisterSet) -> RegisterSet {
    let rest = stored.difference(uses(instruction).1);
    match instruction.operation() {
        // The result tells the operand.
        Operation::Immediate {
            op: ImmediateOp::Addi | ImmediateOp::Xori,
            rd,
            rs1,
            ..
        } if stored.x >> rd.index() & 1 == 1 => RegisterSet {
            x: rest.x | 1 << rs1.index(),
            ..rest
        },
        _ => rest,
    }
}

/// For each instruction of a block, whether it is a load whose value nothing in
/// the block reads before it is overwritten.
pub(super) fn dead_loads(block: &Block, unit: &Unit) -> Vec<bool> {
    let everything = RegisterSet { x: !0, f: !0 };
    let mut live = everything;
    let mut result = Vec::with_capacity(block.instructions.len());
    for (_, instruction) in block.instructions.iter().rev() {
        let (read, written) = uses(instruction);
        let dead = written.intersection(live) == RegisterSet::default();
        result.push(instruction.is_load() && dead);
        live = if leaves_code(instruction, &unit.features) || instruction.is_control_transfer() {
            everything
        } else {
            live.difference(written).union(read)
        };
    }
    result.reverse();
    result
}

fn may_raise_flags(instruction: &Instruction) -> bool {
    let (read, written) = uses(instruction);
    read.f | written.f != 0 && !instruction.is_load() && !instruction.is_store()
}

/// A load of the block that is being lifted.
#[derive(Debug)]
struct Load<'ctx> {
    value: BasicValueEnum<'ctx>,
    /// What it reads, if that is known.
    extent: Option<Extent>,
    /// Nothing else makes LLVM keep it.
    lost: bool,
}

/// Loads of the block that is being lifted of which it is not decided whether they have to stay.
#[derive(Debug, Default)]
pub(super) struct Loads<'ctx>(Vec<Load<'ctx>>);

impl<'ctx> Loads<'ctx> {
    fn keep(&mut self, ir: &Ir<'ctx>, which: impl Fn(&Load<'ctx>) -> bool) {
        for load in self.0.drain(..).filter(which) {
            ir.keep(load.value);
        }
    }
}

impl<'ctx> Lifter<'_, 'ctx> {
    /// Notes the load that gave `value`.
    pub(super) fn note_load(&mut self, value: BasicValueEnum<'ctx>) {
        if self.unit.precise {
            let lost = self.keep_load;
            self.loads.0.push(Load {
                value,
                extent: None,
                lost,
            });
        } else if self.keep_load {
            self.ir.keep(value);
        }
    }

    /// Says what the load noted last reads: loads of parts of that need not stay.
    pub(super) fn note_extent(&mut self, extent: Extent) {
        let Some(mut last) = self.loads.0.pop() else {
            return;
        };
        let is_part = |load: &Load<'_>| load.extent.is_some_and(|part| extent.covers(part));
        self.loads.0.retain(|load| !is_part(load));
        last.extent = Some(extent);
        self.loads.0.push(last);
    }

    /// Before an instruction that raises exception flags: loads before it come first, as the
    /// flags have to be without its own if one faults.
    pub(super) fn finish_loads_before_flags(&mut self, instruction: &Instruction) {
        if may_raise_flags(instruction) {
            self.loads.keep(self.ir, |_| true);
        }
    }

    /// At the end of the block. LLVM may join it with one that follows, if it finds out that
    /// the other one does not.
    pub(super) fn finish_loads(&mut self, block: &Block) {
        let edges = block.terminator.edges();
        let joined = edges
            .filter(|edge| edge.is_internal() && !self.flow.is_checkpoint(edge.target))
            .filter_map(|edge| self.function.block(edge.target));
        let before_flags = joined
            .flat_map(|block| &block.instructions)
            .any(|(_, instruction)| may_raise_flags(instruction));
        self.loads.keep(self.ir, |load| load.lost || before_flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lift::checkpoints::checkpoint_blocks;
    use crate::lift::testing::{block, forward, function};

    const LD_A1: u32 = 0x0005_3583;
    const LI_A1: u32 = 0x0010_0593;
    const MV_A2_A1: u32 = 0x0005_8613;
    const ANDI_A2_A1: u32 = 0x0ff5_f613;
    const SD_A1: u32 = 0x00b5_3023;
    const BEQZ_A0: u32 = 0x0005_0463;
    const RET: u32 = 0x0000_8067;

    /// Whether a load at the start of these blocks is lost.
    fn is_lost(blocks: Vec<Block>) -> bool {
        let (function, unit) = function(blocks, true);
        let checkpoints = checkpoint_blocks(&function, &unit);
        let stored = Stored::of(&function, &checkpoints, &unit);
        stored.lost(&function.blocks[0], &checkpoints, &unit)[0]
    }

    fn straight(after: &[u32]) -> bool {
        let words = [&[LD_A1], after].concat();
        is_lost(vec![block(0x1000, &words, Terminator::Return)])
    }

    /// Two ways after the load.
    fn forked(left: &[u32], right: &[u32]) -> bool {
        let branch = Terminator::Branch {
            taken: forward(0x1100),
            not_taken: forward(0x1200),
        };
        is_lost(vec![
            block(0x1000, &[LD_A1, BEQZ_A0], branch),
            block(0x1100, &[left, &[RET]].concat(), Terminator::Return),
            block(0x1200, &[right, &[RET]].concat(), Terminator::Return),
        ])
    }

    #[test]
    fn what_a_checkpoint_stores_is_not_lost() {
        assert!(!straight(&[SD_A1, RET]));
        assert!(!straight(&[RET]));
        assert!(!straight(&[SD_A1, LI_A1, RET]));
        assert!(straight(&[LI_A1, SD_A1, RET]));
    }

    #[test]
    fn a_copy_is_as_good_but_no_part() {
        assert!(!straight(&[MV_A2_A1, LI_A1, SD_A1, RET]));
        assert!(straight(&[ANDI_A2_A1, LI_A1, SD_A1, RET]));
    }

    #[test]
    fn all_ways_must_store_it() {
        assert!(!forked(&[SD_A1], &[]));
        assert!(!forked(&[SD_A1, LI_A1], &[]));
        assert!(forked(&[LI_A1], &[SD_A1]));
        assert!(forked(&[SD_A1], &[LI_A1]));
    }
}
