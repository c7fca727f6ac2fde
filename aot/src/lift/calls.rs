//! Calls and returns.

use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::PointerValue;

use super::ir::Likely;
use super::lifter::{Control, Lifter};
use super::service::Service;
use super::symbol;
use crate::analysis::{Convention, RegisterSet, unpinned};
use crate::cfg::{Block, Edge, Terminator};

/// Returns the edge after a call that may return twice.
fn twice_return_site(block: &Block) -> Option<&Edge> {
    match &block.terminator {
        Terminator::Call {
            return_to,
            returns_twice: true,
            ..
        } if return_to.is_internal() => Some(return_to),
        _ => None,
    }
}

impl<'ctx> Lifter<'_, 'ctx> {
    /// Makes the block for calls that did not return to the instruction after them. The call
    /// returned after another call of this function, which may return twice, or in another
    /// function, which the caller has to find. The block jumps to a return instruction outside the
    /// function: LLVM would merge a return inside with the function's own.
    pub(super) fn make_mismatched_return(&mut self) {
        let ir = self.ir;
        let mismatched = self.new_block("mismatched");
        ir.position(mismatched);
        let function = self.function.guest;
        for edge in function.blocks.iter().filter_map(twice_return_site) {
            let here = self.new_block("again");
            let next = self.new_block("");
            let expected = self.guest_address(edge.target);
            let ra = self.registers.x(ir, 1);
            let same = ir.compare(IntPredicate::EQ, ra, expected);
            ir.branch(same, here, next, Likely::Unknown);
            ir.position(here);
            self.checkpoint_at(edge.target);
            self.registers
                .load(ir, self.function.flow.resident_in(edge.target));
            ir.jump(self.host_block(edge.target));
            ir.position(next);
        }
        let needed = self.unit.liveness.at_mismatched_return(function.entry);
        let own = self.registers.convention();
        self.registers.load(ir, own.added());
        let arguments = self.registers.pinned_arguments(ir, needed, &own);
        ir.tail_call_guest(
            self.function.signature,
            ir.symbol(symbol::RETURN),
            &arguments,
        );
        self.function.blocks.mismatched_return = Some(mismatched);
    }

    /// Calls the function at link-time address `target`.
    pub(super) fn call(&mut self, target: u64, return_to: &Edge) {
        let needed = self.unit.liveness.at_entry(target);
        let added = self.unit.conventions.of_callee(target).added();
        let stored = self.block.dirty.intersection(needed).difference(added);
        self.registers.store(self.ir, stored);
        self.mark_all_but(needed);
        self.load_for(added);
        let callee = if self.unit.conventions.is_own(target) {
            self.ir.own_callee(target, self.function.signature)
        } else if self.unit.entries.contains(&target) {
            self.ir.callee(target, self.function.signature)
        } else {
            self.store_pc(target);
            self.ir.symbol(Service::Dispatch.symbol())
        };
        self.finish_call(callee, needed, return_to, Some(target));
    }

    /// Calls the target of the last instruction's jump.
    pub(super) fn call_indirect(&mut self, return_to: &Edge) {
        let Control::Register(target) = self.block.control else {
            return;
        };
        self.registers.store(self.ir, self.block.dirty);
        let callee = self.look_up(target);
        self.finish_call(callee, RegisterSet::ALL, return_to, None);
    }

    /// Calls code that needs the registers `needed`, and checks that the guest returned to the
    /// instruction after the call.
    fn finish_call(
        &mut self,
        callee: PointerValue<'ctx>,
        needed: RegisterSet,
        return_to: &Edge,
        guest: Option<u64>,
    ) {
        let ir = self.ir;
        let convention = guest.map_or(Convention::STANDARD, |pc| {
            self.unit.conventions.of_callee(pc)
        });
        let arguments = self.registers.pinned_arguments(ir, needed, &convention);
        let state = ir.call_guest(self.function.signature, callee, &arguments);
        self.registers.set_pinned(ir, state, &convention);
        self.block.dirty = convention.added();
        self.block.resident = convention.added();
        let expected = self.guest_address(return_to.target);
        let ra = self.registers.x(ir, 1);
        let same = ir.compare(IntPredicate::EQ, ra, expected);
        let here = self.new_block("returned");
        if let Some(mismatched) = self.function.blocks.mismatched_return {
            let other = self.stored_first(convention.added(), mismatched);
            ir.branch(same, here, other, Likely::Taken);
        }
        ir.position(here);
        if return_to.is_internal() {
            self.checkpoint_at(return_to.target);
            let lost = self.function.flow.lost(guest, return_to.target);
            self.registers.forget(ir, lost.difference(unpinned()));
        }
        self.go_to(return_to);
    }

    /// Returns a block that stores registers and continues at `then`; `then` itself if `set` is
    /// empty.
    fn stored_first(&self, set: RegisterSet, then: BasicBlock<'ctx>) -> BasicBlock<'ctx> {
        if set == RegisterSet::default() {
            return then;
        }
        let ir = self.ir;
        let current = ir.current();
        let block = self.new_block("storing");
        ir.position(block);
        self.registers.store_apart(ir, set);
        ir.jump(then);
        ir.position(current);
        block
    }

    /// Returns to the caller.
    pub(super) fn return_to_caller(&mut self) {
        let needed = self.function.flow.needed_at_return();
        let own = self.registers.convention();
        let stored = self
            .block
            .dirty
            .intersection(needed)
            .difference(own.added());
        self.registers.store(self.ir, stored);
        self.mark_all_but(needed);
        self.load_for(own.added());
        let pinned = self.registers.pinned_values(self.ir, needed, &own);
        self.ir.return_pinned(self.function.signature, &pinned);
    }
}
