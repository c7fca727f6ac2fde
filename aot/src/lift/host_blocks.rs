//! LLVM blocks of the function that is lifted, except blocks within single instructions.

use std::collections::{BTreeMap, HashMap};

use hartline_isa::XReg;
use inkwell::basic_block::BasicBlock;
use inkwell::values::PointerValue;

use crate::cfg::Edge;

/// LLVM blocks that edges of the guest function lead to.
#[derive(Default)]
pub(super) struct HostBlocks<'ctx> {
    /// By start address of the guest block.
    pub(super) guest: HashMap<u64, BasicBlock<'ctx>>,
    /// LLVM blocks that back edges go through, by loop header.
    pub(super) latches: HashMap<u64, BasicBlock<'ctx>>,
    /// Continuation blocks of the loop headers that poll themselves.
    pub(super) polled: HashMap<u64, BasicBlock<'ctx>>,
    /// The target of calls that returned to another address than expected.
    pub(super) mismatched_return: Option<BasicBlock<'ctx>>,
    /// Jump tables that several jumps use, by their targets.
    pub(super) switches: BTreeMap<Vec<u64>, Switch<'ctx>>,
}

/// A switch that several jumps lead to. The handlers of a bytecode interpreter each end
/// in a jump through the same table: a switch for each would give the function as many
/// edges as the product of jumps and targets.
pub(super) struct Switch<'ctx> {
    /// The variable of the entry's number, which is in range.
    pub(super) number: PointerValue<'ctx>,
    pub(super) block: BasicBlock<'ctx>,
    /// Targets by number. An edge is a back edge if it is one for any of the jumps.
    pub(super) targets: Vec<Edge>,
}

/// The variable of a jump table's index, set where the index is last known.
pub(super) struct IndexVariable<'ctx> {
    pub(super) register: XReg,
    pub(super) low_word: bool,
    pub(super) variable: PointerValue<'ctx>,
}
