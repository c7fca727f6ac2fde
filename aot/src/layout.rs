//! The order of functions in an image: callees follow their callers, so that code that runs
//! together is on the same pages and in the same sets of the instruction cache.
//!
//! This is call-chain clustering (C3; Ottoni and Maher, "Optimizing function placement for
//! large-scale data-center applications", 2017), with the nesting of loops in place of a
//! profile.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use crate::cfg::{Edge, EdgeKind, Function, Terminator};

/// The factor by which each enclosing loop multiplies the weight of a call.
const LOOP_FACTOR: u64 = 8;
/// The number of enclosing loops that count.
const DEEPEST_LOOP: u32 = 4;
/// The most guest instructions that calls may group, some 60 KiB of code: functions that are
/// further apart do not benefit from each other.
const LARGEST_CLUSTER: usize = 4096;

/// Functions that are placed together.
struct Cluster {
    /// Indices, in their order in the image.
    functions: Vec<usize>,
    /// Guest instructions, at least 1.
    size: usize,
    /// The total weight of calls.
    weight: u64,
}

impl Cluster {
    /// Orders clusters by call weight for their size, the heaviest first; then by address.
    fn compare(&self, other: &Self) -> Ordering {
        let share = |weight: u64, size: usize| u128::from(weight) * size as u128;
        let density = share(other.weight, self.size).cmp(&share(self.weight, other.size));
        density.then_with(|| {
            self.functions
                .iter()
                .min()
                .cmp(&other.functions.iter().min())
        })
    }
}

/// Returns the order of `functions`, which are sorted by entry, as indices.
#[must_use]
pub fn order(functions: &[Function]) -> Vec<usize> {
    let calls = calls(functions);
    let mut clusters: Vec<Cluster> = functions
        .iter()
        .enumerate()
        .map(|(index, function)| Cluster {
            functions: vec![index],
            size: function.instruction_count().max(1),
            weight: 0,
        })
        .collect();
    for (&(_, callee), &weight) in &calls {
        let total = &mut clusters[callee].weight;
        *total = total.saturating_add(weight);
    }
    // The cluster of each function.
    let mut homes: Vec<usize> = (0..functions.len()).collect();
    let mut heaviest: Vec<((usize, usize), u64)> = calls.into_iter().collect();
    heaviest.sort_by_key(|&(call, weight)| (Reverse(weight), call));
    for ((caller, callee), _) in heaviest {
        let (to, from) = (homes[caller], homes[callee]);
        // The callee is not at the start of its cluster, so it cannot follow this caller.
        let placed = clusters[from].functions.first() != Some(&callee);
        let too_large = clusters[to].size + clusters[from].size > LARGEST_CLUSTER;
        if to == from || placed || too_large {
            continue;
        }
        let moved = std::mem::take(&mut clusters[from].functions);
        for &function in &moved {
            homes[function] = to;
        }
        let (size, weight) = (clusters[from].size, clusters[from].weight);
        let cluster = &mut clusters[to];
        cluster.functions.extend(moved);
        cluster.size += size;
        cluster.weight = cluster.weight.saturating_add(weight);
    }
    clusters.retain(|cluster| !cluster.functions.is_empty());
    clusters.sort_by(Cluster::compare);
    clusters.into_iter().flat_map(|c| c.functions).collect()
}

/// Returns the weight of calls between each pair of functions, tail calls included, by indices.
fn calls(functions: &[Function]) -> BTreeMap<(usize, usize), u64> {
    let mut calls: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (caller, function) in functions.iter().enumerate() {
        let depths = loop_depths(function);
        for (block, depth) in function.blocks.iter().zip(depths) {
            for target in targets(&block.terminator) {
                let callee = functions.binary_search_by_key(&target, |f| f.entry);
                let Some(callee) = callee.ok().filter(|&callee| callee != caller) else {
                    continue;
                };
                let total = calls.entry((caller, callee)).or_default();
                *total = total.saturating_add(LOOP_FACTOR.pow(depth.min(DEEPEST_LOOP)));
            }
        }
    }
    calls
}

/// Returns the targets of a terminator in other functions.
fn targets(terminator: &Terminator) -> impl Iterator<Item = u64> {
    let callee = match terminator {
        Terminator::Call { target, .. } => Some(*target),
        _ => None,
    };
    let edges = terminator.edges().filter(|edge| !edge.is_internal());
    callee.into_iter().chain(edges.map(|edge| edge.target))
}

/// Returns the number of loops around each block. A loop is assumed to span the blocks from its
/// header to the last block that branches back to it, in address order, as compilers lay it out.
fn loop_depths(function: &Function) -> Vec<u32> {
    let blocks = &function.blocks;
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, block) in blocks.iter().enumerate() {
        let back = |edge: &&Edge| edge.kind == EdgeKind::Back;
        for edge in block.terminator.edges().filter(back) {
            let header = blocks.binary_search_by_key(&edge.target, |block| block.start);
            if let Some(header) = header.ok().filter(|&header| header <= index) {
                last.insert(header, index);
            }
        }
    }
    // The number of loops that begin minus the number that end before each block.
    let mut changes = vec![0i32; blocks.len() + 1];
    for (header, end) in last {
        changes[header] += 1;
        changes[end + 1] -= 1;
    }
    let depths = changes.iter().scan(0i32, |depth, change| {
        *depth += change;
        Some(depth.unsigned_abs())
    });
    depths.take(blocks.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::Block;
    use hartline_isa::decode;

    /// A function at 0x1000 times `number` + 1 with `length` instructions and a block per callee.
    /// If `looped`, a loop surrounds all of these blocks.
    fn function(number: u64, length: usize, callees: &[u64], looped: bool) -> Function {
        let nop = decode(0x13).unwrap();
        let entry = 0x1000 * (number + 1);
        let block = |index: usize, terminator| Block {
            start: entry + 4 * index as u64,
            instructions: vec![(entry + 4 * index as u64, nop)],
            terminator,
            is_loop_header: looped && index == 0,
        };
        let edge = |index: usize, kind| Edge {
            target: entry + 4 * index as u64,
            kind,
        };
        let mut blocks: Vec<Block> = callees
            .iter()
            .enumerate()
            .map(|(index, callee)| {
                let call = Terminator::Call {
                    target: 0x1000 * (callee + 1),
                    return_to: edge(index + 1, EdgeKind::Forward),
                    returns_twice: false,
                };
                block(index, call)
            })
            .collect();
        let end = blocks.len();
        let terminator = match looped {
            true => Terminator::Jump {
                target: edge(0, EdgeKind::Back),
            },
            false => Terminator::Return,
        };
        let mut last = block(end, terminator);
        let rest = length.saturating_sub(end + 1);
        last.instructions
            .extend((1..=rest).map(|n| (last.start + 4 * n as u64, nop)));
        blocks.push(last);
        Function {
            entry,
            name: None,
            blocks,
        }
    }

    #[test]
    fn callees_follow_their_callers() {
        let functions = [
            function(0, 10, &[], false),
            function(1, 10, &[], false),
            function(2, 10, &[], false),
            // Function 3 calls function 0; function 4 calls functions 2 and 3 in a loop.
            function(3, 10, &[0], false),
            function(4, 10, &[2, 3], true),
        ];
        assert_eq!(order(&functions), [4, 2, 3, 0, 1]);
    }

    #[test]
    fn a_callee_goes_to_the_one_that_calls_it_most() {
        let functions = [
            function(0, 10, &[2], false),
            function(1, 10, &[2], true),
            function(2, 10, &[], false),
        ];
        assert_eq!(order(&functions), [1, 2, 0]);
        let depths: Vec<_> = functions.iter().map(loop_depths).collect();
        assert_eq!(depths, [vec![0, 0], vec![1, 1], vec![0]]);
    }

    #[test]
    fn clusters_are_not_too_large() {
        let functions = [
            function(0, LARGEST_CLUSTER, &[2], true),
            function(1, 10, &[2], false),
            function(2, 10, &[], false),
        ];
        assert_eq!(order(&functions), [1, 2, 0]);
    }

    #[test]
    fn cycles_and_unknown_callees_do_no_harm() {
        let functions = [
            function(0, 0, &[1, 7, 0], true),
            function(1, 10, &[0], false),
            function(2, 10, &[], false),
        ];
        let mut all = order(&functions);
        assert_eq!(all, [0, 1, 2]);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(order(&[]).is_empty());
    }

    #[test]
    fn what_nobody_calls_stays_as_it_is() {
        let functions: Vec<_> = (0..9).map(|n| function(n, 10, &[], false)).collect();
        assert_eq!(order(&functions), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
