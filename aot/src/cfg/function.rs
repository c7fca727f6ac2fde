//! A recovered function: basic blocks and how control leaves them.

use hartline_isa::{Instruction, XReg};

/// What kind of successor an [`Edge`] leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// A block of the same function, by an edge that closes no loop.
    Forward,
    /// A block of the same function that is on the depth-first path to this one:
    /// every cycle of a function has at least one such edge. The block it leads
    /// to has [`Block::is_loop_header`].
    Back,
    /// Another function, or an address that is no known entry.
    External,
}

/// A way from a block to the instruction at `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// Guest address (link-time) control goes to.
    pub target: u64,
    /// Where that is.
    pub kind: EdgeKind,
}

impl Edge {
    /// True if the target is a block of the same function.
    #[must_use]
    pub fn is_internal(self) -> bool {
        self.kind != EdgeKind::External
    }
}

/// Where the index of a jump table is found: the value that `register` has
/// immediately before the instruction at `pc` executes. That instruction is in
/// the block that ends in the jump or in one that dominates it, and comes after
/// every other instruction of its block that would change the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Index {
    /// Address of the instruction that scales the index.
    pub pc: u64,
    /// Its index operand.
    pub register: XReg,
    /// Only the low 32 bits count, zero-extended; otherwise all 64 bits.
    pub low_word: bool,
}

/// An indirect jump through a table in read-only memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpTable {
    /// The index. `None`: only the set of targets is known, and the jump's
    /// target address is what to compare.
    pub index: Option<Index>,
    /// Whether the index tells the target. Otherwise it does so most likely: the
    /// jump's target address must be compared with that of the entry.
    pub certain: bool,
    /// With an index: the target for each value from 0; a larger index has an
    /// unknown target. Without: the likely targets, sorted, each once.
    pub targets: Vec<Edge>,
}

impl JumpTable {
    /// Whether these are the addresses of its targets.
    #[must_use]
    pub fn leads_to(&self, targets: &[u64]) -> bool {
        let own = self.targets.iter().map(|edge| edge.target);
        own.eq(targets.iter().copied())
    }
}

/// A search for the most significant byte of a register that is not zero, as a whole
/// ([`find_searches`](super::find_searches)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopByte {
    /// Where it looks.
    pub value: XReg,
    /// Then holds the value, shifted so that the byte is the lowest one.
    pub shifted: XReg,
    /// Then holds the byte.
    pub byte: XReg,
    /// Then holds by how many bits that was, a multiple of 8.
    pub count: XReg,
    /// Where the loop goes if the byte is not the lowest one of the value.
    pub found: Edge,
    /// Where it goes if it is, or there is none: the three registers are 0.
    pub none: Edge,
}

/// How a block ends. The instruction responsible is the block's last one, except
/// for [`FallThrough`](Terminator::FallThrough) and
/// [`Illegal`](Terminator::Illegal), which stand for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terminator {
    /// The next instruction starts another block, or is beyond the function.
    FallThrough {
        /// The next instruction.
        next: Edge,
    },
    /// Direct jump: `jal` that links no return address in `ra`, or `auipc` + `jalr`.
    /// A link register other than `ra` is written by the instruction. External: a
    /// tail call.
    Jump {
        /// Destination.
        target: Edge,
    },
    /// Conditional branch.
    Branch {
        /// Where the condition holds.
        taken: Edge,
        /// Where it does not: the next instruction.
        not_taken: Edge,
    },
    /// Call of a known address that links in `ra`: `jal`, or `auipc` + `jalr`.
    Call {
        /// Entry of the callee.
        target: u64,
        /// The instruction after the call.
        return_to: Edge,
        /// The callee looks like `setjmp`: it may return here again later.
        returns_twice: bool,
    },
    /// Call of an address in a register that links in `ra`.
    CallIndirect {
        /// The instruction after the call.
        return_to: Edge,
    },
    /// `jalr x0, 0(ra)`.
    Return,
    /// Indirect jump with known targets; a target not listed is dispatched.
    JumpTable(JumpTable),
    /// Any other indirect jump. A link register other than `ra` is written by the
    /// instruction.
    JumpIndirect,
    /// A loop that was put into this block, whose instructions are those of a round.
    TopByte(TopByte),
    /// `ebreak`.
    Trap,
    /// The bytes at `pc` are not an instruction.
    Illegal {
        /// Their address; the block has no instruction there.
        pc: u64,
    },
}

/// Straight-line code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Instructions and their addresses, in order. Blocks may overlap where a
    /// program jumps into the middle of an instruction.
    pub instructions: Vec<(u64, Instruction)>,
    /// How it ends.
    pub terminator: Terminator,
    /// A [`EdgeKind::Back`] edge leads here.
    pub is_loop_header: bool,
}

impl Block {
    /// Address after its last instruction.
    #[must_use]
    pub fn end(&self) -> u64 {
        let last = self.instructions.last();
        last.map_or(self.start, |(pc, instruction)| {
            pc + u64::from(instruction.length())
        })
    }
}

/// A function: the code reached from one entry without calls.
///
/// Functions may share blocks (several entries to the same code).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Address of the entry; a block starts there.
    pub entry: u64,
    /// Name of the symbol at the entry, if there is one.
    pub name: Option<String>,
    /// Blocks sorted by start; not empty.
    pub blocks: Vec<Block>,
}

impl Function {
    /// The block that starts at `pc`.
    #[must_use]
    pub fn block(&self, pc: u64) -> Option<&Block> {
        let position = self.blocks.binary_search_by_key(&pc, |block| block.start);
        position.ok().map(|index| &self.blocks[index])
    }

    /// Whether it calls other functions.
    #[must_use]
    pub fn calls(&self) -> bool {
        self.blocks.iter().any(|block| block.terminator.is_call())
    }

    /// Number of instructions in all blocks.
    #[must_use]
    pub fn instruction_count(&self) -> usize {
        self.blocks
            .iter()
            .map(|block| block.instructions.len())
            .sum()
    }
}

impl Terminator {
    /// Whether it is a call, of a known address or not.
    #[must_use]
    pub fn is_call(&self) -> bool {
        matches!(
            self,
            Terminator::Call { .. } | Terminator::CallIndirect { .. }
        )
    }

    /// Every known successor, external ones included, in a fixed order; not the
    /// callee of a call.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        let (first, second, table): (Option<&Edge>, Option<&Edge>, &[Edge]) = match self {
            Terminator::FallThrough { next: edge }
            | Terminator::Jump { target: edge }
            | Terminator::Call {
                return_to: edge, ..
            }
            | Terminator::CallIndirect { return_to: edge } => (Some(edge), None, &[]),
            Terminator::Branch { taken, not_taken } => (Some(taken), Some(not_taken), &[]),
            Terminator::TopByte(TopByte { found, none, .. }) => (Some(found), Some(none), &[]),
            Terminator::JumpTable(table) => (None, None, &table.targets),
            Terminator::Return
            | Terminator::JumpIndirect
            | Terminator::Trap
            | Terminator::Illegal { .. } => (None, None, &[]),
        };
        first.into_iter().chain(second).chain(table)
    }

    /// As [`edges`](Terminator::edges), to change.
    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        let (first, second, table): (Option<&mut Edge>, Option<&mut Edge>, &mut [Edge]) = match self
        {
            Terminator::FallThrough { next: edge }
            | Terminator::Jump { target: edge }
            | Terminator::Call {
                return_to: edge, ..
            }
            | Terminator::CallIndirect { return_to: edge } => (Some(edge), None, &mut []),
            Terminator::Branch { taken, not_taken } => (Some(taken), Some(not_taken), &mut []),
            Terminator::TopByte(TopByte { found, none, .. }) => (Some(found), Some(none), &mut []),
            Terminator::JumpTable(table) => (None, None, &mut table.targets),
            Terminator::Return
            | Terminator::JumpIndirect
            | Terminator::Trap
            | Terminator::Illegal { .. } => (None, None, &mut []),
        };
        first.into_iter().chain(second).chain(table)
    }
}
