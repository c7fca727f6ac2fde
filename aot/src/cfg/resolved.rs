//! The results for a function's indirect jumps while its code is being found.

use super::explorer::Explorer;
use super::function::{Block, Edge, Function, JumpTable, Terminator};
use std::collections::{BTreeMap, HashSet};

/// The number of rounds in which unknown jumps may become known.
const LEARNING_ROUNDS: usize = 16;

/// Refined terminators of indirect jumps and calls, by address. New code can invalidate a known
/// jump. So that the search terminates, it then gives up this jump for good; the targets remain as
/// likely ones.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    known: BTreeMap<u64, Terminator>,
    /// Jumps that can have likely targets at most, for good.
    doubtful: HashSet<u64>,
    rounds: usize,
}

impl Resolved {
    /// Returns the jump tables of `function` for an entry elsewhere: the registers there may differ
    /// from their values on the path from the function's entry.
    pub(super) fn likely(function: &Function) -> Self {
        let mut likely = Self::default();
        for block in &function.blocks {
            if let Terminator::JumpTable(table) = &block.terminator
                && let Some(&(pc, _)) = block.instructions.last()
            {
                let certain = false;
                let table = JumpTable {
                    certain,
                    ..table.clone()
                };
                likely.known.insert(pc, Terminator::JumpTable(table));
                likely.doubtful.insert(pc);
            }
        }
        likely
    }

    pub(super) fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.known.values().flat_map(Terminator::edges)
    }

    /// Updates the edges after block starts were added.
    pub(super) fn update_edges(&mut self, explorer: &Explorer<'_, '_>) {
        let edges = self.known.values_mut().flat_map(Terminator::edges_mut);
        edges.for_each(|edge| *edge = explorer.edge(edge.target));
    }

    /// Applies the known terminators to the blocks `jumps`.
    pub(super) fn apply(&self, blocks: &mut [Block], jumps: &[usize]) {
        for &index in jumps {
            let pc = blocks[index].instructions.last().map(|last| last.0);
            if let Some(terminator) = pc.and_then(|pc| self.known.get(&pc)) {
                blocks[index].terminator = terminator.clone();
            }
        }
    }

    /// Merges terminators that were found with the current knowledge. True if anything changed, so
    /// that the search must be repeated.
    pub(super) fn merge(&mut self, mut found: BTreeMap<u64, Terminator>) -> bool {
        self.rounds += 1;
        let mut changed = false;
        let known = std::mem::take(&mut self.known);
        let mut jumps: Vec<u64> = known.keys().chain(found.keys()).copied().collect();
        jumps.sort_unstable();
        jumps.dedup();
        for pc in jumps {
            let old = known.get(&pc);
            let merged = self.merged(pc, old, found.remove(&pc));
            changed |= merged.as_ref() != old;
            self.known.extend(merged.map(|terminator| (pc, terminator)));
        }
        changed
    }

    fn merged(
        &mut self,
        pc: u64,
        old: Option<&Terminator>,
        new: Option<Terminator>,
    ) -> Option<Terminator> {
        let too_late = self.rounds > LEARNING_ROUNDS && old != new.as_ref();
        match (old, new.filter(|_| !too_late)) {
            (Some(old), Some(new)) if agree(old, &new) => Some(new),
            (None, Some(new)) if !self.doubtful.contains(&pc) => Some(new),
            (old, new) => {
                self.doubtful.insert(pc);
                likely_targets(old, new.as_ref())
            }
        }
    }
}

/// Whether two results have the same certain destinations.
fn agree(old: &Terminator, new: &Terminator) -> bool {
    let certain = !matches!(new, Terminator::JumpTable(JumpTable { certain: false, .. }));
    certain && old == new
}

/// Combines two results that are no longer certain.
fn likely_targets(old: Option<&Terminator>, new: Option<&Terminator>) -> Option<Terminator> {
    let tables = old.into_iter().chain(new).filter_map(|found| match found {
        Terminator::JumpTable(table) => Some(table),
        _ => None,
    });
    let tables: Vec<&JumpTable> = tables.collect();
    let (&first, others) = tables.split_first()?;
    let same = |table: &&JumpTable| table.index == first.index && table.targets == first.targets;
    let mut table = first.clone();
    table.certain = false;
    if !others.iter().all(same) {
        table.index = None;
        table.targets = tables
            .iter()
            .flat_map(|table| table.targets.clone())
            .collect();
        table.targets.sort_unstable_by_key(|edge| edge.target);
        table.targets.dedup_by_key(|edge| edge.target);
    }
    Some(Terminator::JumpTable(table))
}
