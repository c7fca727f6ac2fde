//! Finds basic blocks from an entry address along direct control flow.

use super::constants::Constants;
use super::function::{Block, Edge, EdgeKind, Terminator};
use crate::elf::Binary;
use hartline_isa::{Instruction, Operation, XReg};
use std::ops::Range;

/// The most instructions of one function. Code beyond this limit becomes separate functions, so
/// that translation takes at most linear time for any input.
const MAX_INSTRUCTIONS: usize = 20_000;

/// Per-address marks of the function being built; reused for the next function.
#[derive(Debug)]
pub(super) struct Marks {
    /// The start of each text range and its first slot.
    slots: Vec<(u64, usize)>,
    /// Per slot: number of the function that last decoded there.
    decoded: Vec<u32>,
    /// Per slot: number of the function that last had a block start there.
    leader: Vec<u32>,
    number: u32,
}

impl Marks {
    /// Creates empty marks for the text of a binary.
    pub(super) fn new(binary: &Binary<'_>) -> Self {
        let mut slots = Vec::new();
        let mut length = 0;
        for text in binary.text() {
            slots.push((text.start, length));
            length += text.bytes.len() / 2;
        }
        Self {
            slots,
            decoded: vec![0; length],
            leader: vec![0; length],
            number: 0,
        }
    }

    /// Whether any function so far has an instruction at an address of the text.
    pub(super) fn is_decoded(&self, address: u64) -> bool {
        self.decoded[self.slot(address)] != 0
    }

    /// The slot of an address that is in the text.
    fn slot(&self, address: u64) -> usize {
        let index = self.slots.partition_point(|slot| slot.0 <= address) - 1;
        let (start, slot) = self.slots[index];
        slot + (address - start) as usize / 2
    }
}

/// Finds the blocks of one function. It is kept while jump tables add targets.
#[derive(Debug)]
pub(super) struct Explorer<'e, 'a> {
    binary: &'e Binary<'a>,
    marks: &'e mut Marks,
    ranges: &'e [Range<u64>],
    pending: Vec<u64>,
    leaders: Vec<u64>,
    decoded: usize,
}

/// Whether a block that is being walked ends at an instruction.
enum Step {
    /// The block continues.
    Next,
    /// The block ends with this terminator.
    End(Terminator),
}

impl<'e, 'a> Explorer<'e, 'a> {
    /// Starts a function at `entry` whose blocks are in `ranges`; the entry is in one of them.
    pub(super) fn new(
        binary: &'e Binary<'a>,
        marks: &'e mut Marks,
        ranges: &'e [Range<u64>],
        entry: u64,
    ) -> Self {
        marks.number += 1;
        let (pending, leaders) = (Vec::new(), Vec::new());
        let mut explorer = Self {
            binary,
            marks,
            ranges,
            pending,
            leaders,
            decoded: 0,
        };
        explorer.add(entry);
        explorer
    }

    /// Number of instructions decoded.
    pub(super) fn decoded(&self) -> usize {
        self.decoded
    }

    /// Whether a block of this function may be at an address.
    pub(super) fn is_inside(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address)) && self.binary.is_text(address)
    }

    /// Adds the start of a block, if a block may start there. True if it is new.
    pub(super) fn add(&mut self, address: u64) -> bool {
        if !self.is_inside(address) || self.is_leader(address) {
            return false;
        }
        if self.decoded >= MAX_INSTRUCTIONS {
            return false;
        }
        let slot = self.marks.slot(address);
        self.marks.leader[slot] = self.marks.number;
        self.leaders.push(address);
        self.pending.push(address);
        true
    }

    fn is_leader(&self, address: u64) -> bool {
        self.marks.leader[self.marks.slot(address)] == self.marks.number
    }

    /// Follows all direct flow from the block starts added, then forms the blocks.
    pub(super) fn blocks(&mut self) -> Vec<Block> {
        while let Some(start) = self.pending.pop() {
            self.explore(start);
        }
        let mut leaders = std::mem::take(&mut self.leaders);
        leaders.sort_unstable();
        let blocks = leaders.iter().map(|&start| self.block(start)).collect();
        self.leaders = leaders;
        blocks
    }

    /// Decodes from a block start to the next unconditional end and adds the branch targets.
    fn explore(&mut self, start: u64) {
        let mut constants = Constants::new();
        let mut pc = start;
        while self.is_inside(pc) {
            let slot = self.marks.slot(pc);
            if self.marks.decoded[slot] == self.marks.number {
                self.add(pc);
                return;
            }
            let Some(instruction) = self.binary.instruction(pc) else {
                return;
            };
            self.marks.decoded[slot] = self.marks.number;
            self.decoded += 1;
            let terminator = match self.step(pc, &instruction, &mut constants) {
                Step::Next => None,
                Step::End(terminator) => Some(terminator),
            };
            pc += u64::from(instruction.length());
            if let Some(terminator) = terminator {
                terminator.edges().for_each(|edge| {
                    self.add(edge.target);
                });
                return;
            }
        }
    }

    /// Walks the block that starts at a leader.
    fn block(&self, start: u64) -> Block {
        let mut constants = Constants::new();
        let mut instructions = Vec::new();
        let mut pc = start;
        let terminator = loop {
            if pc != start && (!self.is_inside(pc) || self.is_leader(pc)) {
                break Terminator::FallThrough {
                    next: self.edge(pc),
                };
            }
            let Some(instruction) = self.binary.instruction(pc) else {
                break Terminator::Illegal { pc };
            };
            instructions.push((pc, instruction));
            if let Step::End(terminator) = self.step(pc, &instruction, &mut constants) {
                break terminator;
            }
            pc += u64::from(instruction.length());
        };
        Block {
            start,
            instructions,
            terminator,
            is_loop_header: false,
        }
    }

    /// Makes an edge, internal if a block starts at its target. The edges that close loops are
    /// marked when all blocks are known.
    pub(super) fn edge(&self, target: u64) -> Edge {
        let internal = self.is_inside(target) && self.is_leader(target);
        Edge {
            target,
            kind: if internal {
                EdgeKind::Forward
            } else {
                EdgeKind::External
            },
        }
    }

    fn step(&self, pc: u64, instruction: &Instruction, constants: &mut Constants) -> Step {
        let next = pc + u64::from(instruction.length());
        let target = |offset: i32| pc.wrapping_add_signed(i64::from(offset));
        Step::End(match instruction.operation() {
            Operation::Branch { offset, .. } => Terminator::Branch {
                taken: self.edge(target(offset)),
                not_taken: self.edge(next),
            },
            Operation::Jal { rd, offset } => self.direct(rd, target(offset), next),
            Operation::Jalr { rd, rs1, offset } => {
                let base = constants.get(rs1).filter(|_| rs1 != XReg::ZERO);
                let target = base.map(|base| base.wrapping_add_signed(i64::from(offset)) & !1);
                match target.filter(|&target| self.binary.is_text(target)) {
                    Some(target) => self.direct(rd, target, next),
                    None => self.indirect(rd, rs1, offset, next),
                }
            }
            Operation::Ebreak => Terminator::Trap,
            _ => {
                constants.step(pc, instruction);
                return Step::Next;
            }
        })
    }

    /// Returns the terminator of a jump to a known address.
    pub(super) fn direct(&self, link: XReg, target: u64, next: u64) -> Terminator {
        if link == XReg::RA && target != next {
            let return_to = self.edge(next);
            return Terminator::Call {
                target,
                return_to,
                returns_twice: false,
            };
        }
        Terminator::Jump {
            target: self.edge(target),
        }
    }

    fn indirect(&self, link: XReg, base: XReg, offset: i32, next: u64) -> Terminator {
        if link == XReg::RA {
            Terminator::CallIndirect {
                return_to: self.edge(next),
            }
        } else if link == XReg::ZERO && base == XReg::RA && offset == 0 {
            Terminator::Return
        } else {
            Terminator::JumpIndirect
        }
    }
}
