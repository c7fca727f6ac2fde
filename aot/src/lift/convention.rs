//! Which registers a translated function takes and returns in host registers.
//!
//! All functions have those of [`PINNED_X`] there, so that any may call any. But where all
//! callers of a function are known, that host registers of arguments hold nothing of use at
//! its entry and its return is known too: they hold registers of the caller instead which the
//! function saves first of all and restores in the end. These would go by way of the `Hart`
//! structure otherwise.
//!
//! Who reaches such a function in another way (the dispatch table, for which a pointer
//! to it was overlooked, or the interpreter) enters a function that moves the registers.

use std::collections::{HashMap, HashSet};

use hartline_abi::hart::{DEAD, PINNED_X, offset};
use inkwell::IntPredicate;
use inkwell::values::FunctionValue;

use super::Unit;
use super::features::Features;
use super::ir::{Ir, Likely, Memory, Signature, function_name};
use super::liveness::{Liveness, is_plain};
use super::registers::{RegisterSet, leaves_code, uses};
use super::state::x_offset;
use crate::cfg::{ControlFlow, Function, Terminator};
use crate::technique::Technique;

/// Registers whose host registers may hold others: `a2`–`a6`. Whoever unwinds the stack
/// brings `a0` and `a1`.
const REPLACED: [u8; 5] = [12, 13, 14, 15, 16];
/// Registers that may be there instead: `s2`–`s11`.
const SAVED: u32 = 0x0ffc_0000;

/// The integer registers that a function takes and returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convention {
    /// Which is where that one of [`PINNED_X`] is otherwise.
    places: [u8; PINNED_X.len()],
}

impl Convention {
    /// That of functions that anybody may call.
    pub const STANDARD: Self = Self { places: PINNED_X };

    /// With registers of `saved` in the places of those of `free`, as far as they go.
    fn with(saved: RegisterSet, free: u32) -> Self {
        let mut saved = saved.x_numbers();
        let places = PINNED_X.map(|standard| match free >> standard & 1 {
            0 => standard,
            _ => saved.next().map_or(standard, |number| number as u8),
        });
        Self { places }
    }

    /// Which register is in each place of [`PINNED_X`].
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.places.into_iter().map(usize::from)
    }

    /// Places in which it has a register and the standard another: both of them.
    fn replaced(&self) -> impl Iterator<Item = (u8, u8)> {
        let pairs = self.places.into_iter().zip(PINNED_X);
        pairs.filter(|(place, standard)| place != standard)
    }

    /// Registers that it has, and the standard has not.
    #[must_use]
    pub fn added(&self) -> RegisterSet {
        RegisterSet {
            x: self.replaced().fold(0, |set, (place, _)| set | 1 << place),
            f: 0,
        }
    }

    /// Registers that the standard has, and it has not.
    #[must_use]
    pub fn left_out(&self) -> RegisterSet {
        let replaced = self.replaced();
        RegisterSet {
            x: replaced.fold(0, |set, (_, standard)| set | 1 << standard),
            f: 0,
        }
    }
}

/// Conventions of the functions that have one of their own, by entry.
#[derive(Debug, Clone, Default)]
pub struct Conventions(HashMap<u64, Convention>);

impl Conventions {
    /// Chooses one for each function whose callers are all known.
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

    /// That of calls of the function at `entry`.
    #[must_use]
    pub fn of_callee(&self, entry: u64) -> Convention {
        self.0.get(&entry).copied().unwrap_or(Convention::STANDARD)
    }

    /// Whether the function at `entry` has one of its own.
    #[must_use]
    pub fn is_own(&self, entry: u64) -> bool {
        self.0.contains_key(&entry)
    }

    /// Only functions with these entries are translated; who calls others does so by way of
    /// the dispatcher.
    pub fn retain(&mut self, translated: &HashSet<u64>) {
        self.0.retain(|entry, _| translated.contains(entry));
    }

    /// Number of functions that have one of their own.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Entries of functions that nothing leads to but calls by other functions of the file.
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

/// Whether the block leaves the function in another way than by a return or a trap, or calls
/// what may return twice.
fn leaves_otherwise(block: &crate::cfg::Block) -> bool {
    match &block.terminator {
        Terminator::JumpIndirect => true,
        Terminator::Call { returns_twice, .. } => *returns_twice,
        Terminator::CallIndirect { .. } => false,
        other => other.edges().any(|edge| !edge.is_internal()),
    }
}

/// Registers of [`SAVED`] that the function reads before it does anything else with them, on
/// all ways.
fn saved_first(function: &Function, features: &Features) -> RegisterSet {
    let (mut read, mut written) = (RegisterSet::default(), RegisterSet::default());
    let first = function.blocks.iter().find(|b| b.start == function.entry);
    let instructions = first.iter().flat_map(|block| &block.instructions);
    for (_, instruction) in instructions {
        if leaves_code(instruction, features) {
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

/// Adds the function that is entered at `entry` with the standard registers, to one with a
/// convention of its own.
pub fn lift_adapter(ir: &Ir<'_>, unit: &Unit, entry: u64) {
    let convention = unit.conventions.of_callee(entry);
    let name = function_name(entry);
    let adapter = ir.define(&name, Signature::Integer, unit.features.llvm());
    ir.position(ir.block(adapter, "entry"));
    let places = || convention.places().zip(PINNED_X).enumerate();
    save_for_resume(ir, adapter, convention);
    let arguments: Vec<_> = places()
        .map(|(index, (place, standard))| {
            if place != usize::from(standard) {
                return ir.load_hart(x_offset(place)).into();
            }
            let parameter = adapter.get_nth_param(index as u32);
            parameter.expect("one for each place").into()
        })
        .collect();
    let callee = ir.own_callee(entry, Signature::Integer);
    let state = ir.call_guest(Signature::Integer, callee, &arguments);
    let results: Vec<_> = places()
        .map(|(index, (place, standard))| {
            let result = ir.extract(state, index);
            if place == usize::from(standard) {
                return result;
            }
            ir.store(ir.hart_slot(x_offset(place)), result, Memory::Hart);
            match unit.disabled.allows(Technique::StaleRegisters) {
                true => ir.int.get_undef().into(),
                false => ir.constant(DEAD).into(),
            }
        })
        .collect();
    ir.return_pinned(Signature::Integer, &results);
}

/// Where a function is entered in its middle, the registers that its convention leaves out hold
/// something: it finds them in the `Hart` structure then.
fn save_for_resume<'ctx>(ir: &Ir<'ctx>, adapter: FunctionValue<'ctx>, convention: Convention) {
    let [saving, entered] = ["saving", "entered"].map(|name| ir.block(adapter, name));
    let place = ir.load_hart(offset::RESUME);
    let inside = ir.compare(IntPredicate::NE, place, ir.constant(0));
    ir.branch(inside, saving, entered, Likely::NotTaken);
    ir.position(saving);
    for (index, standard) in PINNED_X.into_iter().enumerate() {
        if convention.left_out().x >> standard & 1 == 1 {
            let parameter = adapter.get_nth_param(index as u32);
            let parameter = parameter.expect("one for each place");
            ir.store_hart(x_offset(usize::from(standard)), parameter);
        }
    }
    ir.jump(entered);
    ir.position(entered);
}

#[cfg(test)]
mod tests;
