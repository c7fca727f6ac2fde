//! Placement of loads and stores of the `Hart` structure's registers: translated code keeps them in
//! SSA values between calls.

use std::collections::{HashMap, HashSet};

use super::checkpoints::{
    Before, before_each, checkpoint_blocks, ends_checkpoint, ends_in_checkpoint, tracked,
};
use super::function_summary::{FunctionSummary, exchanged};
use super::liveness::{Inside, Liveness};
use super::register_set::{PRESERVED, RegisterSet, unpinned, uses};
use super::residency::{self, RegisterSets};
use super::returns::is_plain;
use super::unit::Unit;
use crate::cfg::{Block, Function, Terminator};
use crate::technique::Technique;

/// The locations of a function's registers at the start of each block, and the registers needed
/// there. Blocks are named by their start addresses.
#[derive(Debug)]
pub struct RegisterFlow<'u> {
    unit: &'u Unit,
    entry: u64,
    plain: bool,
    /// Registers that something reads later, here or in other functions.
    needed_in: Inside,
    /// Tracked registers whose `Hart` word may be out of date at the block's start.
    dirty_in: HashMap<u64, RegisterSet>,
    /// Dirty registers when registers are stored where paths join.
    late: Option<RegisterSets>,
    /// Unpinned registers whose value is still needed at the block's start.
    live_in: HashMap<u64, RegisterSet>,
    /// Blocks where no register is dirty at the start, because the edges to them store all.
    checkpoints: HashSet<u64>,
    /// Unpinned registers that are resident: their values are in their variables.
    resident: Option<RegisterSets>,
}

impl<'u> RegisterFlow<'u> {
    /// Analyses a function.
    #[must_use]
    pub fn of(function: &Function, unit: &'u Unit) -> Self {
        let mut flow = Self {
            unit,
            entry: function.entry,
            plain: is_plain(function),
            needed_in: unit.liveness.inside(function, &unit.features),
            dirty_in: HashMap::new(),
            live_in: HashMap::new(),
            checkpoints: checkpoint_blocks(function, unit),
            late: None,
            resident: None,
        };
        let late = unit.disabled.allows(Technique::LateLoads);
        let summary = late.then(|| FunctionSummary::of(function, unit));
        match &summary {
            // Between two checkpoints nothing may change the `Hart` structure.
            Some(summary) if !unit.precise => {
                flow.late = Some(residency::dirty(summary, |pc| flow.needed_in(pc)));
            }
            _ => flow.find_dirty(function),
        }
        flow.find_live(function);
        flow.resident = summary.map(|summary| {
            let dirty = |pc| flow.dirty_in(pc);
            residency::resident(&summary, dirty, |pc| flow.live_in(pc))
        });
        flow
    }

    /// Registers that something reads after the start of the block at `pc`, here or
    /// in other functions; all of them in the precise variant, and in a file with restartable
    /// sequences.
    #[must_use]
    pub fn needed_in(&self, pc: u64) -> RegisterSet {
        match self.unit.precise || self.unit.has_sequences {
            true => RegisterSet::ALL,
            false => self.needed_in.needed(pc),
        }
    }

    /// Registers whose `Hart` word may be out of date at the start of the block at
    /// `pc`; without those that never need be up to date.
    #[must_use]
    pub fn dirty_in(&self, pc: u64) -> RegisterSet {
        match &self.late {
            Some(late) => late.at_start(pc),
            None => self.dirty_in.get(&pc).copied().unwrap_or_default(),
        }
    }

    /// As [`dirty_in`](Self::dirty_in), in the switch that tables with these targets share.
    #[must_use]
    pub fn dirty_in_switch(&self, targets: &[u64]) -> RegisterSet {
        match &self.late {
            Some(late) => late.in_switch(targets),
            None => self.any_of(targets, |pc| self.dirty_in(pc)),
        }
    }

    /// Registers that an edge to the block at `pc` stores if they are `dirty` before it, because
    /// other edges to the block have them only in the `Hart` structure.
    #[must_use]
    pub fn stored_before(&self, pc: u64, dirty: RegisterSet) -> RegisterSet {
        match &self.late {
            Some(late) => dirty
                .difference(late.at_start(pc))
                .intersection(self.needed_in(pc)),
            None => RegisterSet::default(),
        }
    }

    /// As [`stored_before`](Self::stored_before), before the switch that tables with these targets
    /// share.
    #[must_use]
    pub fn stored_before_switch(&self, targets: &[u64], dirty: RegisterSet) -> RegisterSet {
        match &self.late {
            Some(late) => dirty
                .difference(late.in_switch(targets))
                .intersection(self.any_of(targets, |pc| self.needed_in(pc))),
            None => RegisterSet::default(),
        }
    }

    fn any_of(&self, targets: &[u64], find: impl Fn(u64) -> RegisterSet) -> RegisterSet {
        let sets = targets.iter().map(|&target| find(target));
        sets.fold(RegisterSet::default(), RegisterSet::union)
    }

    /// Whether the edges to the block at `pc` have a checkpoint if registers are dirty on them.
    #[must_use]
    pub fn is_checkpoint(&self, pc: u64) -> bool {
        self.checkpoints.contains(&pc)
    }

    /// Unpinned registers whose value is needed at the start of the block at `pc`.
    #[must_use]
    pub fn live_in(&self, pc: u64) -> RegisterSet {
        self.live_in.get(&pc).copied().unwrap_or_default()
    }

    /// Unpinned registers that are resident at the start of the block at `pc`. The other registers
    /// that the block needs are in the `Hart` structure only.
    #[must_use]
    pub fn resident_in(&self, pc: u64) -> RegisterSet {
        match &self.resident {
            Some(resident) => resident.at_start(pc),
            None => self.live_in(pc),
        }
    }

    /// As [`resident_in`](Self::resident_in), in the switch that tables with these targets share.
    #[must_use]
    pub fn resident_in_switch(&self, targets: &[u64]) -> RegisterSet {
        match &self.resident {
            Some(resident) => resident.in_switch(targets),
            None => self.any_of(targets, |pc| self.live_in(pc)),
        }
    }

    /// Unpinned registers that a block loads where it reads them.
    #[must_use]
    pub fn loaded_in(&self, block: &Block) -> RegisterSet {
        let mut resident = self.resident_in(block.start);
        let mut loaded = RegisterSet::default();
        for (_, instruction) in &block.instructions {
            if self.unit.features.leaves_code(instruction) {
                break;
            }
            let (read, written) = uses(instruction);
            loaded = loaded.union(read.intersection(unpinned()).difference(resident));
            resident = resident.union(read).union(written);
        }
        loaded
    }

    fn find_dirty(&mut self, function: &Function) {
        let arguments = self.unit.conventions.of_callee(self.entry).added();
        self.dirty_in.insert(self.entry, arguments);
        let mut work: Vec<&Block> = function.blocks.iter().rev().collect();
        let mut seen = HashMap::new();
        while let Some(block) = work.pop() {
            let out = dirty_out(block, self.dirty_in(block.start), self.unit);
            if seen.insert(block.start, out) == Some(out) {
                continue;
            }
            for edge in block.terminator.edges().filter(|edge| edge.is_internal()) {
                if self.is_checkpoint(edge.target) {
                    continue;
                }
                let before = self.dirty_in(edge.target);
                let after = before.union(out);
                self.dirty_in.insert(edge.target, after);
                if after != before {
                    work.extend(function.block(edge.target));
                }
            }
        }
    }

    fn find_live(&mut self, function: &Function) {
        let mut changed = true;
        while changed {
            changed = false;
            for block in function.blocks.iter().rev() {
                let live = self.live_before(block);
                changed |= self.live_in.insert(block.start, live) != Some(live);
            }
        }
    }

    /// The live registers at the start of `block`, from its successors' live registers.
    fn live_before(&self, block: &Block) -> RegisterSet {
        self.live_after_each(block)
            .first()
            .copied()
            .unwrap_or_default()
    }

    /// Live unpinned registers: element 0 before the first instruction, element
    /// n + 1 after instruction n.
    #[must_use]
    pub fn live_after_each(&self, block: &Block) -> Vec<RegisterSet> {
        let unit = self.unit;
        let dirty = dirty_before_each(block, self.dirty_in(block.start), unit);
        let checkpoints = before_each(block, unit);
        let mut live = self.live_at_end(block, dirty[block.instructions.len()]);
        let mut result = vec![live];
        for (index, (_, instruction)) in block.instructions.iter().enumerate().rev() {
            let (read, written) = uses(instruction);
            let last = index + 1 == block.instructions.len();
            live = if unit.features.leaves_code(instruction) {
                // Dirty registers are stored before; all needed registers are loaded again later.
                dirty[index]
            } else if last && block.terminator.is_call() {
                let needed = self.needed_by_callee(block).difference(written);
                let taken = exchanged(block, unit);
                dirty[index].intersection(needed).union(read).union(taken)
            } else if checkpoints[index] != Before::Nothing {
                live.difference(written).union(read).union(dirty[index])
            } else {
                live.difference(written).union(read)
            };
            // Pinned registers are always in their variables.
            live = live.intersection(unpinned());
            result.push(live);
        }
        result.reverse();
        result
    }

    fn live_at_end(&self, block: &Block, dirty: RegisterSet) -> RegisterSet {
        let mut live = RegisterSet::default();
        for edge in block.terminator.edges() {
            live = live.union(
                match (edge.is_internal(), self.is_checkpoint(edge.target)) {
                    (true, false) => self
                        .live_in(edge.target)
                        .union(self.stored_before(edge.target, dirty)),
                    (true, true) => self.live_in(edge.target).union(dirty),
                    (false, _) => dirty.intersection(self.unit.liveness.at_entry(edge.target)),
                },
            );
        }
        match &block.terminator {
            Terminator::Return => {
                let results = self.unit.conventions.of_callee(self.entry).added();
                let stored = dirty.intersection(self.needed_at_return());
                live.union(stored).union(results)
            }
            Terminator::JumpIndirect
            | Terminator::JumpTable(_)
            | Terminator::Trap
            | Terminator::Illegal { .. } => live.union(dirty),
            _ => live,
        }
    }

    /// Registers without a useful value at `return_to` after a call, of `callee` if it is known.
    #[must_use]
    pub fn lost(&self, callee: Option<u64>, return_to: u64) -> RegisterSet {
        self.unit.liveness.lost(callee, &self.needed_in, return_to)
    }

    /// Registers that may be needed after the function's return.
    #[must_use]
    pub fn needed_at_return(&self) -> RegisterSet {
        match self.plain {
            true => self.unit.liveness.at_return(self.entry),
            false => RegisterSet::ALL,
        }
    }

    /// Registers that something after a block may read.
    #[must_use]
    pub fn needed_at_end(&self, block: &Block) -> RegisterSet {
        let liveness = &self.unit.liveness;
        match &block.terminator {
            Terminator::FallThrough { .. }
            | Terminator::Jump { .. }
            | Terminator::Branch { .. } => {
                let edges = block.terminator.edges();
                edges.fold(RegisterSet::default(), |all, edge| {
                    all.union(match edge.is_internal() {
                        true => self.needed_in(edge.target),
                        false => liveness.at_entry(edge.target),
                    })
                })
            }
            Terminator::Call { target, .. } => liveness.at_entry(*target),
            Terminator::Return => self.needed_at_return(),
            _ => RegisterSet::ALL,
        }
    }

    /// Registers that something reads after instruction `from` - 1 of a block, before they are
    /// written.
    fn needed_before(&self, block: &Block, from: usize) -> RegisterSet {
        let end = self.needed_at_end(block);
        let rest = block.instructions[from..].iter().rev();
        rest.fold(end, |needed, (_, instruction)| {
            let (read, written) = uses(instruction);
            match self.unit.features.leaves_code(instruction) {
                true => RegisterSet::ALL,
                false => needed.difference(written).union(read),
            }
        })
    }

    /// Registers that the function called by a block needs.
    fn needed_by_callee(&self, block: &Block) -> RegisterSet {
        match block.terminator {
            Terminator::Call { target, .. } => self.unit.liveness.at_entry(target),
            _ => RegisterSet::ALL,
        }
    }
}

/// Dirty registers before each instruction, and at the end of the block. A call's
/// clean-up is not included in the last element.
fn dirty_before_each(block: &Block, mut dirty: RegisterSet, unit: &Unit) -> Vec<RegisterSet> {
    let mut result = vec![dirty];
    for ((_, instruction), before) in block.instructions.iter().zip(before_each(block, unit)) {
        let written = uses(instruction).1.intersection(tracked(unit));
        let clean = unit.features.leaves_code(instruction) || ends_checkpoint(instruction, unit);
        dirty = if clean {
            RegisterSet::default()
        } else if before != Before::Nothing {
            written
        } else {
            dirty.union(written)
        };
        result.push(dirty);
    }
    result
}

fn dirty_out(block: &Block, dirty: RegisterSet, unit: &Unit) -> RegisterSet {
    if block.terminator.is_call() || ends_in_checkpoint(block, unit) {
        return exchanged(block, unit);
    }
    let all = dirty_before_each(block, dirty, unit);
    all.last().copied().unwrap_or_default()
}

/// Registers that the function reads after instruction `from` - 1 of a block, before they are written and before
/// the next call.
fn read_before(function: &Function, block: &Block, from: usize, unit: &Unit) -> RegisterSet {
    let inside = Liveness::default().inside(function, &unit.features);
    let next = match block.terminator.is_call() {
        true => RegisterSet::default(),
        false => {
            let edges = block.terminator.edges().filter(|edge| edge.is_internal());
            edges.fold(RegisterSet::default(), |all, edge| {
                all.union(inside.read(edge.target))
            })
        }
    };
    let rest = block.instructions[from..].iter().rev();
    rest.fold(next, |set, (_, instruction)| {
        let (read, written) = uses(instruction);
        set.difference(written).union(read)
    })
}

/// Locations of registers; unpinned registers in neither set are in their variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Whereabouts {
    /// In the `Hart` structure.
    pub in_hart: RegisterSet,
    /// Possibly unavailable: nothing reads them any more, or an earlier call may have changed them.
    pub unknown: RegisterSet,
}

/// The locations of registers before the instruction at `pc`.
#[must_use]
pub fn whereabouts(function: &Function, pc: u64, unit: &Unit) -> Whereabouts {
    let flow = RegisterFlow::of(function, unit);
    let find = |block: &&Block| block.instructions.iter().position(|entry| entry.0 == pc);
    let Some(block) = function.blocks.iter().find(|block| find(block).is_some()) else {
        return Whereabouts::default();
    };
    let position = find(&block).unwrap_or_default();
    let needed = flow.needed_before(block, position);
    let changed = dirty_before_each(block, flow.dirty_in(block.start), unit)[position];
    // A caller passes no others, and a caller in another file may pass anything in the others.
    let meant = read_before(function, block, position, unit).union(PRESERVED);
    let known = needed.intersection(meant);
    Whereabouts {
        in_hart: unpinned().difference(changed).intersection(known),
        unknown: RegisterSet::ALL.difference(known),
    }
}
