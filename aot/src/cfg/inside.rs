//! Code inside a function as a separate function, for an address where the interpreter is and the
//! function's translation has no entry.

use super::blocks;
use super::explorer::Marks;
use super::function::{Function, Terminator};
use super::resolved::Resolved;
use super::setjmp;
use crate::elf::Binary;
use std::collections::HashSet;
use std::ops::Range;

/// Returns the code of `function` that is reachable from its instruction at `pc`. `None` if it has
/// no instruction there.
///
/// The facts about registers in `function` hold for control that came from its entry. Control may
/// reach `pc` from anywhere, so jumps are resolved again. Their known tables count as likely only:
/// each jump compares its target.
#[must_use]
pub fn entered_at(binary: &Binary<'_>, function: &Function, pc: u64) -> Option<Function> {
    let mut instructions = function.blocks.iter().flat_map(|block| &block.instructions);
    if !instructions.any(|&(at, _)| at == pc) {
        return None;
    }
    let known = Resolved::likely(function);
    let mut marks = Marks::new(binary);
    let (blocks, _) = blocks::build_from(binary, &mut marks, &ranges(function), pc, known);
    let mut inside = Function {
        entry: pc,
        name: None,
        blocks,
    };
    let twice = called_twice(function);
    if !twice.is_empty() {
        setjmp::mark(&mut inside, &twice);
    }
    Some(inside)
}

/// The largest gap between two blocks that may still be the function's code, bytes: a loop that was
/// collapsed into one block ([`find_searches`](super::find_searches)) leaves such gaps.
const MAX_GAP: u64 = 64;

/// Returns the address ranges of a function's instructions, sorted and disjoint.
fn ranges(function: &Function) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for block in &function.blocks {
        match ranges.last_mut() {
            Some(last) if block.start <= last.end + MAX_GAP => last.end = last.end.max(block.end()),
            _ => ranges.push(block.start..block.end()),
        }
    }
    ranges
}

/// Returns the functions that `function` calls and that may return twice.
fn called_twice(function: &Function) -> HashSet<u64> {
    let calls = function.blocks.iter().map(|block| &block.terminator);
    calls
        .filter_map(|terminator| match terminator {
            Terminator::Call {
                target,
                returns_twice: true,
                ..
            } => Some(*target),
            _ => None,
        })
        .collect()
}
