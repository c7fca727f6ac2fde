//! Lifting of one function: blocks, and the instructions in them.

use std::collections::{BTreeMap, HashMap};

use hartline_abi::hart::offset;
use hartline_isa::{Format, Instruction, Operation, RegisterOp, XReg};
use inkwell::basic_block::BasicBlock;
use inkwell::values::{FloatValue, FunctionValue, IntValue, PointerValue};

use super::Unit;
use super::checkpoints::{Before, before_each};
use super::control::calls;
use super::convention::Convention;
use super::debug::{Debug, FunctionDebug};
use super::flags::saves_flags;
use super::folded::Folded;
use super::ir::{Ir, Memory, Signature};
use super::polls::needs_poll;
use super::precise::tracked;
use super::registers::{RegisterFlow, RegisterSet, leaves_code, unpinned, uses};
use super::service::Service;
use super::state::{Places, Registers};
use super::switch::Switch;
use super::words::Words;
use crate::cfg::{Block, Function, Terminator};
use crate::technique::Technique;

/// What the semantics of a control transfer said.
#[derive(Debug, Clone, Copy)]
pub(super) enum Control<'ctx> {
    /// Nothing, or a direct jump: the terminator knows the target.
    Direct,
    /// A conditional branch.
    Condition(IntValue<'ctx>),
    /// A jump to an address, bit 0 cleared.
    Register(IntValue<'ctx>),
}

/// Variable of a jump table's index, set where the index is last known.
struct IndexVariable<'ctx> {
    register: XReg,
    low_word: bool,
    variable: PointerValue<'ctx>,
}

/// State of lifting one function.
pub(super) struct Lifter<'a, 'ctx> {
    pub(super) ir: &'a Ir<'ctx>,
    pub(super) unit: &'a Unit,
    pub(super) function: &'a Function,
    pub(super) host: FunctionValue<'ctx>,
    pub(super) signature: Signature,
    pub(super) flow: RegisterFlow<'a>,
    pub(super) registers: Registers<'ctx>,
    /// LLVM blocks of guest blocks.
    blocks: HashMap<u64, BasicBlock<'ctx>>,
    /// LLVM blocks through which back edges go, by loop header.
    pub(super) latches: HashMap<u64, BasicBlock<'ctx>>,
    /// Loop headers that poll themselves: the LLVM blocks in which they go on.
    pub(super) polled: HashMap<u64, BasicBlock<'ctx>>,
    /// The loop of one block that is being lifted several times, and where its next round is.
    pub(super) next_round: Option<(u64, BasicBlock<'ctx>)>,
    /// Where calls go that came back to another place.
    pub(super) elsewhere: Option<BasicBlock<'ctx>>,
    /// Jump tables that several jumps use, by their targets.
    pub(super) switches: BTreeMap<Vec<u64>, Switch<'ctx>>,
    /// Index variables by the address that sets them.
    indexes: HashMap<u64, Vec<IndexVariable<'ctx>>>,
    /// How the block's loads of unpinned registers address them.
    places: Option<Places<'ctx>>,
    /// Address and instruction being lifted.
    pub(super) pc: u64,
    pub(super) instruction: Option<Instruction>,
    /// Tracked registers whose `Hart` word is out of date here.
    pub(super) dirty: RegisterSet,
    /// Unpinned registers needed after the instruction.
    pub(super) live_after: RegisterSet,
    /// Unpinned registers whose value is in their variables here.
    pub(super) held: RegisterSet,
    constant_loads: Folded,
    /// The instruction is a load of these bytes.
    pub(super) folded: Option<u64>,
    /// Single-precision values of registers that were written in this block.
    pub(super) singles: [Option<FloatValue<'ctx>>; 32],
    /// Formats of registers whose value is [`raw`](Image::raw).
    pub(super) raw: [Option<Format>; 32],
    /// Words that registers were put together to in this block.
    pub(super) words: Words<'ctx>,
    /// What the instruction loaded, if that is an integer.
    pub(super) loaded: Option<IntValue<'ctx>>,
    /// The instruction leaves the exception flags as they are.
    pub(super) flag_neutral: bool,
    pub(super) control: Control<'ctx>,
    debug: Option<FunctionDebug<'a, 'ctx>>,
}

/// Adds the translation of `function` to the module of `ir`, with debug information
/// if that is wanted.
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
    let name = unit.host_name(function.entry);
    let host = ir.define(&name, signature, unit.features.llvm());
    let debug = debug.map(|debug| debug.function(host));
    let entry = ir.block(host, "entry");
    ir.position(entry);
    if let Some(debug) = &debug {
        debug.nowhere(ir);
    }
    let mut lifter = Lifter {
        ir,
        unit,
        function,
        host,
        flow: RegisterFlow::of(function, unit),
        signature,
        registers: Registers::new(
            ir,
            host,
            signature,
            unit.conventions.of_callee(function.entry),
            !unit.disabled.allows(Technique::StaleRegisters),
        ),
        blocks: HashMap::new(),
        latches: HashMap::new(),
        polled: HashMap::new(),
        next_round: None,
        elsewhere: None,
        switches: BTreeMap::new(),
        indexes: HashMap::new(),
        places: None,
        pc: function.entry,
        instruction: None,
        dirty: RegisterSet::default(),
        live_after: RegisterSet::default(),
        held: RegisterSet::default(),
        constant_loads: Folded::of(function, unit),
        folded: None,
        singles: [None; 32],
        raw: [None; 32],
        words: Words::default(),
        loaded: None,
        flag_neutral: false,
        control: Control::Direct,
        debug,
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
        for block in &self.function.blocks {
            let host = self.ir.block(self.host, &format!("b_{:x}", block.start));
            self.blocks.insert(block.start, host);
        }
        self.make_index_variables();
        self.declare_switches();
        if let Some(debug) = &self.debug {
            self.registers.describe(self.ir, debug);
        }
        let polls = self.unit.disabled.allows(Technique::Polls);
        if polls && needs_poll(self.function) {
            self.poll_at_entry();
        }
        self.enter();
        if polls {
            self.make_polls();
        }
        self.make_switches();
        if calls(self.function) {
            self.make_elsewhere();
        }
        for block in &self.function.blocks {
            let polled = self.polled.get(&block.start).copied();
            let mut host = polled.unwrap_or_else(|| self.block(block.start));
            for _ in 1..self.rounds(block) {
                let next = self.ir.block(self.host, "round");
                self.next_round = Some((block.start, next));
                self.lift_block(block, host);
                host = next;
            }
            self.next_round = None;
            self.lift_block(block, host);
        }
    }

    /// Goes on at the function's entry with the registers that it was given.
    fn enter(&mut self) {
        let entry = self.function.entry;
        self.checkpoint_at(entry);
        let given = self.registers.convention().added();
        self.held = given;
        let stored = self.flow.stored_before(entry, given);
        self.registers.store(self.ir, stored);
        self.load_for(self.flow.held_in(entry));
        self.ir.jump(self.block(entry));
    }

    /// The LLVM block of the guest block at `pc`, which the function has.
    pub(super) fn block(&self, pc: u64) -> BasicBlock<'ctx> {
        self.blocks[&pc]
    }

    fn make_index_variables(&mut self) {
        for block in &self.function.blocks {
            let Terminator::JumpTable(table) = &block.terminator else {
                continue;
            };
            let Some(index) = table.index else { continue };
            let variable = self.ir.variable(self.ir.int, "index");
            self.ir.set(variable, self.ir.constant(u64::MAX));
            let variables = self.indexes.entry(index.pc).or_default();
            if variables
                .iter()
                .all(|v| v.register != index.register || v.low_word != index.low_word)
            {
                variables.push(IndexVariable {
                    register: index.register,
                    low_word: index.low_word,
                    variable,
                });
            }
        }
    }

    /// The variable that holds the index of a jump table.
    pub(super) fn index_variable(&self, index: &crate::cfg::Index) -> Option<PointerValue<'ctx>> {
        self.indexes
            .get(&index.pc)?
            .iter()
            .find(|v| v.register == index.register && v.low_word == index.low_word)
            .map(|v| v.variable)
    }

    fn lift_block(&mut self, block: &Block, host: BasicBlock<'ctx>) {
        self.ir.position(host);
        self.dirty = self.flow.dirty_in(block.start);
        self.held = self.flow.held_in(block.start);
        self.places = Some(Places::for_loads(self.ir, self.loaded_in(block)));
        self.singles = [None; 32];
        self.raw = [None; 32];
        self.forget_words();
        self.control = Control::Direct;
        let live = self.flow.live_after_each(block);
        let checkpoints = before_each(block, self.unit);
        let mut saved = None;
        for (index, &(pc, instruction)) in block.instructions.iter().enumerate() {
            self.pc = pc;
            if let Some(debug) = &self.debug {
                debug.at(self.ir, pc);
            }
            self.live_after = live[index + 1];
            self.folded = self.constant_loads.get(block.start, pc);
            self.save_indexes();
            if saves_flags(&block.instructions[index..], &self.unit.features) {
                saved = Some(index);
            }
            let since = saved.map(|saved| index - saved);
            self.flag_neutral = since == Some(1);
            // The comparison has left the flags alone, so there is nothing to restore.
            if since != Some(2) && !matches!(block.terminator, Terminator::TopByte(_)) {
                self.lift_instruction(instruction, checkpoints[index]);
            }
        }
        self.settle(self.flow.needed_at_end(block));
        self.terminate(block);
    }

    fn save_indexes(&mut self) {
        let Some(variables) = self.indexes.remove(&self.pc) else {
            return;
        };
        for index in &variables {
            self.load_read(RegisterSet {
                x: 1 << index.register.index(),
                f: 0,
            });
            let number = index.register.index();
            let mut value = if number == 0 {
                self.ir.constant(0)
            } else {
                self.registers.x(self.ir, number)
            };
            if index.low_word {
                value = self.ir.zero_extend(self.ir.truncate(value, 32), 64);
            }
            self.ir.set(index.variable, value);
        }
        self.indexes.insert(self.pc, variables);
    }

    /// Registers that a block loads where it reads them.
    fn loaded_in(&self, block: &Block) -> RegisterSet {
        let mut held = self.held;
        let mut loaded = RegisterSet::default();
        for (_, instruction) in &block.instructions {
            if leaves_code(instruction, &self.unit.features) {
                break;
            }
            let (read, written) = uses(instruction);
            loaded = loaded.union(read.intersection(unpinned()).difference(held));
            held = held.union(read).union(written);
        }
        loaded
    }

    /// Loads those of the registers `read` that are not in their variables.
    pub(super) fn load_read(&mut self, read: RegisterSet) {
        let read = read.intersection(unpinned());
        let loaded = read.difference(self.held);
        match &self.places {
            Some(places) => self.registers.load_from(self.ir, loaded, places),
            None => self.registers.load(self.ir, loaded),
        }
        self.held = self.held.union(read);
    }

    /// The same on one of several ways from here.
    pub(super) fn load_for(&self, held: RegisterSet) {
        self.registers.load(self.ir, held.difference(self.held));
    }

    fn lift_instruction(&mut self, instruction: Instruction, before: Before) {
        self.instruction = Some(instruction);
        self.checkpoint_before(before);
        self.settle_before(&instruction);
        let (read, written) = uses(&instruction);
        if !leaves_code(&instruction, &self.unit.features) {
            self.load_read(read);
        }
        if self.unit.features.interprets(&instruction) {
            self.interpret();
        } else {
            self.execute_with_words(&instruction);
        }
        if !leaves_code(&instruction, &self.unit.features) {
            self.dirty = self.dirty.union(written.intersection(tracked(self.unit)));
            self.held = self.held.union(written.intersection(unpinned()));
            self.checkpoint_after(&instruction);
        }
    }

    /// The run-time address of the guest's link-time address `link`.
    pub(super) fn guest_address(&self, link: u64) -> IntValue<'ctx> {
        let constant = self.ir.constant(link);
        if !self.unit.position_independent {
            return constant;
        }
        let data = self.ir.symbol(super::symbol::DATA);
        let bias = self.ir.load_int(64, data, Memory::Image);
        self.ir
            .built(self.ir.builder().build_int_add(bias, constant, ""))
    }

    /// Tells a [`Service`] the guest pc.
    pub(super) fn store_pc(&self, link: u64) {
        self.ir.store_hart(offset::PC, self.ir.constant(link));
    }

    /// Has the runtime do something with the instruction at the current pc: all
    /// registers are in the `Hart` structure meanwhile, and come back changed.
    pub(super) fn call_runtime(&mut self, service: Service) {
        self.leave_and_return(service);
        self.dirty = RegisterSet::default();
        self.held = RegisterSet::default();
        self.places = None;
        if !self.unit.disabled.allows(Technique::LateLoads) {
            self.load_read(self.live_after);
        }
        self.singles = [None; 32];
        self.forget_words();
    }

    /// The same on one of several ways through the current instruction.
    pub(super) fn call_runtime_aside(&mut self, service: Service) {
        self.leave_and_return(service);
        let written = self.instruction.map(|instruction| uses(&instruction).1);
        // As the other ways have them.
        let held = self.held.union(written.unwrap_or_default());
        self.registers
            .load(self.ir, held.intersection(self.live_after));
    }

    fn leave_and_return(&self, service: Service) {
        self.registers.store(self.ir, self.dirty);
        self.store_pc(self.pc);
        self.call_service(service);
        let length = self
            .instruction
            .map_or(0, |instruction| instruction.length());
        self.checkpoint_at(self.pc + u64::from(length));
    }

    /// Calls a service that takes the pinned registers and gives them back.
    pub(super) fn call_service(&self, service: Service) {
        let callee = self.ir.symbol(service.symbol());
        let standard = Convention::STANDARD;
        let all = RegisterSet::ALL;
        let arguments = self.registers.pinned_arguments(self.ir, all, &standard);
        let state = self.ir.call_guest(self.signature, callee, &arguments);
        self.registers.set_pinned(self.ir, state, &standard);
    }

    /// Leaves the function for a service, for good.
    pub(super) fn leave_to_service(&self, service: Service) {
        let callee = self.ir.symbol(service.symbol());
        self.leave(callee, RegisterSet::ALL);
    }

    /// Leaves the function for code that needs the registers `needed`, for good: what it
    /// returns is the function's result. The `Hart` structure is up to date.
    pub(super) fn leave(&self, callee: PointerValue<'ctx>, needed: RegisterSet) {
        let ir = self.ir;
        let standard = Convention::STANDARD;
        let own = self.registers.convention();
        let arguments = self.registers.pinned_arguments(ir, needed, &standard);
        if own == standard {
            return ir.tail_call_guest(self.signature, callee, &arguments);
        }
        let state = ir.call_guest(self.signature, callee, &arguments);
        self.registers.set_pinned(ir, state, &standard);
        self.registers.load(ir, own.added());
        let results = self.registers.pinned_values(ir, RegisterSet::ALL, &own);
        ir.return_pinned(self.signature, &results);
    }

    /// Has the interpreter execute the current instruction.
    pub(super) fn interpret(&mut self) {
        self.call_runtime(Service::InterpretOne);
    }
}
