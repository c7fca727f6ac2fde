//! Edges between blocks, and out of the function.

use inkwell::basic_block::BasicBlock;

use super::lifter::Lifter;
use super::service::Service;
use crate::analysis::{RegisterSet, unpinned};
use crate::cfg::{Edge, EdgeKind};

impl<'ctx> Lifter<'_, 'ctx> {
    /// Continues at the target of an edge.
    pub(super) fn go_to(&mut self, edge: &Edge) {
        if !edge.is_internal() {
            self.leave_to(edge.target);
        } else {
            self.checkpoint_on(edge);
            let stored = self
                .function
                .flow
                .stored_before(edge.target, self.block.dirty);
            self.registers.store(self.ir, stored);
            self.load_for(self.function.flow.resident_in(edge.target));
            self.ir.jump(self.target_of(edge));
        }
    }

    /// Returns the LLVM block that an internal edge leads to.
    fn target_of(&self, edge: &Edge) -> BasicBlock<'ctx> {
        match (edge.kind, self.block.next_round) {
            (EdgeKind::Back, Some((header, next))) if header == edge.target => next,
            (EdgeKind::Back, _) => match self.function.blocks.latches.get(&edge.target) {
                Some(&latch) => latch,
                None => self.host_block(edge.target),
            },
            _ => self.host_block(edge.target),
        }
    }

    /// Returns the block to branch to for an edge: the target itself, or a new block if the edge
    /// loads or stores registers. New blocks are added to `pending`.
    pub(super) fn landing<'e>(
        &self,
        edge: &'e Edge,
        pending: &mut Vec<(BasicBlock<'ctx>, &'e Edge)>,
    ) -> BasicBlock<'ctx> {
        let loaded = self
            .function
            .flow
            .resident_in(edge.target)
            .difference(self.block.resident);
        let moved = loaded.union(
            self.function
                .flow
                .stored_before(edge.target, self.block.dirty),
        );
        let moves = moved != RegisterSet::default();
        if edge.is_internal() && !self.has_checkpoint(edge) && !moves {
            return self.target_of(edge);
        }
        let block = self.new_block("edge");
        pending.push((block, edge));
        block
    }

    /// Fills the blocks that [`landing`](Self::landing) made.
    pub(super) fn fill(&mut self, pending: Vec<(BasicBlock<'ctx>, &Edge)>) {
        for (block, edge) in pending {
            self.ir.position(block);
            self.go_to(edge);
        }
    }

    /// Marks the unpinned registers outside `needed` as dead: from here on, the `Hart` structure
    /// holds only the `needed` ones.
    pub(super) fn mark_all_but(&self, needed: RegisterSet) {
        let dead = unpinned().difference(needed);
        self.registers.mark_dead(self.ir, dead);
    }

    /// Leaves the function for the code at link-time address `pc`, without returning.
    fn leave_to(&mut self, pc: u64) {
        let needed = self.unit.liveness.at_entry(pc);
        self.registers
            .store(self.ir, self.block.dirty.intersection(needed));
        self.mark_all_but(needed);
        if self.unit.entries.contains(&pc) {
            let callee = self.ir.callee(pc, self.function.signature);
            self.leave(callee, needed);
        } else {
            self.store_pc(pc);
            self.leave_to_service(Service::Dispatch);
        }
    }
}
