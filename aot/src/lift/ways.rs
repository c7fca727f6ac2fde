//! The blocks of a function as a graph, by their numbers.

use std::collections::HashMap;
use std::mem;

use crate::cfg::{Block, Function};

/// Ways between the blocks of a function.
pub(super) struct Ways {
    /// Numbers of the blocks from which one leads to each block.
    pub(super) before: Vec<Vec<usize>>,
    /// Numbers of the blocks to which one leads from each block.
    pub(super) after: Vec<Vec<usize>>,
    /// All blocks in reverse postorder.
    pub(super) order: Vec<usize>,
    /// The place of each block in that order.
    pub(super) order_of: Vec<usize>,
}

impl Ways {
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
        let after: Vec<Vec<usize>> = blocks.iter().map(targets).collect();
        let mut before = vec![Vec::new(); blocks.len()];
        for (number, after) in after.iter().enumerate() {
            for &next in after {
                before[next].push(number);
            }
        }
        let order = reverse_postorder(numbers.get(&function.entry).copied(), &after);
        let mut order_of = vec![0; blocks.len()];
        for (place, &number) in order.iter().enumerate() {
            order_of[number] = place;
        }
        Self {
            order,
            order_of,
            before,
            after,
        }
    }
}

fn reverse_postorder(entry: Option<usize>, after: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; after.len()];
    let mut order = Vec::with_capacity(after.len());
    for root in entry.into_iter().chain(0..after.len()) {
        if mem::replace(&mut seen[root], true) {
            continue;
        }
        let mut stack = vec![(root, 0)];
        while let Some((number, child)) = stack.pop() {
            match after[number].get(child) {
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
