//! Calling conventions: the registers that a translated function takes and returns in host
//! registers.
//!
//! By default these are the registers of [`PINNED_X`], so that any function may call any other. If
//! all callers of a function are known, some host registers of arguments are known to be unused at
//! its entry and its return. They then hold registers of the caller that the function saves first
//! and restores last, which would go through the `Hart` structure otherwise.
//!
//! Other code reaches such a function through an adapter that moves the registers: the dispatch
//! table, if a pointer to the function was overlooked, or the interpreter.

use std::collections::{HashMap, HashSet};

use hartline_abi::hart::PINNED_X;

use super::features::Features;
use super::liveness::Liveness;
use super::register_set::{RegisterSet, uses};
use super::returns::is_plain;
use crate::cfg::{Block, ControlFlow, Function, Terminator};

/// Registers whose host registers may hold others: `a2`–`a6`. An unwinder passes `a0` and `a1`.
const REPLACED: [u8; 5] = [12, 13, 14, 15, 16];
/// Registers that may take their slots: `s2`–`s11`.
const SAVED: u32 = 0x0ffc_0000;

/// The integer registers that a function takes and returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convention {
    /// The register in each slot of [`PINNED_X`]: a replacement, or the standard register.
    slots: [u8; PINNED_X.len()],
}

impl Convention {
    /// The convention of functions that any code may call.
    pub const STANDARD: Self = Self { slots: PINNED_X };

    /// Puts registers of `saved` into the slots of `free`, as many as fit.
    fn with(saved: RegisterSet, free: u32) -> Self {
        let mut saved = saved.x_numbers();
        let slots = PINNED_X.map(|standard| match free >> standard & 1 {
            0 => standard,
            _ => saved.next().map_or(standard, |number| number as u8),
        });
        Self { slots }
    }

    /// The register in each slot of [`PINNED_X`].
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.slots.into_iter().map(usize::from)
    }

    /// Pairs of the own and the standard register, in slots where the two conventions differ.
    fn replaced(&self) -> impl Iterator<Item = (u8, u8)> {
        let pairs = self.slots.into_iter().zip(PINNED_X);
        pairs.filter(|(own, standard)| own != standard)
    }

    /// The registers that this convention adds to the standard's argument set.
    #[must_use]
    pub fn added(&self) -> RegisterSet {
        RegisterSet {
            x: self.replaced().fold(0, |set, (own, _)| set | 1 << own),
            f: 0,
        }
    }

    /// The excluded set: registers of the standard's argument set that this convention does
    /// not have.
    #[must_use]
    pub fn excluded(&self) -> RegisterSet {
        let replaced = self.replaced();
        RegisterSet {
            x: replaced.fold(0, |set, (_, standard)| set | 1 << standard),
            f: 0,
        }
    }
}

/// Nonstandard conventions of functions, by entry.
#[derive(Debug, Clone, Default)]
pub struct Conventions(HashMap<u64, Convention>);

impl Conventions {
    /// Chooses a convention for each function whose callers are all known.
    #[must_use]
    pub fn of(flow: &ControlFlow, liveness: &Liveness, features: &Features) -> Self {
        let called = called_only(flow);
        let functions = flow.functions.iter();
        let known = functions.filter(|function| called.contains(&function.entry));
        let chosen = known.filter_map(|function| {
            let convention = choose(function, liveness, features);
            (convention != Convention::STANDARD).then_some((function.entry, convention))
        });
        Self(chosen.collect())
    }

    /// The convention used to call the function at `entry`.
    #[must_use]
    pub fn of_callee(&self, entry: u64) -> Convention {
        self.0.get(&entry).copied().unwrap_or(Convention::STANDARD)
    }

    /// Whether the function at `entry` has a nonstandard convention.
    #[must_use]
    pub fn is_own(&self, entry: u64) -> bool {
        self.0.contains_key(&entry)
    }

    /// Keeps only the conventions of translated functions; other functions are called through the
    /// dispatcher.
    pub fn retain(&mut self, translated: &HashSet<u64>) {
        self.0.retain(|entry, _| translated.contains(entry));
    }

    /// Number of functions that have a nonstandard convention.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Entries of functions that are reached only by calls from other functions of the file.
fn called_only(flow: &ControlFlow) -> HashSet<u64> {
    let (mut called, mut jumped) = (HashSet::new(), HashSet::new());
    for block in flow.functions.iter().flat_map(|f| &f.blocks) {
        if let Terminator::Call { target, .. } = block.terminator {
            called.insert(target);
        }
        let edges = block.terminator.edges();
        jumped.extend(edges.filter(|e| !e.is_internal()).map(|e| e.target));
    }
    called.retain(|entry| !jumped.contains(entry) && !flow.exposed.contains(entry));
    called
}

fn choose(function: &Function, liveness: &Liveness, features: &Features) -> Convention {
    if !is_plain(function) || function.blocks.iter().any(leaves_otherwise) {
        return Convention::STANDARD;
    }
    let entry = function.entry;
    let needed = liveness.at_entry(entry).union(liveness.at_return(entry));
    let free = REPLACED.iter().fold(0, |set, &number| set | 1 << number) & !needed.x;
    let saved = saved_first(function, features);
    Convention::with(saved.intersection(needed), free)
}

/// Whether the block leaves the function other than by a return or a trap, or calls a function that
/// may return twice.
fn leaves_otherwise(block: &Block) -> bool {
    match &block.terminator {
        Terminator::JumpIndirect => true,
        Terminator::Call { returns_twice, .. } => *returns_twice,
        Terminator::CallIndirect { .. } => false,
        other => other.edges().any(|edge| !edge.is_internal()),
    }
}

/// Registers of [`SAVED`] that the function reads before it writes them, on all paths.
fn saved_first(function: &Function, features: &Features) -> RegisterSet {
    let (mut read, mut written) = (RegisterSet::default(), RegisterSet::default());
    let first = function.blocks.iter().find(|b| b.start == function.entry);
    let instructions = first.iter().flat_map(|block| &block.instructions);
    for (_, instruction) in instructions {
        if features.leaves_code(instruction) {
            break;
        }
        let (reads, writes) = uses(instruction);
        read = read.union(reads.difference(written));
        written = written.union(writes);
    }
    RegisterSet {
        x: read.x & SAVED,
        f: 0,
    }
}

#[cfg(test)]
mod tests;
