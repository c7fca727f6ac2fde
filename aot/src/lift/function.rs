//! Lifting of one function: its blocks and instructions.

use std::collections::HashMap;

use hartline_abi::hart::{PINNED_F, PINNED_X};
use hartline_isa::{Instruction, Operation, RegisterOp};
use inkwell::basic_block::BasicBlock;
use inkwell::values::FunctionValue;

use super::debug::Debug;
use super::guest_registers::{GuestRegisters, HartSlots};
use super::host_blocks::HostBlocks;
use super::ir::{HostFunction, Ir, Signature};
use super::lifter::{BlockState, FunctionState, InstructionState, Lifter};
use crate::analysis::{
    Before, ConstantLoads, Features, RegisterFlow, RegisterSet, Unit, before_each, needs_poll,
    saves_flags, tracked, unpinned, uses,
};
use crate::cfg::{Block, EdgeKind, Function, Terminator};
use crate::technique::Technique;

/// Returns the name of the host function with the code of the guest function at `entry`.
#[must_use]
pub fn host_name(ir: &Ir<'_>, unit: &Unit, entry: u64) -> String {
    let own = unit.conventions.is_own(entry);
    let number = ir.function_number(entry);
    HostFunction { number, own }.name()
}

/// Adds the translation of `function` to the module of `ir`, with debug information if requested.
pub fn lift<'ctx>(
    ir: &Ir<'ctx>,
    unit: &Unit,
    function: &Function,
    debug: Option<&Debug<'ctx>>,
) -> FunctionValue<'ctx> {
    let signature = match unit.disabled.allows(Technique::IntegerSignature) {
        true => signature(function),
        false => Signature::Full,
    };
    ir.set_precise(unit.precise);
    ir.start_function(function.entry, function.extent());
    let name = host_name(ir, unit, function.entry);
    let host = ir.define(&name, signature, unit.features.llvm());
    let debug = debug.map(|debug| debug.function(host));
    let entry = ir.block(host, "entry");
    ir.position(entry);
    if let Some(debug) = &debug {
        debug.nowhere(ir);
    }
    let registers = GuestRegisters::new(
        ir,
        host,
        signature,
        unit.conventions.of_callee(function.entry),
        !unit.disabled.allows(Technique::StaleRegisters),
        match unit.parks_registers && !unit.conventions.is_own(function.entry) {
            true => parked(function, signature),
            false => RegisterSet::default(),
        },
    );
    let mut lifter = Lifter {
        ir,
        unit,
        registers,
        function: FunctionState {
            guest: function,
            host,
            signature,
            flow: RegisterFlow::of(function, unit),
            constant_loads: ConstantLoads::of(function, unit),
            blocks: HostBlocks::default(),
            indexes: HashMap::new(),
            debug,
        },
        block: BlockState::default(),
        instruction: InstructionState {
            pc: function.entry,
            ..InstructionState::default()
        },
    };
    lifter.lift();
    host
}

/// Whether a function needs the floating-point registers; carry-less products use
/// the SSE registers too.
fn signature(function: &Function) -> Signature {
    let mut instructions = function.blocks.iter().flat_map(|block| &block.instructions);
    let float = instructions.any(|(_, instruction)| {
        let uses = instruction.register_use();
        let carryless = matches!(
            instruction.operation(),
            Operation::Register {
                op: RegisterOp::Zbc(_),
                ..
            }
        );
        uses.f_read | uses.f_written != 0 || carryless
    });
    if float {
        Signature::Full
    } else {
        Signature::Integer
    }
}

impl<'ctx> Lifter<'_, 'ctx> {
    fn lift(&mut self) {
        let guest = self.function.guest;
        for block in &guest.blocks {
            let host = self.new_block(&format!("b_{:x}", block.start));
            self.function.blocks.guest.insert(block.start, host);
        }
        self.make_index_variables();
        self.declare_switches();
        if let Some(debug) = &self.function.debug {
            self.registers.describe(self.ir, debug);
        }
        let polls = self.unit.disabled.allows(Technique::Polls);
        if polls && needs_poll(guest) {
            self.poll_at_entry();
        }
        self.enter();
        if polls {
            self.make_polls();
        }
        self.make_switches();
        if guest.calls() {
            self.make_mismatched_return();
        }
        for block in &guest.blocks {
            self.lift_rounds(block);
        }
    }

    /// Starts at the function's entry with the registers of its argument set.
    fn enter(&mut self) {
        let entry = self.function.guest.entry;
        self.checkpoint_at(entry);
        let arguments = self.registers.convention().added();
        self.block.resident = arguments;
        let stored = self.function.flow.stored_before(entry, arguments);
        self.registers.store(self.ir, stored);
        self.load_for(self.function.flow.resident_in(entry));
        self.ir.jump(self.host_block(entry));
    }

    /// Lifts a block once for each iteration that shares a poll.
    fn lift_rounds(&mut self, block: &Block) {
        let polled = self.function.blocks.polled.get(&block.start).copied();
        let mut host = polled.unwrap_or_else(|| self.host_block(block.start));
        for _ in 1..self.rounds(block) {
            let next = self.new_block("round");
            self.lift_block(block, host, Some((block.start, next)));
            host = next;
        }
        self.lift_block(block, host, None);
    }

    fn lift_block(
        &mut self,
        block: &Block,
        host: BasicBlock<'ctx>,
        next_round: Option<(u64, BasicBlock<'ctx>)>,
    ) {
        self.ir.position(host);
        let flow = &self.function.flow;
        self.block = BlockState {
            next_round,
            slots: Some(HartSlots::for_loads(self.ir, flow.loaded_in(block))),
            dirty: flow.dirty_in(block.start),
            resident: flow.resident_in(block.start),
            links: self.links_at(block.start),
            ..BlockState::default()
        };
        let live = flow.live_after_each(block);
        let checkpoints = before_each(block, self.unit);
        let mut saved = None;
        for (index, &(pc, instruction)) in block.instructions.iter().enumerate() {
            if let Some(debug) = &self.function.debug {
                debug.at(self.ir, pc);
            }
            if saves_flags(&block.instructions[index..], &self.unit.features) {
                saved = Some(index);
            }
            let since = saved.map(|saved| index - saved);
            self.instruction = InstructionState {
                pc,
                decoded: Some(instruction),
                live_after: live[index + 1],
                constant: self.function.constant_loads.get(block.start, pc),
                loaded: None,
                link: None,
                written_link: None,
                bases: [None; 2],
                flag_neutral: since == Some(1),
            };
            self.save_indexes();
            // The comparison has not changed the flags, so the restoring instruction is skipped.
            if since != Some(2) && !matches!(block.terminator, Terminator::TopByte(_)) {
                self.lift_instruction(&instruction, checkpoints[index]);
            }
        }
        self.settle(self.function.flow.needed_at_end(block));
        self.terminate(block);
    }

    fn lift_instruction(&mut self, instruction: &Instruction, before: Before) {
        self.checkpoint_before(before);
        self.settle_before(instruction);
        let (read, written) = uses(instruction);
        let features = &self.unit.features;
        let leaves_code = features.leaves_code(instruction);
        if !leaves_code {
            self.load_read(read);
        }
        if features.interprets(instruction) {
            self.interpret();
        } else {
            if Features::needs_nearest(instruction) {
                self.check_nearest();
            }
            self.execute_combining(instruction);
        }
        self.note_links(written);
        if !leaves_code {
            let block = &mut self.block;
            block.dirty = block.dirty.union(written.intersection(tracked(self.unit)));
            block.resident = block.resident.union(written.intersection(unpinned()));
            self.checkpoint_after(instruction);
        }
    }
}

/// The pinned registers that a function with a loop only passes on, if there are too few host registers for
/// them beside those that it computes with. LLVM would keep them in host registers, because each exit of the
/// function needs them there, and spill in the loop what the loop computes.
fn parked(function: &Function, signature: Signature) -> RegisterSet {
    /// Host registers for 64-bit integers, without those for addresses and intermediate results.
    const INTEGERS: u32 = 12;
    /// As [`INTEGERS`], for floating point.
    const FLOATS: u32 = 14;
    let blocks = &function.blocks;
    let mut edges = blocks.iter().flat_map(|block| block.terminator.edges());
    if !edges.any(|edge| edge.kind == EdgeKind::Back) {
        return RegisterSet::default();
    }
    let instructions = blocks.iter().flat_map(|block| &block.instructions);
    let used = instructions.fold(RegisterSet::default(), |used, entry| {
        let uses = entry.1.register_use();
        RegisterSet {
            x: used.x | uses.x_read | uses.x_written,
            f: used.f | uses.f_read | uses.f_written,
        }
    });
    let set = |numbers: &[u8]| numbers.iter().fold(0u32, |set, &n| set | 1 << n);
    let only_passed = |pinned: u32, used: u32, room: u32| {
        let passed = pinned & !used;
        match (passed | used).count_ones() > room {
            true => passed,
            false => 0,
        }
    };
    RegisterSet {
        x: only_passed(set(&PINNED_X), used.x, INTEGERS),
        f: match signature {
            Signature::Integer => 0,
            Signature::Full => only_passed(set(&PINNED_F), used.f, FLOATS),
        },
    }
}
