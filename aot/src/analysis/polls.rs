//! Where a function has to poll: at its entry if it may recurse or can be entered at a
//! loop, and in each loop that has a path round on which nothing else polls.

use std::collections::HashSet;

use super::unit::Unit;
use crate::cfg::{Block, EdgeKind, Function, Terminator};
use crate::technique::Technique;

/// Most steps of the search through one function's loops.
const EFFORT: usize = 1 << 20;
/// Rounds of a loop of one block that have a poll in common.
const ROUNDS: usize = 4;
/// Most instructions of such a block.
const LONGEST_ROUND: usize = 16;

/// Whether the function polls at its entry: one that calls or jumps to others may
/// recurse, and one with a loop can be entered there through the poll.
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

/// Headers of the loops that poll: not those where each path round calls a function of
/// this file that polls at its entry.
#[must_use]
pub fn polled_loops(function: &Function, unit: &Unit) -> HashSet<u64> {
    let headers = function.blocks.iter().filter(|block| block.is_loop_header);
    let mut effort = EFFORT;
    headers
        .filter(|header| has_silent_round(function, header, unit, &mut effort))
        .map(|header| header.start)
        .collect()
}

/// Whether a path leads from `header` back to it past no such call; yes if that takes more
/// than `effort` to find out.
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

/// How many rounds of a loop have a poll in common, if `block` is the whole loop and polls
/// where its one back edge leads; else 1.
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
