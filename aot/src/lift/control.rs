//! Control flow: how blocks end, polls, calls, returns and dispatch.

use std::collections::HashMap;
use std::mem::offset_of;

use hartline_abi::dispatch::{Entry, site_offset};
use hartline_abi::hart::offset;
use hartline_abi::image::TABLE_BLOCK_TEXT;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{IntValue, PointerValue};

use super::convention::Convention;
use super::function::{Control, Lifter};
use super::ir::{Likely, Memory, Signature};
use super::liveness::returns_with_arguments;
use super::polls::polled_loops;
use super::registers::{RegisterSet, unpinned};
use super::resume::resume_points;
use super::service::Service;
use super::symbol;
use crate::cfg::{Block, Edge, EdgeKind, Function, Terminator};
use crate::technique::Technique;

/// Whether the function calls.
pub(super) fn calls(function: &Function) -> bool {
    function.blocks.iter().any(|block| {
        matches!(
            block.terminator,
            Terminator::Call { .. } | Terminator::CallIndirect { .. }
        )
    })
}

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
    /// `rsp` is below the poll limit: the host stack is used up, or somebody wants
    /// attention.
    fn poll_condition(&self) -> IntValue<'ctx> {
        let ir = self.ir;
        // In this order, so that the load becomes an operand of the comparison.
        let stack_pointer = ir.stack_pointer();
        let limit = ir.load_int(64, ir.hart_slot(offset::POLL_LIMIT), Memory::Hart);
        ir.keep(limit.into());
        ir.compare(IntPredicate::ULT, stack_pointer, limit)
    }

    pub(super) fn poll_at_entry(&mut self) {
        let ir = self.ir;
        let slow = ir.block(self.host, "poll");
        let go_on = ir.block(self.host, "polled");
        ir.branch(self.poll_condition(), slow, go_on, Likely::NotTaken);
        ir.position(slow);
        let given = self.registers.convention().added();
        self.registers.store_apart(ir, given);
        self.resume();
        self.store_pc(self.function.entry);
        self.leave_to_service(Service::PollEntry);
        ir.position(go_on);
    }

    /// Goes on inside the function if it was entered for that; otherwise building
    /// continues where it was entered at its beginning.
    fn resume(&mut self) {
        let points = resume_points(self.function, self.unit);
        if points.is_empty() {
            return;
        }
        let ir = self.ir;
        let place = ir.load_hart(offset::RESUME);
        let [inside, entry] = ["inside", "entered"].map(|name| ir.block(self.host, name));
        let entered = ir.compare(IntPredicate::EQ, place, ir.constant(0));
        ir.branch(entered, entry, inside, Likely::Unknown);
        ir.position(inside);
        ir.store_hart(offset::RESUME, ir.constant(0));
        ir.store_hart(offset::PC, place);
        let left_out = self.registers.convention().left_out();
        self.registers.load(ir, left_out);
        self.call_service(Service::Resume);
        let mut cases = Vec::with_capacity(points.len());
        for pc in points {
            let block = ir.block(self.host, "resume");
            ir.position(block);
            self.checkpoint_at(pc);
            self.registers.load(ir, self.flow.held_in(pc));
            ir.jump(self.block(pc));
            cases.push((ir.constant(pc), block));
        }
        ir.position(inside);
        // Only the image itself says where to go on.
        let first = cases.pop().map_or(entry, |(_, block)| block);
        ir.built(ir.builder().build_switch(place, first, &cases));
        ir.position(entry);
    }

    /// Has each loop poll at one place. If one edge leads back, that is on it, so that
    /// the way in does not poll. If there are more, it is at the header: they need not
    /// come together before. Where each way round calls a function that polls, none does.
    pub(super) fn make_polls(&mut self) {
        let function = self.function;
        let edges = function.blocks.iter().flat_map(|b| b.terminator.edges());
        let mut ways: HashMap<u64, u32> = HashMap::new();
        for edge in edges.filter(|edge| edge.kind == EdgeKind::Back) {
            *ways.entry(edge.target).or_default() += 1;
        }
        let polled = polled_loops(function, self.unit);
        // In the order of the blocks, for the same code each time.
        for header in function.blocks.iter().map(|block| block.start) {
            if !polled.contains(&header) {
                continue;
            }
            let one = ways.get(&header).is_none_or(|&ways| ways == 1);
            let (from, to) = match one {
                true => (self.ir.block(self.host, "latch"), self.block(header)),
                false => (self.block(header), self.ir.block(self.host, "polled")),
            };
            self.ir.position(from);
            self.poll_at(header, to);
            match one {
                true => self.latches.insert(header, from),
                false => self.polled.insert(header, to),
            };
        }
    }

    /// Polls before the guest goes on at a loop header, in the block `then`.
    fn poll_at(&mut self, header: u64, then: BasicBlock<'ctx>) {
        let ir = self.ir;
        let slow = ir.block(self.host, "poll");
        ir.branch(self.poll_condition(), slow, then, Likely::NotTaken);
        ir.position(slow);
        self.notice(header);
        ir.jump(then);
    }

    /// Has the runtime look at what wants attention before the guest goes on at
    /// `pc`. The runtime either comes back and nothing has changed, so that the
    /// loop need not take its registers from here, or drops the host frames.
    fn notice(&self, pc: u64) {
        let ir = self.ir;
        let pinned = self.registers.pinned_set();
        let stored = self.flow.dirty_in(pc).union(pinned);
        let needed = stored.intersection(self.flow.needed_in(pc));
        self.registers.store_apart(ir, needed);
        let known = unpinned().union(pinned);
        let dead = known.difference(self.flow.needed_in(pc));
        self.registers.mark_dead(ir, dead);
        self.checkpoint_at(pc);
        self.store_pc(pc);
        let service = match self.signature {
            Signature::Integer => Service::Poll,
            Signature::Full => Service::PollFloat,
        };
        ir.call_preserving(ir.symbol(service.symbol()));
    }

    /// Makes the block for calls that came back to another place than the one
    /// after them: where a call of this function may return twice, or in another
    /// function, which the caller is to find. It jumps to a return instruction
    /// elsewhere: LLVM would merge it with the function's own.
    pub(super) fn make_elsewhere(&mut self) {
        let ir = self.ir;
        let elsewhere = ir.block(self.host, "elsewhere");
        ir.position(elsewhere);
        let function = self.function;
        for edge in function.blocks.iter().filter_map(twice_return_site) {
            let here = ir.block(self.host, "again");
            let next = ir.block(self.host, "");
            let expected = self.guest_address(edge.target);
            let ra = self.registers.x(ir, 1);
            let same = ir.compare(IntPredicate::EQ, ra, expected);
            ir.branch(same, here, next, Likely::Unknown);
            ir.position(here);
            self.checkpoint_at(edge.target);
            self.registers.load(ir, self.flow.held_in(edge.target));
            ir.jump(self.block(edge.target));
            ir.position(next);
        }
        let needed = self.unit.liveness.elsewhere(function.entry);
        let own = self.registers.convention();
        self.registers.load(ir, own.added());
        let arguments = self.registers.pinned_arguments(ir, needed, &own);
        ir.tail_call_guest(self.signature, ir.symbol(symbol::RETURN), &arguments);
        self.elsewhere = Some(elsewhere);
    }

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
            Terminator::Return if returns_with_arguments(self.function, block) => {
                self.jump_indirect();
            }
            Terminator::Return => {
                let needed = self.flow.needed_at_return();
                let own = self.registers.convention();
                let stored = self.dirty.intersection(needed).difference(own.added());
                self.registers.store(self.ir, stored);
                self.mark_all_but(needed);
                self.load_for(own.added());
                let pinned = self.registers.pinned_values(self.ir, needed, &own);
                self.ir.return_pinned(self.signature, &pinned);
            }
            Terminator::JumpTable(table) if self.unit.disabled.allows(Technique::JumpTables) => {
                self.jump_table(table);
            }
            Terminator::JumpTable(_) | Terminator::JumpIndirect => self.jump_indirect(),
            Terminator::Trap => self.trap_at(self.pc),
            Terminator::Illegal { pc } => self.trap_at(*pc),
        }
    }

    pub(super) fn trap_at(&mut self, pc: u64) {
        self.registers.store(self.ir, self.dirty);
        self.store_pc(pc);
        self.leave_to_service(Service::Trap);
    }

    /// Continues at the target of an edge.
    pub(super) fn go_to(&mut self, edge: &Edge) {
        if !edge.is_internal() {
            self.leave_to(edge.target);
        } else {
            self.checkpoint_on(edge);
            let stored = self.flow.stored_before(edge.target, self.dirty);
            self.registers.store(self.ir, stored);
            self.load_for(self.flow.held_in(edge.target));
            self.ir.jump(self.way_to(edge));
        }
    }

    /// The LLVM block that an internal edge leads to.
    fn way_to(&self, edge: &Edge) -> BasicBlock<'ctx> {
        match (edge.kind, self.next_round) {
            (EdgeKind::Back, Some((header, next))) if header == edge.target => next,
            (EdgeKind::Back, _) => match self.latches.get(&edge.target) {
                Some(&latch) => latch,
                None => self.block(edge.target),
            },
            _ => self.block(edge.target),
        }
    }

    /// The block to branch to for an edge: the target itself, or a new one for
    /// what has to happen on the way. New ones are added to `pending`.
    pub(super) fn landing<'e>(
        &self,
        edge: &'e Edge,
        pending: &mut Vec<(BasicBlock<'ctx>, &'e Edge)>,
    ) -> BasicBlock<'ctx> {
        let loaded = self.flow.held_in(edge.target).difference(self.held);
        let moved = loaded.union(self.flow.stored_before(edge.target, self.dirty));
        let moves = moved != RegisterSet::default();
        if edge.is_internal() && !self.has_checkpoint(edge) && !moves {
            return self.way_to(edge);
        }
        let block = self.ir.block(self.host, "way");
        pending.push((block, edge));
        block
    }

    pub(super) fn fill(&mut self, pending: Vec<(BasicBlock<'ctx>, &Edge)>) {
        for (block, edge) in pending {
            self.ir.position(block);
            self.go_to(edge);
        }
    }

    fn has_table(&self, edge: &Edge) -> bool {
        let block = self.function.block(edge.target);
        block.is_some_and(|block| matches!(block.terminator, Terminator::JumpTable(_)))
    }

    fn branch_to(&mut self, taken: &Edge, not_taken: &Edge) {
        let Control::Condition(condition) = self.control else {
            return self.go_to(not_taken);
        };
        let mut pending = Vec::new();
        let then = self.landing(taken, &mut pending);
        let otherwise = self.landing(not_taken, &mut pending);
        // Before a jump table comes the check whether it has an entry; it mostly has.
        let likely = match (self.has_table(taken), self.has_table(not_taken)) {
            (true, false) => Likely::Usually,
            (false, true) => Likely::Seldom,
            _ => Likely::Unknown,
        };
        self.ir.branch(condition, then, otherwise, likely);
        self.fill(pending);
    }

    /// The `Hart` structure has only the registers `needed` from here on, of those that are
    /// not passed in host registers.
    fn mark_all_but(&self, needed: RegisterSet) {
        let dead = unpinned().difference(needed);
        self.registers.mark_dead(self.ir, dead);
    }

    /// Leaves the function for the code at link-time address `pc`, for good.
    fn leave_to(&mut self, pc: u64) {
        let needed = self.unit.liveness.at_entry(pc);
        self.registers
            .store(self.ir, self.dirty.intersection(needed));
        self.mark_all_but(needed);
        if self.unit.entries.contains(&pc) {
            let callee = self.ir.callee(pc, self.signature);
            self.leave(callee, needed);
        } else {
            self.store_pc(pc);
            self.leave_to_service(Service::Dispatch);
        }
    }

    fn call(&mut self, target: u64, return_to: &Edge) {
        let needed = self.unit.liveness.at_entry(target);
        let taken = self.unit.conventions.of_callee(target).added();
        let stored = self.dirty.intersection(needed).difference(taken);
        self.registers.store(self.ir, stored);
        self.mark_all_but(needed);
        self.load_for(taken);
        let callee = if self.unit.conventions.is_own(target) {
            self.ir.own_callee(target, self.signature)
        } else if self.unit.entries.contains(&target) {
            self.ir.callee(target, self.signature)
        } else {
            self.store_pc(target);
            self.ir.symbol(Service::Dispatch.symbol())
        };
        self.finish_call(callee, needed, return_to, Some(target));
    }

    fn call_indirect(&mut self, return_to: &Edge) {
        let Control::Register(target) = self.control else {
            return;
        };
        self.registers.store(self.ir, self.dirty);
        let callee = self.look_up(target);
        self.finish_call(callee, RegisterSet::ALL, return_to, None);
    }

    /// Calls code that needs the registers `needed`, and checks that the guest came
    /// back to the instruction after the call.
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
        let state = ir.call_guest(self.signature, callee, &arguments);
        self.registers.set_pinned(ir, state, &convention);
        self.dirty = convention.added();
        self.held = convention.added();
        let expected = self.guest_address(return_to.target);
        let ra = self.registers.x(ir, 1);
        let same = ir.compare(IntPredicate::EQ, ra, expected);
        let here = ir.block(self.host, "returned");
        if let Some(elsewhere) = self.elsewhere {
            let other = self.stored_first(convention.added(), elsewhere);
            ir.branch(same, here, other, Likely::Taken);
        }
        ir.position(here);
        if return_to.is_internal() {
            self.checkpoint_at(return_to.target);
            let lost = self.flow.lost(guest, return_to.target);
            self.registers.forget(ir, lost.difference(unpinned()));
        }
        self.go_to(return_to);
    }

    pub(super) fn jump_indirect(&mut self) {
        let Control::Register(target) = self.control else {
            return;
        };
        self.registers.store(self.ir, self.dirty);
        let callee = self.look_up(target);
        self.leave(callee, RegisterSet::ALL);
    }

    /// A block that stores registers and goes on at `then`; that itself if there are none.
    fn stored_first(&self, set: RegisterSet, then: BasicBlock<'ctx>) -> BasicBlock<'ctx> {
        if set == RegisterSet::default() {
            return then;
        }
        let ir = self.ir;
        let current = ir.current();
        let block = ir.block(self.host, "storing");
        ir.position(block);
        self.registers.store_apart(ir, set);
        ir.jump(then);
        ir.position(current);
        block
    }

    /// The dispatch table's entry for the guest code `offset` bytes into the text.
    fn table_entry(&self, table: IntValue<'ctx>, offset: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let builder = ir.builder();
        let length = ir.constant(TABLE_BLOCK_TEXT);
        let number = ir.built(builder.build_int_unsigned_div(offset, length, ""));
        let block = ir.zero_extend(ir.element(table, number), 64);
        let low = ir.constant(TABLE_BLOCK_TEXT - 1);
        // Two bytes of text have a slot of four.
        let inside = ir.built(builder.build_and(offset, low, ""));
        let inside = ir.built(builder.build_left_shift(inside, ir.constant(1), ""));
        let place = ir.built(builder.build_int_add(block, inside, ""));
        let slot = ir.built(builder.build_int_add(table, place, ""));
        ir.load_int(32, ir.guest_pointer(slot), Memory::Image)
    }

    /// The host function of the guest code at `target`: the one that this jump led to last
    /// time, if it went there; otherwise the runtime's dispatcher, with the guest pc published
    /// for it and the place that is to remember the function.
    fn look_up(&self, target: IntValue<'ctx>) -> PointerValue<'ctx> {
        let ir = self.ir;
        if !self.unit.disabled.allows(Technique::InlineCache) {
            return self.look_up_in_table(target);
        }
        let [hit, miss, found] = ["hit", "miss", "found"].map(|name| ir.block(self.host, name));
        let text = &self.unit.text;
        let site = site_offset(self.pc, text.end - text.start);
        let cache = ir.load_hart(offset::DISPATCH_CACHE);
        let word = |offset: u64| {
            let place = ir.constant(site + offset);
            let place = ir.built(ir.builder().build_int_add(cache, place, ""));
            ir.load_int(64, ir.guest_pointer(place), Memory::Hart)
        };
        let remembered = word(offset_of!(Entry, pc) as u64);
        let same = ir.compare(IntPredicate::EQ, remembered, target);
        ir.branch(same, hit, miss, Likely::Taken);

        ir.position(hit);
        let host = word(offset_of!(Entry, host) as u64);
        ir.jump(found);

        ir.position(miss);
        ir.store_hart(offset::PC, target);
        ir.store_hart(offset::SITE, ir.constant(site));
        let service = ir.load_hart(offset::FN_DISPATCH_SITE);
        ir.jump(found);

        ir.position(found);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&host, hit), (&service, miss)]);
        ir.guest_pointer(phi.as_basic_value().into_int_value())
    }

    /// The host function of the guest code at `target`; if the file has none, the
    /// runtime's dispatcher, with the guest pc published for it.
    fn look_up_in_table(&self, target: IntValue<'ctx>) -> PointerValue<'ctx> {
        let ir = self.ir;
        let [inside, hit, miss, found] =
            ["inside", "hit", "miss", "found"].map(|name| ir.block(self.host, name));
        let start = self.guest_address(self.unit.text.start);
        let offset = ir.built(ir.builder().build_int_sub(target, start, ""));
        let length = ir.constant(self.unit.text.end - self.unit.text.start);
        let covered = ir.compare(IntPredicate::ULT, offset, length);
        ir.branch(covered, inside, miss, Likely::Taken);

        ir.position(inside);
        let table = ir.address(ir.symbol(symbol::TABLE));
        let entry = self.table_entry(table, offset);
        let known = ir.compare(IntPredicate::NE, entry, entry.get_type().const_zero());
        ir.branch(known, hit, miss, Likely::Taken);

        ir.position(hit);
        let code = ir.address(ir.symbol(symbol::CODE));
        let entry = ir.zero_extend(entry, 64);
        let host = ir.built(ir.builder().build_int_add(code, entry, ""));
        ir.jump(found);

        ir.position(miss);
        ir.store_hart(offset::PC, target);
        let service = ir.load_hart(offset::FN_DISPATCH);
        ir.jump(found);

        ir.position(found);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&host, hit), (&service, miss)]);
        ir.guest_pointer(phi.as_basic_value().into_int_value())
    }
}
