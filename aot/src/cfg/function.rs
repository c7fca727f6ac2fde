//! A recovered function: basic blocks and their terminators.

use std::ops::Range;

use hartline_isa::{Instruction, XReg};

/// The kind of successor an [`Edge`] leads to.
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

/// A CFG edge from a block to the instruction at `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The guest address (link-time) of the successor.
    pub target: u64,
    /// The kind of the successor.
    pub kind: EdgeKind,
}

impl Edge {
    /// True if the target is a block of the same function.
    #[must_use]
    pub fn is_internal(self) -> bool {
        self.kind != EdgeKind::External
    }
}

/// The location of a jump table's index: the value of `register` immediately before the instruction
/// at `pc` executes. That instruction is in the block that ends in the jump or in a block that
/// dominates it. It comes after every other instruction of its block that would change the value.
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
    /// The index. `None`: only the set of targets is known, and the jump's target address is
    /// compared.
    pub index: Option<Index>,
    /// Whether the index determines the target. Otherwise the index only predicts the target, and
    /// the jump's target address must be compared with the entry's.
    pub certain: bool,
    /// With an index: the target for each value from 0; a larger index has an unknown target.
    /// Without an index: the likely targets, sorted and distinct.
    pub targets: Vec<Edge>,
}

impl JumpTable {
    /// Whether `targets` are the addresses of its targets.
    #[must_use]
    pub fn leads_to(&self, targets: &[u64]) -> bool {
        let own = self.targets.iter().map(|edge| edge.target);
        own.eq(targets.iter().copied())
    }
}

/// A search for the most significant nonzero byte of a register, as one terminator
/// ([`find_searches`](super::find_searches)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopByte {
    /// The register that is searched.
    pub value: XReg,
    /// The register for the value, shifted so that the byte found is the lowest one.
    pub shifted: XReg,
    /// The register for the byte found.
    pub byte: XReg,
    /// The register for the shift amount in bits, a multiple of 8.
    pub count: XReg,
    /// The successor if the byte found is not the lowest one of the value.
    pub found: Edge,
    /// The successor if it is, or if the value is zero: the three registers are 0.
    pub none: Edge,
}

/// The end of a block. The block's last instruction is the terminator, except for
/// [`FallThrough`](Terminator::FallThrough) and [`Illegal`](Terminator::Illegal), which have no
/// instruction.
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
        /// The successor if the condition holds.
        taken: Edge,
        /// The successor if it does not hold: the next instruction.
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
    /// A loop that was collapsed into this block; the block's instructions are one iteration.
    TopByte(TopByte),
    /// `ebreak`.
    Trap,
    /// The bytes at `pc` are not an instruction.
    Illegal {
        /// The address of the bytes; the block has no instruction there.
        pc: u64,
    },
}

/// A basic block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Instructions and their addresses, in order. Blocks may overlap where a
    /// program jumps into the middle of an instruction.
    pub instructions: Vec<(u64, Instruction)>,
    /// Its terminator.
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

    /// Whether the function calls other functions.
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

    /// The addresses from its first instruction to the end of its last one, which may be a return
    /// address.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let starts = self.blocks.iter().map(|block| block.start);
        let ends = self.blocks.iter().filter_map(|block| {
            let (pc, instruction) = block.instructions.last()?;
            Some(pc.saturating_add(instruction.length().into()))
        });
        let start = starts.min().unwrap_or(self.entry);
        let end = ends.max().unwrap_or(self.entry);
        start..end.max(start).saturating_add(1)
    }
}

impl Terminator {
    /// Whether the terminator is a call, direct or indirect.
    #[must_use]
    pub fn is_call(&self) -> bool {
        matches!(
            self,
            Terminator::Call { .. } | Terminator::CallIndirect { .. }
        )
    }

    /// Returns every known successor, external ones included, in a fixed order; the callee of a
    /// call is not included.
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

    /// Returns the edges of [`edges`](Terminator::edges), mutably.
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
