//! What is known of a function's indirect jumps while its code is being found.

use super::explorer::Explorer;
use super::function::{Block, Edge, Function, JumpTable, Terminator};
use std::collections::{BTreeMap, HashSet};

/// Rounds in which jumps that nothing was known of may become known.
const LEARNING_ROUNDS: usize = 16;

/// Better terminators of indirect jumps and calls, by address. More code can make less of
/// a jump known. So that the search ends, what was known of such a jump is given up, but
/// for the targets as likely ones, and never learnt again.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    known: BTreeMap<u64, Terminator>,
    /// Jumps of which at most likely targets are known, for good.
    doubtful: HashSet<u64>,
    rounds: usize,
}

impl Resolved {
    /// The jump tables of `function`, for its code when it is entered elsewhere: what the
    /// registers hold there need not be what they hold on the way from the function's entry.
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

    /// Block starts were added.
    pub(super) fn update_edges(&mut self, explorer: &Explorer<'_, '_>) {
        let edges = self.known.values_mut().flat_map(Terminator::edges_mut);
        edges.for_each(|edge| *edge = explorer.edge(edge.target));
    }

    /// Gives the blocks of the indices `jumps` what is known of them.
    pub(super) fn apply(&self, blocks: &mut [Block], jumps: &[usize]) {
        for &index in jumps {
            let pc = blocks[index].instructions.last().map(|last| last.0);
            if let Some(terminator) = pc.and_then(|pc| self.known.get(&pc)) {
                blocks[index].terminator = terminator.clone();
            }
        }
    }

    /// Takes in what was found with the help of what is known so far. True if that
    /// changed anything, so that it must be looked for again.
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

/// Whether two findings are of the same certain destinations.
fn agree(old: &Terminator, new: &Terminator) -> bool {
    let certain = !matches!(new, Terminator::JumpTable(JumpTable { certain: false, .. }));
    certain && old == new
}

/// What is left of two findings that are no longer certain.
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
