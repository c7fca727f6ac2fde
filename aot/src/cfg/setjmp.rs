//! Functions that may return twice.

use super::constants::written;
use super::function::{Block, Function, Terminator};
use hartline_isa::{Operation, Width, XReg};
use std::collections::{HashMap, HashSet};

/// `ra`, `sp` and `s0`–`s11`.
const SAVED: u32 = 0x0ffc_0306;
/// Fewest registers of `s0`–`s11` that `setjmp` saves.
const MIN_SAVED: u32 = 10;
/// The longest chain of tail calls that leads to `setjmp`.
const MAX_TAIL_CALLS: usize = 4;

/// Returns the entries of functions that save their caller's registers through `a0` and return:
/// `setjmp` and its relatives, and functions that only tail-call one of them.
pub(super) fn find(functions: &[Function]) -> HashSet<u64> {
    let saving = functions.iter().filter(|function| saves_caller(function));
    let mut found: HashSet<u64> = saving.map(|function| function.entry).collect();
    if found.is_empty() {
        return found;
    }
    let tail_calls: HashMap<u64, u64> = functions.iter().filter_map(tail_call).collect();
    for _ in 0..MAX_TAIL_CALLS {
        let new = tail_calls
            .iter()
            .filter(|(_, target)| found.contains(target));
        let new: Vec<u64> = new.map(|(&entry, _)| entry).collect();
        found.extend(new);
    }
    found
}

/// Marks the calls of these functions. In a function with such calls, the index of a jump table is
/// no longer certain: after the second return, registers have their values from the call again.
pub(super) fn mark(function: &mut Function, entries: &HashSet<u64>) {
    let mut any = false;
    for block in &mut function.blocks {
        if let Terminator::Call {
            target,
            returns_twice,
            ..
        } = &mut block.terminator
        {
            *returns_twice = entries.contains(target);
            any |= *returns_twice;
        }
    }
    for block in function.blocks.iter_mut().filter(|_| any) {
        if let Terminator::JumpTable(table) = &mut block.terminator {
            table.index = None;
            table.targets.sort_unstable_by_key(|edge| edge.target);
            table.targets.dedup_by_key(|edge| edge.target);
        }
    }
}

fn entry_block(function: &Function) -> Option<&Block> {
    function.block(function.entry)
}

/// Whether the first block stores `ra`, `sp` and most of `s0`–`s11` at different
/// offsets from `a0`.
fn saves_caller(function: &Function) -> bool {
    let Some(block) = entry_block(function) else {
        return false;
    };
    let (mut saved, mut offsets) = (0u32, HashSet::new());
    for (_, instruction) in &block.instructions {
        if let Operation::Store {
            width: Width::Double,
            rs1: XReg::A0,
            rs2,
            offset,
        } = instruction.operation()
            && offsets.insert(offset)
        {
            saved |= rs2.mask() & SAVED;
        }
        let changed = written(instruction);
        if changed & (XReg::SP.mask() | XReg::A0.mask()) != 0 {
            break;
        }
    }
    let required = XReg::RA.mask() | XReg::SP.mask();
    saved & required == required && (saved & !required).count_ones() >= MIN_SAVED
}

/// Returns the entry and target of a function that only prepares arguments for a tail call.
fn tail_call(function: &Function) -> Option<(u64, u64)> {
    let block = entry_block(function)?;
    let Terminator::Jump { target } = &block.terminator else {
        return None;
    };
    let kept = XReg::SP.mask() | XReg::RA.mask() | XReg::A0.mask();
    let keeps = |(_, instruction): &(u64, _)| written(instruction) & kept == 0;
    block
        .instructions
        .iter()
        .all(keeps)
        .then_some((function.entry, target.target))
}
