//! The state of lifting one function, grouped by the lifetime of each part, and operations on it
//! that all parts of lifting use.

use std::collections::HashMap;

use hartline_abi::hart::offset;
use hartline_isa::{Format, Instruction};
use inkwell::basic_block::BasicBlock;
use inkwell::values::{FloatValue, FunctionValue, IntValue};

use super::debug::FunctionDebug;
use super::guest_registers::{GuestRegisters, HartSlots};
use super::host_blocks::{HostBlocks, IndexVariable};
use super::ir::{Ir, Memory, Signature};
use super::symbol;
use crate::analysis::{ConstantLoads, LoadCombiner, RegisterFlow, RegisterSet, Unit, unpinned};
use crate::cfg::Function;

/// The control transfer of a block's last instruction, from its semantics.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Control<'ctx> {
    /// No transfer, or a direct jump: the terminator has the target.
    #[default]
    Direct,
    /// A conditional branch.
    Condition(IntValue<'ctx>),
    /// A jump to an address, bit 0 cleared.
    Register(IntValue<'ctx>),
}

/// Lifts one function. As a [`Machine`](hartline_isa::Machine) it generates the code of an
/// instruction.
pub(super) struct Lifter<'a, 'ctx> {
    /// The module that the function is added to.
    pub(super) ir: &'a Ir<'ctx>,
    /// The file that the function is in.
    pub(super) unit: &'a Unit,
    /// Variables of the guest registers.
    pub(super) registers: GuestRegisters<'ctx>,
    /// The function.
    pub(super) function: FunctionState<'a, 'ctx>,
    /// The block that is being lifted.
    pub(super) block: BlockState<'ctx>,
    /// The instruction that is being lifted.
    pub(super) instruction: InstructionState<'ctx>,
}

/// State of a function as a whole: results of its analyses, and its LLVM blocks.
pub(super) struct FunctionState<'a, 'ctx> {
    pub(super) guest: &'a Function,
    pub(super) host: FunctionValue<'ctx>,
    pub(super) signature: Signature,
    /// The locations of its registers.
    pub(super) flow: RegisterFlow<'a>,
    /// Loads that are folded.
    pub(super) constant_loads: ConstantLoads,
    pub(super) blocks: HostBlocks<'ctx>,
    /// Variables of jump table indexes by the address that sets them.
    pub(super) indexes: HashMap<u64, Vec<IndexVariable<'ctx>>>,
    pub(super) debug: Option<FunctionDebug<'a, 'ctx>>,
}

/// State at the current point of a block, which is dropped at the end of the block.
#[derive(Default)]
pub(super) struct BlockState<'ctx> {
    /// The single-block loop that is being lifted several times, and the LLVM block of its next
    /// iteration.
    pub(super) next_round: Option<(u64, BasicBlock<'ctx>)>,
    /// The addressing of the block's loads of unpinned registers.
    pub(super) slots: Option<HartSlots<'ctx>>,
    /// Tracked registers whose `Hart` word is out of date.
    pub(super) dirty: RegisterSet,
    /// Unpinned registers whose value is in their variables.
    pub(super) resident: RegisterSet,
    /// Single-precision values of registers that were written in this block.
    pub(super) singles: [Option<FloatValue<'ctx>>; 32],
    /// Formats of registers whose value is [`raw`](super::register_image::RegisterImage::raw).
    pub(super) raw: [Option<Format>; 32],
    /// Whether `frm` is RNE.
    pub(super) rounds_to_nearest: bool,
    /// Loads of this block that may be combined.
    pub(super) combiner: LoadCombiner<IntValue<'ctx>>,
    pub(super) control: Control<'ctx>,
    /// Link-time addresses that registers hold, plus the load bias.
    pub(super) links: [Option<u64>; 32],
}

impl BlockState<'_> {
    /// Resets the state after the runtime executed an instruction: all registers are in the `Hart`
    /// structure.
    pub(super) fn forget(&mut self) {
        self.slots = None;
        self.dirty = RegisterSet::default();
        self.resident = RegisterSet::default();
        self.singles = [None; 32];
        self.rounds_to_nearest = false;
        self.combiner = LoadCombiner::default();
        self.links = [None; 32];
    }
}

/// State of one instruction.
#[derive(Default)]
pub(super) struct InstructionState<'ctx> {
    /// Its link-time address.
    pub(super) pc: u64,
    pub(super) decoded: Option<Instruction>,
    /// Unpinned registers needed after it.
    pub(super) live_after: RegisterSet,
    /// The bytes that it loads, if they are constant.
    pub(super) constant: Option<u64>,
    /// The integer that it loaded.
    pub(super) loaded: Option<IntValue<'ctx>>,
    /// The run-time address that it computed, and its link-time address.
    pub(super) link: Option<(IntValue<'ctx>, u64)>,
    /// The register that it sets to a link-time address.
    pub(super) written_link: Option<(usize, u64)>,
    /// The integers that it read last that are run-time addresses, with their link-time addresses.
    pub(super) bases: [Option<(IntValue<'ctx>, u64)>; 2],
    /// It leaves the exception flags as they are.
    pub(super) flag_neutral: bool,
}

impl<'ctx> Lifter<'_, 'ctx> {
    /// Adds an LLVM block at the end of the function.
    pub(super) fn new_block(&self, name: &str) -> BasicBlock<'ctx> {
        self.ir.block(self.function.host, name)
    }

    /// Returns the LLVM block of the guest block at `pc`, which must be in the function.
    pub(super) fn host_block(&self, pc: u64) -> BasicBlock<'ctx> {
        self.function.blocks.guest[&pc]
    }

    /// Loads the registers of `read` that are not in their variables.
    pub(super) fn load_read(&mut self, read: RegisterSet) {
        let read = read.intersection(unpinned());
        let loaded = read.difference(self.block.resident);
        match &self.block.slots {
            Some(slots) => self.registers.load_from(self.ir, loaded, slots),
            None => self.registers.load(self.ir, loaded),
        }
        self.block.resident = self.block.resident.union(read);
    }

    /// Loads the registers of `needed` that are not in their variables, on one of several edges
    /// from here.
    pub(super) fn load_for(&self, needed: RegisterSet) {
        self.registers
            .load(self.ir, needed.difference(self.block.resident));
    }

    /// Returns the run-time address of the guest's link-time address `link`.
    pub(super) fn guest_address(&self, link: u64) -> IntValue<'ctx> {
        self.biased(self.ir.link_address(link))
    }

    /// Adds the load bias to a link-time address.
    pub(super) fn biased(&self, constant: IntValue<'ctx>) -> IntValue<'ctx> {
        if !self.unit.position_independent {
            return constant;
        }
        let data = self.ir.symbol(symbol::DATA);
        let bias = self.ir.load_int(64, data, Memory::Image);
        self.ir
            .built(self.ir.builder().build_int_add(bias, constant, ""))
    }

    /// Stores the guest pc for a [`Service`](super::Service).
    pub(super) fn store_pc(&self, link: u64) {
        self.ir.store_hart(offset::PC, self.ir.link_address(link));
    }
}
