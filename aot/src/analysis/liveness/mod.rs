//! Liveness at function boundaries: the registers that are needed where control passes from one
//! function to another.
//!
//! At a direct call, the callee's code shows which registers it reads, or passes on to code that
//! reads them. Unknown code (an indirect call's callee, the kernel) may read any register. But a
//! call may change the registers that the psABI does not preserve: after it, unknown code cannot
//! use them. They count as needed only if an instruction of the file reads them.
//!
//! The search for such instructions starts after each call. It follows further callees except for
//! argument registers, because compilers use what they know of a callee (GCC's `-fipa-ra`) and
//! assembly code uses private conventions.
//!
//! One assumption remains: callers outside the file, and callers that control-flow recovery did not
//! find, follow the psABI.

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

/// A set of needed registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Need {
    /// Registers that some instruction reads.
    read: RegisterSet,
    /// Registers of `read`, and those registers that unknown code may read.
    any: RegisterSet,
}

impl Need {
    /// Execution continues in unknown code.
    const UNKNOWN: Self = Self {
        read: RegisterSet { x: 0, f: 0 },
        any: RegisterSet::ALL,
    };

    /// Converts the need at a callee's entry to the need before the call. A callee that reads
    /// registers was not necessarily passed values in them: functions with a variable number of
    /// arguments save all possible ones.
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

    /// Converts the need after a call that may change `changed` to the need before the call.
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
    /// Registers that the function, or its callees, may change.
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

    /// Registers without a useful value after a call: registers that it may have changed, except
    /// those that are read at `needed`.
    #[must_use]
    pub fn lost(&self, callee: Option<u64>, needed: &Inside, return_to: u64) -> RegisterSet {
        let read = needed.at(return_to).read;
        self.changed(callee).difference(PSABI).difference(read)
    }

    /// Registers needed where a call of the function at `entry` did not return to the next
    /// instruction. The address is not known, but `longjmp` and unwinders rely only on the psABI's
    /// registers there.
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

    /// Registers that a call may change; empty if the file was not analysed.
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

    /// Returns the need at a block's successors; a callee's need is not included.
    fn after(&self, block: &Summary, live: &[Need]) -> Need {
        let inside = block.next.iter().map(|&next| live[next]);
        let outside = block.leaves.iter().map(|&pc| self.entry(pc).of_callee());
        inside.chain(outside).fold(Need::default(), Need::union)
    }
}

/// Registers needed at the start of each block of a function.
#[derive(Debug)]
pub struct Inside(HashMap<u64, Need>);

impl Inside {
    fn at(&self, pc: u64) -> Need {
        self.0.get(&pc).copied().unwrap_or(Need::UNKNOWN)
    }

    /// Registers that an instruction of the function reads after the start of the block at `pc`, before the
    /// next call.
    #[must_use]
    pub fn read(&self, pc: u64) -> RegisterSet {
        self.at(pc).read
    }

    /// Registers needed at the start of the block at `pc`.
    #[must_use]
    pub fn needed(&self, pc: u64) -> RegisterSet {
        self.at(pc).any
    }
}

/// Summary of a block for the data flow.
struct Summary {
    /// Registers read before they are written.
    read: RegisterSet,
    /// Registers of `read`, and all that are not written before the runtime takes over.
    any: RegisterSet,
    written: RegisterSet,
    /// Indices of the successors.
    next: Vec<usize>,
    /// Addresses outside the function that are successors.
    leaves: Vec<u64>,
    end: End,
}

enum End {
    /// Continues at a successor.
    Flow,
    Return,
    /// Continues at a successor, in code that was not found, or at the target of a `ret` in a
    /// function that is not plain.
    Untracked,
    /// Ends in a trap.
    Trap,
    /// Continues at an address in a register.
    Unknown,
    /// Calls a function, known or not, and continues at a successor.
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
