//! Poll placement. A function polls at its entry if it may recurse or can be entered at a loop. A
//! loop polls if it has a cycle without another poll.

use std::collections::HashSet;

use super::unit::Unit;
use crate::cfg::{Block, EdgeKind, Function, Terminator};
use crate::technique::Technique;

/// The most steps of the search through one function's loops.
const EFFORT: usize = 1 << 20;
/// The number of iterations of a single-block loop that share a poll.
const ROUNDS: usize = 4;
/// The most instructions of such a block.
const LONGEST_ROUND: usize = 16;

/// Whether the function polls at its entry. A function that calls or jumps to others may recurse,
/// and a function with a loop can be entered there through the poll.
#[must_use]
pub fn needs_poll(function: &Function) -> bool {
    function.blocks.iter().any(|block| block.is_loop_header) || leaves(function)
}

fn leaves(function: &Function) -> bool {
    function.blocks.iter().any(|block| match &block.terminator {
        Terminator::Call { .. }
        | Terminator::CallIndirect { .. }
        | Terminator::JumpIndirect
        | Terminator::JumpTable(_) => true,
        terminator => terminator.edges().any(|edge| !edge.is_internal()),
    })
}

/// Headers of the loops that poll. A loop does not poll if each cycle calls a function of this file
/// that polls at its entry.
#[must_use]
pub fn polled_loops(function: &Function, unit: &Unit) -> HashSet<u64> {
    let headers = function.blocks.iter().filter(|block| block.is_loop_header);
    let mut effort = EFFORT;
    headers
        .filter(|header| has_silent_round(function, header, unit, &mut effort))
        .map(|header| header.start)
        .collect()
}

/// Whether a path leads from `header` back to it without a call of a function that polls; true if
/// the search exceeds `effort`.
fn has_silent_round(function: &Function, header: &Block, unit: &Unit, effort: &mut usize) -> bool {
    let mut seen = HashSet::from([header.start]);
    let mut work = vec![header];
    while let Some(block) = work.pop() {
        if calls_polling(block, unit) {
            continue;
        }
        for edge in block.terminator.edges().filter(|edge| edge.is_internal()) {
            let Some(left) = effort.checked_sub(1) else {
                return true;
            };
            *effort = left;
            if edge.kind == EdgeKind::Back && edge.target == header.start {
                return true;
            }
            if seen.insert(edge.target) {
                work.extend(function.block(edge.target));
            }
        }
    }
    false
}

fn calls_polling(block: &Block, unit: &Unit) -> bool {
    match block.terminator {
        Terminator::Call { target, .. } => unit.polling.contains(&target),
        _ => false,
    }
}

/// The number of iterations of a loop that share a poll, if `block` is the whole loop and polls at
/// the target of its only back edge; otherwise 1.
#[must_use]
pub fn rounds(block: &Block, unit: &Unit) -> usize {
    let Terminator::Branch { taken, not_taken } = &block.terminator else {
        return 1;
    };
    let mut edges = [taken, not_taken].into_iter();
    let again = edges.any(|edge| edge.target == block.start);
    let short = block.instructions.len() <= LONGEST_ROUND;
    match again && short && unit.disabled.allows(Technique::SharedPolls) {
        true => ROUNDS,
        false => 1,
    }
}
