//! The blocks of one function: direct control flow is explored and indirect jumps are resolved in
//! turn, until a fixed point.

use super::explorer::{Explorer, Marks};
use super::function::{Block, Terminator};
use super::resolved::Resolved;
use super::{graph, tables};
use crate::elf::Binary;
use std::ops::Range;

/// Builds the blocks of the function at `entry` within ranges, jump tables included.
/// Also returns the number of instructions decoded.
pub(super) fn build(
    binary: &Binary<'_>,
    marks: &mut Marks,
    ranges: &[Range<u64>],
    entry: u64,
) -> (Vec<Block>, usize) {
    build_from(binary, marks, ranges, entry, Resolved::default())
}

/// As [`build`], with prior knowledge of the indirect jumps.
pub(super) fn build_from(
    binary: &Binary<'_>,
    marks: &mut Marks,
    ranges: &[Range<u64>],
    entry: u64,
    mut known: Resolved,
) -> (Vec<Block>, usize) {
    let mut explorer = Explorer::new(binary, marks, ranges, entry);
    for edge in known.edges() {
        explorer.add(edge.target);
    }
    let mut blocks = explorer.blocks();
    known.update_edges(&explorer);
    loop {
        let jumps = indirect_jumps(&blocks);
        known.apply(&mut blocks, &jumps);
        // A result is valid only if the edges that it adds were present during the search.
        let found = tables::resolve(binary, &explorer, &blocks, entry, &jumps);
        if !known.merge(found) {
            break;
        }
        for edge in known.edges() {
            explorer.add(edge.target);
        }
        blocks = explorer.blocks();
        known.update_edges(&explorer);
    }
    graph::mark_loops(&mut blocks, entry);
    (blocks, explorer.decoded())
}

/// Indices of the blocks that end in an indirect jump or call.
fn indirect_jumps(blocks: &[Block]) -> Vec<usize> {
    let blocks = blocks.iter().enumerate();
    let indirect = blocks.filter(|(_, block)| {
        matches!(
            block.terminator,
            Terminator::JumpIndirect | Terminator::CallIndirect { .. }
        )
    });
    indirect.map(|(index, _)| index).collect()
}
