//! Which registers that are not passed in host registers a block finds in its variables.
//!
//! After a call such a register is in the `Hart` structure only. It is loaded where the guest
//! reads it, not before: a function with more of them than the host has registers would load
//! all after each call to put most of them onto the host's stack. Where ways meet of which
//! some have loaded the register, the others load it before the meeting
//!
//! - if it is changed in its variable on all of them,
//! - if all code from there on reads it before the next call, so that no load is in vain,
//! - at the header of a loop without calls that uses it, which would load it each round.
//!
//! Else it is loaded again where it is read. A register that is changed on some of the ways
//! only is stored on these, so that the other ways need not have it. But a loop without calls
//! keeps in variables what it changes.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use super::registers::{RegisterSet, unpinned};
use super::shape::{Shape, SharedSwitch};
use crate::cfg::Terminator;

/// A set of registers at the start of each block, and in each shared switch.
#[derive(Debug, Default)]
pub(super) struct Places {
    at_start: HashMap<u64, RegisterSet>,
    in_switches: BTreeMap<Vec<u64>, RegisterSet>,
}

impl Places {
    fn new(shape: &Shape<'_>, blocks: Vec<RegisterSet>, switches: Vec<RegisterSet>) -> Self {
        let starts = shape.function.blocks.iter().map(|block| block.start);
        let targets = shape.switches.iter().map(|switch| switch.targets.clone());
        Self {
            at_start: starts.zip(blocks).collect(),
            in_switches: targets.zip(switches).collect(),
        }
    }

    /// At the start of the block at `pc`.
    pub(super) fn at_start(&self, pc: u64) -> RegisterSet {
        self.at_start.get(&pc).copied().unwrap_or_default()
    }

    /// In the switch that tables with these targets share.
    pub(super) fn in_switch(&self, targets: &[u64]) -> RegisterSet {
        self.in_switches.get(targets).copied().unwrap_or_default()
    }
}

/// Unpinned registers that are changed in their variables only, of those that are `needed`.
pub(super) fn dirty(shape: &Shape<'_>, needed: impl Fn(u64) -> RegisterSet) -> Places {
    let blocks = shape.function.blocks.iter();
    let needed: Vec<RegisterSet> = blocks.map(|block| needed(block.start)).collect();
    let mut dirty = vec![unpinned(); needed.len()];
    let mut switches = vec![unpinned(); shape.switches.len()];
    let mut changed = true;
    while changed {
        changed = false;
        let after = |number: usize, dirty: &[RegisterSet]| {
            shape.summaries[number].dirty_after(dirty[number])
        };
        for &number in &shape.ways.order {
            let mut now = shape.entered_with(number).unwrap_or_else(unpinned);
            for &way in &shape.ways.before[number] {
                now = now.intersection(match shape.switch_of.get(&way) {
                    Some(&switch) => switches[switch],
                    None => after(way, &dirty),
                });
            }
            if let Some(quiet) = shape.loops.get(&number) {
                now = now.union(quiet.writes);
            }
            let now = now.intersection(needed[number]);
            changed |= mem::replace(&mut dirty[number], now) != now;
        }
        for (number, switch) in shape.switches.iter().enumerate() {
            let users = switch.users.iter().map(|&user| after(user, &dirty));
            let now = users.fold(unpinned(), RegisterSet::intersection);
            changed |= mem::replace(&mut switches[number], now) != now;
        }
    }
    Places::new(shape, dirty, switches)
}

/// Unpinned registers in their variables, if at the start of blocks `dirty` ones are changed
/// there only and `live` ones are needed.
pub(super) fn held(
    shape: &Shape<'_>,
    dirty: impl Fn(u64) -> RegisterSet,
    live: impl Fn(u64) -> RegisterSet,
) -> Places {
    let blocks = &shape.function.blocks;
    let each = |find: &dyn Fn(u64) -> RegisterSet| {
        let sets = blocks.iter().map(|block| find(block.start));
        sets.map(|set| set.intersection(unpinned())).collect()
    };
    let search = Search {
        shape,
        dirty: each(&dirty),
        live: each(&live),
        read_later: read_later(shape),
    };
    let mut held = vec![unpinned(); blocks.len()];
    let mut switches = vec![unpinned(); shape.switches.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &number in &shape.ways.order {
            let now = search.at_start(number, &held, &switches);
            changed |= mem::replace(&mut held[number], now) != now;
        }
        for (number, switch) in shape.switches.iter().enumerate() {
            let now = search.in_switch(switch, &held);
            changed |= mem::replace(&mut switches[number], now) != now;
        }
    }
    Places::new(shape, held, switches)
}

struct Search<'s> {
    shape: &'s Shape<'s>,
    dirty: Vec<RegisterSet>,
    live: Vec<RegisterSet>,
    /// Registers that all code from the start of each block reads before the next call.
    read_later: Vec<RegisterSet>,
}

impl Search<'_> {
    fn after(&self, number: usize, held: &[RegisterSet]) -> RegisterSet {
        self.shape.summaries[number].held_after(held[number])
    }

    fn at_start(
        &self,
        number: usize,
        held: &[RegisterSet],
        switches: &[RegisterSet],
    ) -> RegisterSet {
        let entered = self.shape.entered_with(number);
        let mut all = entered.unwrap_or_else(unpinned);
        let mut some = entered.unwrap_or_default();
        for &way in &self.shape.ways.before[number] {
            let held = match self.shape.switch_of.get(&way) {
                Some(&switch) => switches[switch],
                None => self.after(way, held),
            };
            all = all.intersection(held);
            some = some.union(held);
        }
        let mut useful = all.union(some.intersection(self.read_later[number]));
        if let Some(quiet) = self.shape.loops.get(&number) {
            useful = useful.union(quiet.uses);
        }
        useful
            .intersection(self.live[number])
            .union(self.dirty[number])
    }

    /// In a shared switch everything is held that any of its targets finds dirty, so that no
    /// way from it has to load that.
    fn in_switch(&self, switch: &SharedSwitch, held: &[RegisterSet]) -> RegisterSet {
        let users = switch.users.iter().map(|&user| self.after(user, held));
        let all = users.fold(unpinned(), RegisterSet::intersection);
        let targets = switch
            .users
            .first()
            .map(|&user| &self.shape.ways.after[user]);
        let targets = targets.into_iter().flatten();
        let dirty = targets.map(|&target| self.dirty[target]);
        dirty.fold(all, RegisterSet::union)
    }
}

fn read_later(shape: &Shape<'_>) -> Vec<RegisterSet> {
    let mut later = vec![unpinned(); shape.function.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &number in shape.ways.order.iter().rev() {
            let summary = &shape.summaries[number];
            let mut now = summary.reads;
            if summary.passes {
                let after = read_after(shape, number, &later);
                now = now.union(after.difference(summary.writes));
            }
            changed |= mem::replace(&mut later[number], now) != now;
        }
    }
    later
}

fn read_after(shape: &Shape<'_>, number: usize, later: &[RegisterSet]) -> RegisterSet {
    let terminator = &shape.function.blocks[number].terminator;
    let leaves = terminator.edges().any(|edge| !edge.is_internal());
    let after = &shape.ways.after[number];
    if leaves || after.is_empty() || matches!(terminator, Terminator::JumpTable(_)) {
        return RegisterSet::default();
    }
    let sets = after.iter().map(|&next| later[next]);
    sets.fold(unpinned(), RegisterSet::intersection)
}

#[cfg(test)]
mod tests;
