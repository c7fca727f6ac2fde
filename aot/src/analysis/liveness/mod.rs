//! Which registers hold something that is still needed where control passes from
//! one function to another.
//!
//! At a direct call, the registers that the callee reads, or passes on to code that reads
//! them, are known from the callee's code. Code that is not known (an indirect call's
//! callee, the kernel) may read any register, but after a call that may change registers
//! which the psABI does not preserve, those are no use to it: they count as needed
//! only if an instruction of the file reads them. Such instructions are looked for
//! after each call, though not in further callees if it is a register of arguments,
//! because compilers use what they know of a callee (GCC's `-fipa-ra`) and assembly has
//! conventions of its own.
//!
//! What is left to trust is that callers which are not in the file, or which
//! control-flow recovery did not find, follow the psABI.

mod solver;

use std::collections::HashMap;

use super::features::Features;
use super::register_set::{PSABI, RegisterSet, uses};
use super::returns::is_plain;
use crate::cfg::{Block, Function, Terminator};

/// Registers needed at the ends of functions.
#[derive(Debug, Clone, Default)]
pub struct Liveness {
    functions: HashMap<u64, Ends>,
}

/// Registers that are needed somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Need {
    /// Some instruction reads them.
    read: RegisterSet,
    /// These, and those that unknown code may read.
    any: RegisterSet,
}

impl Need {
    /// Unknown code goes on.
    const UNKNOWN: Self = Self {
        read: RegisterSet { x: 0, f: 0 },
        any: RegisterSet::ALL,
    };

    /// Before a call, if this is at the callee's entry. That a callee reads registers
    /// does not mean that it was given anything in them: functions with a variable
    /// number of arguments save all that there could be.
    fn of_callee(self) -> Self {
        Self {
            read: RegisterSet::default(),
            any: self.any,
        }
    }

    fn union(self, other: Self) -> Self {
        Self {
            read: self.read.union(other.read),
            any: self.any.union(other.any),
        }
    }

    /// Before a call that may change `changed`, if this is after it.
    fn across_call(self, changed: RegisterSet) -> Self {
        let lost = changed.difference(PSABI).difference(self.read);
        Self {
            read: self.read,
            any: self.any.difference(lost),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    entry: Need,
    returned: Need,
    /// Registers that the function, or what it calls, may change.
    changed: RegisterSet,
    /// Whether it may return.
    returns: bool,
}

impl Liveness {
    /// Registers that the code at `pc` needs when it is jumped to or called.
    #[must_use]
    pub fn at_entry(&self, pc: u64) -> RegisterSet {
        self.entry(pc).any
    }

    /// Registers that may be needed after the function at `entry` has returned.
    #[must_use]
    pub fn at_return(&self, entry: u64) -> RegisterSet {
        self.returned(entry).any
    }

    /// Registers that are of no use after a call, though they may be passed on: those
    /// that it may have changed, but for the ones that are read at `needed`.
    #[must_use]
    pub fn lost(&self, callee: Option<u64>, needed: &Inside, return_to: u64) -> RegisterSet {
        let read = needed.at(return_to).read;
        self.changed(callee).difference(PSABI).difference(read)
    }

    /// Registers needed where a call of the function at `entry` returned to another
    /// address than that of the instruction after it: the address is not known, but `longjmp`
    /// and unwinders take no more there than the psABI has.
    #[must_use]
    pub fn at_mismatched_return(&self, entry: u64) -> RegisterSet {
        self.at_return(entry).union(PSABI)
    }

    /// Registers needed at the start of each block of a function.
    #[must_use]
    pub fn inside(&self, function: &Function, features: &Features) -> Inside {
        let blocks = summaries(function, features);
        let mut live = vec![Need::default(); blocks.len()];
        while self.pass(&blocks, self.returned(function.entry), &mut live) {}
        let starts = function.blocks.iter().map(|block| block.start);
        Inside(starts.zip(live).collect())
    }

    fn entry(&self, pc: u64) -> Need {
        self.functions
            .get(&pc)
            .map_or(Need::UNKNOWN, |ends| ends.entry)
    }

    fn returned(&self, entry: u64) -> Need {
        self.functions
            .get(&entry)
            .map_or(Need::UNKNOWN, |ends| ends.returned)
    }

    /// Registers that a call may change; nothing is known of files that were not
    /// analysed.
    fn changed(&self, callee: Option<u64>) -> RegisterSet {
        if self.functions.is_empty() {
            return RegisterSet::default();
        }
        let ends = callee.and_then(|entry| self.functions.get(&entry));
        ends.map_or(RegisterSet::ALL, |ends| ends.changed)
    }

    /// Whether a call may return.
    fn returns(&self, callee: Option<u64>) -> bool {
        let ends = callee.and_then(|entry| self.functions.get(&entry));
        ends.is_none_or(|ends| ends.returns)
    }

    /// One step of a function's data flow; `false` if it changed nothing.
    fn pass(&self, blocks: &[Summary], returned: Need, live: &mut [Need]) -> bool {
        let mut changed = false;
        for (index, block) in blocks.iter().enumerate().rev() {
            let out = match block.end {
                End::Flow => self.after(block, live),
                End::Return => returned,
                End::Untracked | End::Trap | End::Unknown | End::Call(None) => Need::UNKNOWN,
                End::Call(Some(callee)) => self.entry(callee).of_callee(),
            };
            let before = Need {
                read: block.read.union(out.read.difference(block.written)),
                any: block.any.union(out.any.difference(block.written)),
            };
            changed |= before != live[index];
            live[index] = before;
        }
        changed
    }

    /// What is needed after a block by what follows it, a callee aside.
    fn after(&self, block: &Summary, live: &[Need]) -> Need {
        let inside = block.next.iter().map(|&next| live[next]);
        let outside = block.leaves.iter().map(|&pc| self.entry(pc).of_callee());
        inside.chain(outside).fold(Need::default(), Need::union)
    }
}

/// What is needed at the start of each block of a function.
#[derive(Debug)]
pub struct Inside(HashMap<u64, Need>);

impl Inside {
    fn at(&self, pc: u64) -> Need {
        self.0.get(&pc).copied().unwrap_or(Need::UNKNOWN)
    }

    /// Registers needed at the start of the block at `pc`.
    #[must_use]
    pub fn needed(&self, pc: u64) -> RegisterSet {
        self.at(pc).any
    }
}

/// A block as the data flow sees it.
struct Summary {
    /// Registers read before they are written.
    read: RegisterSet,
    /// These, and all that are not written before the runtime takes over.
    any: RegisterSet,
    written: RegisterSet,
    /// Indices of the blocks that follow.
    next: Vec<usize>,
    /// Addresses outside the function that follow.
    leaves: Vec<u64>,
    end: End,
}

enum End {
    /// Goes on at one of the successors.
    Flow,
    Return,
    /// Goes on at one of the successors, in code that was not found, or where a `ret`
    /// of a function that is not plain leads.
    Untracked,
    /// Ends in a trap.
    Trap,
    /// Goes on at an address in a register.
    Unknown,
    /// Goes on at one of the successors after a call, to a known place or not.
    Call(Option<u64>),
}

fn summaries(function: &Function, features: &Features) -> Vec<Summary> {
    let blocks = function.blocks.iter();
    let starts: Vec<u64> = blocks.clone().map(|block| block.start).collect();
    let plain = is_plain(function);
    blocks
        .map(|block| summary(block, &starts, plain, features))
        .collect()
}

fn summary(block: &Block, starts: &[u64], plain: bool, features: &Features) -> Summary {
    let mut read = RegisterSet::default();
    let mut any = RegisterSet::default();
    let mut written = RegisterSet::default();
    for (_, instruction) in &block.instructions {
        let (reads, writes) = uses(instruction);
        read = read.union(reads.difference(written));
        let wants = match features.leaves_code(instruction) {
            true => RegisterSet::ALL,
            false => reads,
        };
        any = any.union(wants.difference(written));
        written = written.union(writes);
    }
    let mut next = Vec::new();
    let mut leaves = Vec::new();
    for edge in block.terminator.edges() {
        match starts.binary_search(&edge.target) {
            Ok(index) if edge.is_internal() => next.push(index),
            _ => leaves.push(edge.target),
        }
    }
    let end = match block.terminator {
        Terminator::FallThrough { .. }
        | Terminator::Jump { .. }
        | Terminator::Branch { .. }
        | Terminator::TopByte(_) => End::Flow,
        Terminator::Call { target, .. } => End::Call(Some(target)),
        Terminator::CallIndirect { .. } => End::Call(None),
        Terminator::Return if plain => End::Return,
        Terminator::JumpIndirect => End::Unknown,
        Terminator::Return | Terminator::JumpTable(_) => End::Untracked,
        Terminator::Trap | Terminator::Illegal { .. } => End::Trap,
    };
    Summary {
        read,
        any,
        written,
        next,
        leaves,
        end,
    }
}

#[cfg(test)]
mod tests;
