//! Register residency: the unpinned registers that a block finds in their variables. These are
//! *resident*. A resident register is *dirty* if it was changed only in its variable, so that its
//! word in the `Hart` structure is out of date.
//!
//! After a call an unpinned register is in the `Hart` structure only. It is loaded where the guest
//! reads it, not before: a function with more of them than the host has registers would load all of
//! them after each call, only to spill most of them to the host's stack. At a join where some
//! predecessors have loaded the register, the other predecessors load it before the join
//!
//! - if it is dirty on all of them,
//! - if all code from there on reads it before the next call, so that no load is wasted,
//! - at the header of a loop without calls that uses it, which would load it in each iteration.
//!
//! Otherwise it is loaded again where it is read. A register that is dirty on only some of the
//! paths is stored on these paths, so that the other paths need not have it. But a loop without
//! calls keeps the registers that it changes in variables.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use super::function_summary::{FunctionSummary, SharedSwitch};
use super::register_set::{RegisterSet, unpinned};
use crate::cfg::Terminator;

/// A set of registers at the start of each block, and in each shared switch.
#[derive(Debug, Default)]
pub(super) struct RegisterSets {
    at_start: HashMap<u64, RegisterSet>,
    in_switches: BTreeMap<Vec<u64>, RegisterSet>,
}

impl RegisterSets {
    fn new(
        summary: &FunctionSummary<'_>,
        blocks: Vec<RegisterSet>,
        switches: Vec<RegisterSet>,
    ) -> Self {
        let starts = summary.function.blocks.iter().map(|block| block.start);
        let targets = summary.switches.iter().map(|switch| switch.targets.clone());
        Self {
            at_start: starts.zip(blocks).collect(),
            in_switches: targets.zip(switches).collect(),
        }
    }

    /// Returns the set at the start of the block at `pc`.
    pub(super) fn at_start(&self, pc: u64) -> RegisterSet {
        self.at_start.get(&pc).copied().unwrap_or_default()
    }

    /// Returns the set in the switch that tables with these targets share.
    pub(super) fn in_switch(&self, targets: &[u64]) -> RegisterSet {
        self.in_switches.get(targets).copied().unwrap_or_default()
    }
}

/// Returns the unpinned registers that are dirty and `needed`.
pub(super) fn dirty(
    summary: &FunctionSummary<'_>,
    needed: impl Fn(u64) -> RegisterSet,
) -> RegisterSets {
    let blocks = summary.function.blocks.iter();
    let needed: Vec<RegisterSet> = blocks.map(|block| needed(block.start)).collect();
    let mut dirty = vec![unpinned(); needed.len()];
    let mut switches = vec![unpinned(); summary.switches.len()];
    let mut changed = true;
    while changed {
        changed = false;
        let after = |number: usize, dirty: &[RegisterSet]| {
            summary.blocks[number].dirty_after(dirty[number])
        };
        for &number in &summary.graph.order {
            let mut now = summary.entered_with(number).unwrap_or_else(unpinned);
            for &pred in &summary.graph.preds[number] {
                now = now.intersection(match summary.switch_of.get(&pred) {
                    Some(&switch) => switches[switch],
                    None => after(pred, &dirty),
                });
            }
            if let Some(quiet) = summary.loops.get(&number) {
                now = now.union(quiet.writes);
            }
            let now = now.intersection(needed[number]);
            changed |= mem::replace(&mut dirty[number], now) != now;
        }
        for (number, switch) in summary.switches.iter().enumerate() {
            let users = switch.users.iter().map(|&user| after(user, &dirty));
            let now = users.fold(unpinned(), RegisterSet::intersection);
            changed |= mem::replace(&mut switches[number], now) != now;
        }
    }
    RegisterSets::new(summary, dirty, switches)
}

/// Returns the unpinned registers that are resident, given the `dirty` and `live` registers at the
/// start of each block.
pub(super) fn resident(
    summary: &FunctionSummary<'_>,
    dirty: impl Fn(u64) -> RegisterSet,
    live: impl Fn(u64) -> RegisterSet,
) -> RegisterSets {
    let blocks = &summary.function.blocks;
    let each = |find: &dyn Fn(u64) -> RegisterSet| {
        let sets = blocks.iter().map(|block| find(block.start));
        sets.map(|set| set.intersection(unpinned())).collect()
    };
    let search = Search {
        summary,
        dirty: each(&dirty),
        live: each(&live),
        read_later: read_later(summary),
    };
    let mut resident = vec![unpinned(); blocks.len()];
    let mut switches = vec![unpinned(); summary.switches.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &number in &summary.graph.order {
            let now = search.at_start(number, &resident, &switches);
            changed |= mem::replace(&mut resident[number], now) != now;
        }
        for (number, switch) in summary.switches.iter().enumerate() {
            let now = search.in_switch(switch, &resident);
            changed |= mem::replace(&mut switches[number], now) != now;
        }
    }
    RegisterSets::new(summary, resident, switches)
}

struct Search<'s> {
    summary: &'s FunctionSummary<'s>,
    dirty: Vec<RegisterSet>,
    live: Vec<RegisterSet>,
    /// Registers that all code from the start of each block reads before the next call.
    read_later: Vec<RegisterSet>,
}

impl Search<'_> {
    fn after(&self, number: usize, resident: &[RegisterSet]) -> RegisterSet {
        self.summary.blocks[number].resident_after(resident[number])
    }

    fn at_start(
        &self,
        number: usize,
        resident: &[RegisterSet],
        switches: &[RegisterSet],
    ) -> RegisterSet {
        let entered = self.summary.entered_with(number);
        let mut all = entered.unwrap_or_else(unpinned);
        let mut some = entered.unwrap_or_default();
        for &pred in &self.summary.graph.preds[number] {
            let resident = match self.summary.switch_of.get(&pred) {
                Some(&switch) => switches[switch],
                None => self.after(pred, resident),
            };
            all = all.intersection(resident);
            some = some.union(resident);
        }
        let mut useful = all.union(some.intersection(self.read_later[number]));
        if let Some(quiet) = self.summary.loops.get(&number) {
            useful = useful.union(quiet.uses);
        }
        useful
            .intersection(self.live[number])
            .union(self.dirty[number])
    }

    /// In a shared switch, a register is resident if any of the targets finds it dirty, so that no
    /// edge from the switch has to load it.
    fn in_switch(&self, switch: &SharedSwitch, resident: &[RegisterSet]) -> RegisterSet {
        let users = switch.users.iter().map(|&user| self.after(user, resident));
        let all = users.fold(unpinned(), RegisterSet::intersection);
        let targets = switch
            .users
            .first()
            .map(|&user| &self.summary.graph.succs[user]);
        let targets = targets.into_iter().flatten();
        let dirty = targets.map(|&target| self.dirty[target]);
        dirty.fold(all, RegisterSet::union)
    }
}

fn read_later(function: &FunctionSummary<'_>) -> Vec<RegisterSet> {
    let mut later = vec![unpinned(); function.function.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &number in function.graph.order.iter().rev() {
            let summary = &function.blocks[number];
            let mut now = summary.reads;
            if summary.passes {
                let after = read_after(function, number, &later);
                now = now.union(after.difference(summary.writes));
            }
            changed |= mem::replace(&mut later[number], now) != now;
        }
    }
    later
}

fn read_after(function: &FunctionSummary<'_>, number: usize, later: &[RegisterSet]) -> RegisterSet {
    let terminator = &function.function.blocks[number].terminator;
    let leaves = terminator.edges().any(|edge| !edge.is_internal());
    let after = &function.graph.succs[number];
    if leaves || after.is_empty() || matches!(terminator, Terminator::JumpTable(_)) {
        return RegisterSet::default();
    }
    let sets = after.iter().map(|&next| later[next]);
    sets.fold(unpinned(), RegisterSet::intersection)
}

#[cfg(test)]
mod tests;
