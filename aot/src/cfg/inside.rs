//! Code inside a function as a function of its own: the interpreter is there, and the
//! function's translation has no entry at that place.

use super::blocks;
use super::explorer::Marks;
use super::function::{Function, Terminator};
use super::resolved::Resolved;
use super::setjmp;
use crate::elf::Binary;
use std::collections::HashSet;
use std::ops::Range;

/// The code of `function` that is reached from its instruction at `pc`. `None` if it has no
/// instruction there.
///
/// What `function` knows of registers holds for control that came from its entry. Here it
/// may have come from anywhere, so jumps are looked at again. What their tables were known
/// to be is taken for likely: each jump compares its target.
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

/// Most bytes between two blocks that may be code of the function too: a loop that was put
/// into one block ([`find_searches`](super::find_searches)) has had others.
const MAX_GAP: u64 = 64;

/// Where the instructions of a function are; sorted, apart from each other.
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

/// Functions that `function` calls and that may return twice.
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
