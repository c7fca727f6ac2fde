//! Safepoints: polls at entries and in loops, and entry at a resume point.

use std::collections::HashMap;

use hartline_abi::hart::offset;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::IntValue;

use super::ir::{Likely, Memory, Signature};
use super::lifter::Lifter;
use super::service::Service;
use crate::analysis::{polled_loops, resume_points, rounds, unpinned};
use crate::cfg::{Block, EdgeKind};

impl<'ctx> Lifter<'_, 'ctx> {
    /// Whether `rsp` is below the poll limit: the host stack is used up, or a kick is pending.
    fn poll_condition(&self) -> IntValue<'ctx> {
        let ir = self.ir;
        // The stack pointer is read first, so that the load becomes an operand of the comparison.
        let stack_pointer = ir.stack_pointer();
        let limit = ir.load_int(64, ir.hart_slot(offset::POLL_LIMIT), Memory::Hart);
        ir.keep(limit.into());
        ir.compare(IntPredicate::ULT, stack_pointer, limit)
    }

    /// Polls at the function's entry.
    pub(super) fn poll_at_entry(&mut self) {
        let ir = self.ir;
        let slow = self.new_block("poll");
        let go_on = self.new_block("polled");
        ir.branch(self.poll_condition(), slow, go_on, Likely::NotTaken);
        ir.position(slow);
        let arguments = self.registers.convention().added();
        self.registers.store_apart(ir, arguments);
        self.resume();
        self.store_pc(self.function.guest.entry);
        self.leave_to_service(Service::PollEntry);
        ir.position(go_on);
    }

    /// Jumps to the resume point if the function was entered for one; otherwise building continues
    /// for the normal entry.
    fn resume(&mut self) {
        let points = resume_points(self.function.guest, self.unit);
        if points.is_empty() {
            return;
        }
        let ir = self.ir;
        let target = ir.load_hart(offset::RESUME);
        let [inside, entry] = ["inside", "entered"].map(|name| self.new_block(name));
        let entered = ir.compare(IntPredicate::EQ, target, ir.constant(0));
        ir.branch(entered, entry, inside, Likely::Unknown);
        ir.position(inside);
        ir.store_hart(offset::RESUME, ir.constant(0));
        ir.store_hart(offset::PC, target);
        let excluded = self.registers.convention().excluded();
        self.registers.load(ir, excluded);
        self.call_service(Service::Resume);
        let start = self.function.guest.entry;
        let mut cases = Vec::with_capacity(points.len());
        for pc in points {
            let block = self.new_block("resume");
            ir.position(block);
            self.checkpoint_at(pc);
            self.registers.load(ir, self.function.flow.resident_in(pc));
            ir.jump(self.host_block(pc));
            cases.push((ir.constant(pc.wrapping_sub(start)), block));
        }
        ir.position(inside);
        // The target comes only from the image's own code, so it is always valid.
        let first = cases.pop().map_or(entry, |(_, block)| block);
        let entry_address = ir.link_address(start);
        let distance = ir.built(ir.builder().build_int_sub(target, entry_address, ""));
        ir.built(ir.builder().build_switch(distance, first, &cases));
        ir.position(entry);
    }

    /// Generates the poll of each loop. If the loop has one back edge, the poll is on it, so that
    /// the entry to the loop does not poll. If it has several, the poll is at the header, as they
    /// need not join before. A loop whose every cycle calls a polling function has no poll.
    pub(super) fn make_polls(&mut self) {
        let function = self.function.guest;
        let edges = function.blocks.iter().flat_map(|b| b.terminator.edges());
        let mut back_edges: HashMap<u64, u32> = HashMap::new();
        for edge in edges.filter(|edge| edge.kind == EdgeKind::Back) {
            *back_edges.entry(edge.target).or_default() += 1;
        }
        let polled = polled_loops(function, self.unit);
        // The order of the blocks makes the generated code reproducible.
        for header in function.blocks.iter().map(|block| block.start) {
            if !polled.contains(&header) {
                continue;
            }
            let one = back_edges.get(&header).is_none_or(|&count| count == 1);
            let (from, to) = match one {
                true => (self.new_block("latch"), self.host_block(header)),
                false => (self.host_block(header), self.new_block("polled")),
            };
            self.ir.position(from);
            self.poll_at(header, to);
            match one {
                true => self.function.blocks.latches.insert(header, from),
                false => self.function.blocks.polled.insert(header, to),
            };
        }
    }

    /// Polls before the guest continues at a loop header, in the block `then`.
    fn poll_at(&mut self, header: u64, then: BasicBlock<'ctx>) {
        let ir = self.ir;
        let slow = self.new_block("poll");
        ir.branch(self.poll_condition(), slow, then, Likely::NotTaken);
        ir.position(slow);
        self.handle_kick(header);
        ir.jump(then);
    }

    /// Calls the runtime to handle pending kicks before the guest continues at `pc`. The runtime
    /// may return with nothing changed, so that the loop need not take its registers from here.
    /// Otherwise the runtime drops the host frames.
    fn handle_kick(&self, pc: u64) {
        let ir = self.ir;
        let pinned = self.registers.pinned_set();
        let stored = self.function.flow.dirty_in(pc).union(pinned);
        let needed = stored.intersection(self.function.flow.needed_in(pc));
        self.registers.store_apart(ir, needed);
        let known = unpinned().union(pinned);
        let dead = known.difference(self.function.flow.needed_in(pc));
        self.registers.mark_dead(ir, dead);
        self.checkpoint_at(pc);
        self.store_pc(pc);
        let service = match self.function.signature {
            Signature::Integer => Service::Poll,
            Signature::Full => Service::PollFloat,
        };
        ir.call_preserving(ir.symbol(service.symbol()));
    }

    /// Returns the number of iterations that share a poll if the block is a loop, otherwise 1.
    pub(super) fn rounds(&self, block: &Block) -> usize {
        match self.function.blocks.latches.contains_key(&block.start) {
            true => rounds(block, self.unit),
            false => 1,
        }
    }
}
