//! The ends of blocks.

use super::ir::Likely;
use super::lifter::{Control, Lifter};
use crate::analysis::returns_with_arguments;
use crate::cfg::{Block, Edge, Terminator};
use crate::technique::Technique;

impl Lifter<'_, '_> {
    /// Ends the block.
    pub(super) fn terminate(&mut self, block: &Block) {
        self.checkpoint_at_end(block);
        match &block.terminator {
            Terminator::FallThrough { next: edge } | Terminator::Jump { target: edge } => {
                self.go_to(edge);
            }
            Terminator::Branch { taken, not_taken } => self.branch_to(taken, not_taken),
            Terminator::Call {
                target, return_to, ..
            } => self.call(*target, return_to),
            Terminator::CallIndirect { return_to } => self.call_indirect(return_to),
            Terminator::TopByte(search) => self.find_top_byte(search),
            Terminator::Return if returns_with_arguments(self.function.guest, block) => {
                self.jump_indirect();
            }
            Terminator::Return => self.return_to_caller(),
            Terminator::JumpTable(table) if self.unit.disabled.allows(Technique::JumpTables) => {
                self.jump_table(table);
            }
            Terminator::JumpTable(_) | Terminator::JumpIndirect => self.jump_indirect(),
            Terminator::Trap => self.trap_at(self.instruction.pc),
            Terminator::Illegal { pc } => self.trap_at(*pc),
        }
    }

    fn branch_to(&mut self, taken: &Edge, not_taken: &Edge) {
        let Control::Condition(condition) = self.block.control else {
            return self.go_to(not_taken);
        };
        let mut pending = Vec::new();
        let then = self.landing(taken, &mut pending);
        let otherwise = self.landing(not_taken, &mut pending);
        // A branch to a jump table checks that the table has an entry; usually it has.
        let likely = match (self.has_table(taken), self.has_table(not_taken)) {
            (true, false) => Likely::Usually,
            (false, true) => Likely::Seldom,
            _ => Likely::Unknown,
        };
        self.ir.branch(condition, then, otherwise, likely);
        self.fill(pending);
    }

    fn has_table(&self, edge: &Edge) -> bool {
        let block = self.function.guest.block(edge.target);
        block.is_some_and(|block| matches!(block.terminator, Terminator::JumpTable(_)))
    }
}
