//! The control-flow graph of a function's blocks, by their numbers.

use std::collections::HashMap;
use std::mem;

use crate::cfg::{Block, Function};

/// Edges between the blocks of a function.
pub(super) struct BlockGraph {
    /// Predecessors of each block.
    pub(super) preds: Vec<Vec<usize>>,
    /// Successors of each block.
    pub(super) succs: Vec<Vec<usize>>,
    /// All blocks in reverse postorder.
    pub(super) order: Vec<usize>,
    /// The position of each block in `order`.
    pub(super) position: Vec<usize>,
}

impl BlockGraph {
    pub(super) fn of(function: &Function) -> Self {
        let blocks = &function.blocks;
        let numbers: HashMap<u64, usize> = (0..)
            .zip(blocks)
            .map(|(number, block)| (block.start, number))
            .collect();
        let targets = |block: &Block| {
            let edges = block.terminator.edges();
            let inside = edges.filter(|edge| edge.is_internal());
            inside
                .filter_map(|edge| numbers.get(&edge.target).copied())
                .collect()
        };
        let succs: Vec<Vec<usize>> = blocks.iter().map(targets).collect();
        let mut preds = vec![Vec::new(); blocks.len()];
        for (number, succs) in succs.iter().enumerate() {
            for &next in succs {
                preds[next].push(number);
            }
        }
        let order = reverse_postorder(numbers.get(&function.entry).copied(), &succs);
        let mut position = vec![0; blocks.len()];
        for (at, &number) in order.iter().enumerate() {
            position[number] = at;
        }
        Self {
            preds,
            succs,
            order,
            position,
        }
    }
}

fn reverse_postorder(entry: Option<usize>, succs: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; succs.len()];
    let mut order = Vec::with_capacity(succs.len());
    for root in entry.into_iter().chain(0..succs.len()) {
        if mem::replace(&mut seen[root], true) {
            continue;
        }
        let mut stack = vec![(root, 0)];
        while let Some((number, child)) = stack.pop() {
            match succs[number].get(child) {
                Some(&next) => {
                    stack.push((number, child + 1));
                    if !mem::replace(&mut seen[next], true) {
                        stack.push((next, 0));
                    }
                }
                None => order.push(number),
            }
        }
    }
    order.reverse();
    order
}
