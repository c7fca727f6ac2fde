//! The effect of a function on unpinned registers, block by block. The residency analyses
//! ([`residency`](super::residency)) build on it.

use std::collections::{HashMap, HashSet};

use super::block_graph::BlockGraph;
use super::register_set::{RegisterSet, unpinned, uses};
use super::shared_tables::shared_tables;
use super::unit::Unit;
use crate::cfg::{Block, Function, Terminator};

/// The most steps of the search for one function's loops.
const EFFORT: usize = 1 << 20;

/// The effect of a block on unpinned registers.
pub(super) struct BlockSummary {
    /// Whether it contains no call or service, which would take all registers from their variables.
    pub(super) passes: bool,
    /// Registers resident after it, in addition to the registers resident before it if it `passes`.
    pub(super) adds: RegisterSet,
    /// Registers of `adds` that it changes.
    pub(super) changes: RegisterSet,
    /// Registers that it reads before it writes them, and before a call or service takes them from
    /// their variables.
    pub(super) reads: RegisterSet,
    /// Registers that it writes before a call or service.
    pub(super) writes: RegisterSet,
}

impl BlockSummary {
    /// `arguments` are the registers that the function takes and returns besides the pinned
    /// ones.
    fn of(block: &Block, arguments: RegisterSet, unit: &Unit) -> Self {
        let mut result = Self {
            passes: true,
            adds: RegisterSet::default(),
            changes: RegisterSet::default(),
            reads: RegisterSet::default(),
            writes: RegisterSet::default(),
        };
        for (_, instruction) in &block.instructions {
            if unit.features.leaves_code(instruction) {
                result.leave();
                continue;
            }
            let (read, written) = uses(instruction);
            let (read, written) = (
                read.intersection(unpinned()),
                written.intersection(unpinned()),
            );
            result.read(read);
            if result.passes {
                result.writes = result.writes.union(written);
            }
            result.adds = result.adds.union(read).union(written);
            result.changes = result.changes.union(written);
        }
        if matches!(block.terminator, Terminator::Return) {
            result.read(arguments);
        }
        if block.terminator.is_call() {
            let exchanged = exchanged(block, unit);
            result.read(exchanged);
            result.leave();
            result.adds = exchanged;
            result.changes = exchanged;
        }
        result
    }

    fn read(&mut self, registers: RegisterSet) {
        if self.passes {
            self.reads = self.reads.union(registers.difference(self.writes));
        }
    }

    fn leave(&mut self) {
        self.passes = false;
        self.adds = RegisterSet::default();
        self.changes = RegisterSet::default();
    }

    /// Registers that are resident after the block, if `before` are before it.
    pub(super) fn resident_after(&self, before: RegisterSet) -> RegisterSet {
        match self.passes {
            true => before.union(self.adds),
            false => self.adds,
        }
    }

    /// Registers that are dirty after the block, if `before` are before it.
    pub(super) fn dirty_after(&self, before: RegisterSet) -> RegisterSet {
        match self.passes {
            true => before.union(self.changes),
            false => self.changes,
        }
    }
}

/// A switch that several blocks share.
pub(super) struct SharedSwitch {
    pub(super) targets: Vec<u64>,
    pub(super) users: Vec<usize>,
}

/// A loop without calls.
pub(super) struct QuietLoop {
    /// Registers that it reads or writes.
    pub(super) uses: RegisterSet,
    /// Registers that it writes.
    pub(super) writes: RegisterSet,
}

/// The effect of a function, block by block.
pub(super) struct FunctionSummary<'f> {
    pub(super) function: &'f Function,
    /// Registers that the function takes and returns besides the pinned ones.
    arguments: RegisterSet,
    pub(super) graph: BlockGraph,
    pub(super) blocks: Vec<BlockSummary>,
    pub(super) switches: Vec<SharedSwitch>,
    /// By block, the shared switch that it ends in.
    pub(super) switch_of: HashMap<usize, usize>,
    /// By header.
    pub(super) loops: HashMap<usize, QuietLoop>,
}

impl<'f> FunctionSummary<'f> {
    pub(super) fn of(function: &'f Function, unit: &Unit) -> Self {
        let arguments = unit.conventions.of_callee(function.entry).added();
        let blocks = function.blocks.iter();
        let summaries = blocks.map(|block| BlockSummary::of(block, arguments, unit));
        let mut summary = Self {
            function,
            arguments,
            graph: BlockGraph::of(function),
            blocks: summaries.collect(),
            switches: Vec::new(),
            switch_of: HashMap::new(),
            loops: HashMap::new(),
        };
        summary.find_switches();
        summary.find_loops();
        summary
    }

    /// Whether the block is the function's entry, or no edge to it is known.
    pub(super) fn is_entered(&self, number: usize) -> bool {
        self.function.blocks[number].start == self.function.entry
            || self.graph.preds[number].is_empty()
    }

    /// Unpinned registers that are only in their variables where the block is entered without an
    /// edge from another block; `None` if the block is not entered so.
    pub(super) fn entered_with(&self, number: usize) -> Option<RegisterSet> {
        match self.function.blocks[number].start == self.function.entry {
            true => Some(self.arguments),
            false => self.is_entered(number).then(RegisterSet::default),
        }
    }

    fn find_switches(&mut self) {
        for targets in shared_tables(self.function).into_keys() {
            let blocks = self.function.blocks.iter().enumerate();
            let users = blocks.filter(|(_, block)| match &block.terminator {
                Terminator::JumpTable(table) => table.index.is_some() && table.leads_to(&targets),
                _ => false,
            });
            let users: Vec<usize> = users.map(|(number, _)| number).collect();
            let number = self.switches.len();
            self.switch_of
                .extend(users.iter().map(|&user| (user, number)));
            self.switches.push(SharedSwitch { targets, users });
        }
    }

    fn find_loops(&mut self) {
        let mut effort = EFFORT;
        for &header in &self.graph.order {
            if self.function.blocks[header].is_loop_header
                && let Some(found) = self.quiet_loop(header, &mut effort)
            {
                self.loops.insert(header, found);
            }
        }
    }

    /// The loop with this header; `None` if it contains a call or the search exceeds its limit.
    fn quiet_loop(&self, header: usize, effort: &mut usize) -> Option<QuietLoop> {
        let position = |number: usize| self.graph.position[number];
        let preds = self.graph.preds[header].iter().copied();
        let mut work: Vec<usize> = preds
            .filter(|&block| position(block) >= position(header))
            .collect();
        work.push(header);
        let mut seen = HashSet::new();
        let mut result = QuietLoop {
            uses: RegisterSet::default(),
            writes: RegisterSet::default(),
        };
        while let Some(number) = work.pop() {
            let summary = &self.blocks[number];
            if !summary.passes {
                return None;
            }
            if !seen.insert(number) {
                continue;
            }
            *effort = effort.checked_sub(1)?;
            result.uses = result.uses.union(summary.adds);
            result.writes = result.writes.union(summary.changes);
            if number != header {
                work.extend_from_slice(&self.graph.preds[number]);
            }
        }
        Some(result)
    }
}

/// Registers that the function called by a block takes and returns besides the pinned ones.
pub(super) fn exchanged(block: &Block, unit: &Unit) -> RegisterSet {
    match block.terminator {
        Terminator::Call { target, .. } => unit.conventions.of_callee(target).added(),
        _ => RegisterSet::default(),
    }
}
