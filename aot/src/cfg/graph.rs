//! Predecessors, loops, and reaching definitions of registers.

use super::constants::written;
use super::function::{Block, EdgeKind, Terminator};
use hartline_isa::{Instruction, XReg};
use std::collections::HashSet;

/// Integer registers that a call may change (psABI, "Integer Calling Convention"):
/// `ra`, `t0`–`t6`, `a0`–`a7`.
const CALL_CLOBBERED: u32 = 0xf003_fce2;
/// The longest chain of blocks that is followed.
const MAX_CHAIN: usize = 64;
/// The most definitions that are examined together.
const MAX_DEFINITIONS: usize = 8;

/// Returns the index of the block that starts at `pc`.
pub(super) fn block_index(blocks: &[Block], pc: u64) -> Option<usize> {
    blocks.binary_search_by_key(&pc, |block| block.start).ok()
}

/// Marks the edges that close loops and the loop headers, and drops unreachable blocks.
pub(super) fn mark_loops(blocks: &mut Vec<Block>, entry: u64) {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; blocks.len()];
    let mut path: Vec<(usize, usize)> = Vec::new();
    let Some(first) = block_index(blocks, entry) else {
        return;
    };
    state[first] = State::Open;
    path.push((first, 0));
    while let Some((block, edge)) = path.last_mut() {
        let block = *block;
        let Some(found) = blocks[block].terminator.edges().nth(*edge).copied() else {
            state[block] = State::Done;
            path.pop();
            continue;
        };
        let number = *edge;
        *edge += 1;
        let Some(target) = block_index(blocks, found.target).filter(|_| found.is_internal()) else {
            continue;
        };
        match state[target] {
            State::New => {
                state[target] = State::Open;
                path.push((target, 0));
            }
            State::Open => {
                blocks[target].is_loop_header = true;
                if let Some(edge) = blocks[block].terminator.edges_mut().nth(number) {
                    edge.kind = EdgeKind::Back;
                }
            }
            State::Done => {}
        }
    }
    let mut reached = state.iter().map(|&state| state != State::New);
    blocks.retain(|_| reached.next().unwrap_or(false));
}

/// A definition of a register: block and position of the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub block: usize,
    pub position: usize,
}

/// The required certainty of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// No other answer is possible.
    Certain,
    /// Paths that provide no answer may be ignored: often the program does not take them, such as a
    /// path past the call of a function that does not return.
    Likely,
}

/// The definitions that reach a location.
#[derive(Debug)]
pub(super) enum Reaching {
    /// Only this one, along the only path: whenever it executes, the location is reached with its
    /// value, or is not reached before the definition executes again.
    One(Site),
    /// One of these.
    Many(Vec<Site>),
    /// Other definitions too, or too many.
    Unknown,
}

/// The blocks of a function with the data for queries about values.
#[derive(Debug)]
pub(super) struct Graph<'b> {
    blocks: &'b [Block],
    predecessors: Vec<Vec<u32>>,
    /// Registers that any instruction of the block changes.
    written: Vec<u32>,
    entry: u64,
}

impl<'b> Graph<'b> {
    pub(super) fn new(blocks: &'b [Block], entry: u64) -> Self {
        let mut predecessors = vec![Vec::new(); blocks.len()];
        for (index, block) in blocks.iter().enumerate() {
            for edge in block.terminator.edges().filter(|edge| edge.is_internal()) {
                if let Some(target) = block_index(blocks, edge.target) {
                    predecessors[target].push(index as u32);
                }
            }
        }
        predecessors.iter_mut().for_each(Vec::dedup);
        let all_written = |block: &Block| {
            block
                .instructions
                .iter()
                .fold(0, |mask, (_, instruction)| mask | written(instruction))
        };
        Self {
            blocks,
            predecessors,
            written: blocks.iter().map(all_written).collect(),
            entry,
        }
    }

    pub(super) fn block(&self, index: usize) -> &'b Block {
        &self.blocks[index]
    }

    /// The instruction at a site.
    pub(super) fn instruction(&self, site: Site) -> (u64, &'b Instruction) {
        let (pc, instruction) = &self.blocks[site.block].instructions[site.position];
        (*pc, instruction)
    }

    /// Returns the predecessor of a block, if it has just one.
    pub(super) fn only_predecessor(&self, block: usize) -> Option<usize> {
        let &[predecessor] = self.predecessors[block].as_slice() else {
            return None;
        };
        (self.blocks[block].start != self.entry).then_some(predecessor as usize)
    }

    /// Registers changed between the last instruction of a block and its successor.
    fn clobbered_after(&self, block: usize) -> u32 {
        match self.blocks[block].terminator {
            Terminator::Call { .. } | Terminator::CallIndirect { .. } => CALL_CLOBBERED,
            _ => 0,
        }
    }

    /// The last definition of a register before a position of a block.
    fn last_in_block(&self, register: XReg, block: usize, position: usize) -> Option<Site> {
        let before = &self.blocks[block].instructions[..position];
        let found = before
            .iter()
            .rposition(|(_, insn)| written(insn) & register.mask() != 0);
        found.map(|position| Site { block, position })
    }

    /// The definitions of a register that reach a site.
    pub(super) fn reaching(&self, register: XReg, site: Site, care: Care) -> Reaching {
        let Site {
            mut block,
            mut position,
        } = site;
        for _ in 0..MAX_CHAIN {
            if let Some(site) = self.last_in_block(register, block, position) {
                return Reaching::One(site);
            }
            let Some(before) = self.only_predecessor(block) else {
                return self.reaching_start(register, block, care);
            };
            if self.clobbered_after(before) & register.mask() != 0 {
                return Reaching::Unknown;
            }
            block = before;
            position = self.blocks[block].instructions.len();
        }
        Reaching::Unknown
    }

    /// Returns the definitions that reach the start of a block with several predecessors.
    fn reaching_start(&self, register: XReg, block: usize, care: Care) -> Reaching {
        let mut seen = HashSet::from([block]);
        let mut defining = HashSet::new();
        let mut pending = vec![block];
        let mut sites = Vec::new();
        let mut others = false;
        while let Some(block) = pending.pop() {
            others |= self.blocks[block].start == self.entry;
            for &before in &self.predecessors[block] {
                let before = before as usize;
                if self.clobbered_after(before) & register.mask() != 0 {
                    others = true;
                    continue;
                }
                if self.written[before] & register.mask() == 0 {
                    if seen.insert(before) {
                        pending.push(before);
                    }
                    continue;
                }
                // The same definition is found on every edge out of its block.
                if !defining.insert(before) {
                    continue;
                }
                let end = self.blocks[before].instructions.len();
                sites.extend(self.last_in_block(register, before, end));
            }
            let too_many = sites.len() > MAX_DEFINITIONS;
            if too_many || (others && care == Care::Certain) {
                return Reaching::Unknown;
            }
        }
        Reaching::Many(sites)
    }
}
