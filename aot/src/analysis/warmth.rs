//! A guess which functions a program executes most, without a profile.
//!
//! Each function has an estimate of how often it is called. A call in a loop counts for each of its
//! iterations, and a caller passes its own estimate on. Where nothing is known, a loop has a fixed
//! number of iterations, and code that is reached through a pointer is called once.

use crate::cfg::{Block, ControlFlow, EdgeKind, Function, Terminator};
use std::collections::{HashMap, HashSet};

/// Iterations of a loop.
const ITERATIONS: f64 = 8.0;
/// The deepest nesting of loops that counts.
const DEEPEST: i32 = 5;
/// Rounds of passing estimates on: the length of the chains of calls that count.
const ROUNDS: usize = 6;
/// The part of its caller's estimate that a call outside loops gets: not each path leads to it.
const CHANCE: f64 = 0.5;
/// The largest estimate: recursion ends there.
const MOST: f64 = 1e9;

/// Returns the entries of the functions that are likely to be executed most: as many as fit in a
/// `share` (0 to 1) of all instructions, and at least one.
#[must_use]
pub fn guess(flow: &ControlFlow, share: f64) -> HashSet<u64> {
    let shapes: Vec<Shape> = flow.functions.iter().map(Shape::of).collect();
    let calls = estimate(flow, &shapes);
    let mut ranks: Vec<(f64, &Function)> = flow
        .functions
        .iter()
        .zip(&shapes)
        .zip(&calls)
        .map(|((function, shape), calls)| (calls * factor(shape.depth), function))
        .collect();
    ranks.sort_by(|(a, f), (b, g)| b.total_cmp(a).then(f.entry.cmp(&g.entry)));
    let total: usize = ranks.iter().map(|(_, f)| f.instruction_count()).sum();
    let mut left = total as f64 * share;
    let mut warm = HashSet::new();
    for (_, function) in ranks {
        let length = function.instruction_count() as f64;
        // A giant does not keep smaller functions out.
        if length <= left || warm.is_empty() {
            left -= length;
            warm.insert(function.entry);
        }
    }
    warm
}

/// What counts of a function.
#[derive(Debug)]
struct Shape {
    /// The deepest nesting of its loops.
    depth: i32,
    /// The functions that it calls or jumps to, with the nesting of the call.
    calls: Vec<(u64, i32)>,
}

impl Shape {
    fn of(function: &Function) -> Self {
        let loops = loops(function);
        // A loop's blocks lie between its header and its last back edge, as compilers place them.
        let depth = |block: &Block| {
            let around = loops
                .iter()
                .filter(|&(&header, &last)| (header..=last).contains(&block.start));
            i32::try_from(around.count())
                .unwrap_or(DEEPEST)
                .min(DEEPEST)
        };
        let mut calls = Vec::new();
        let mut deepest = 0;
        for block in &function.blocks {
            let depth = depth(block);
            deepest = deepest.max(depth);
            if let Terminator::Call { target, .. } = block.terminator {
                calls.push((target, depth));
            }
            let edges = block.terminator.edges();
            let outside = edges.filter(|edge| !edge.is_internal());
            calls.extend(outside.map(|edge| (edge.target, depth)));
        }
        Self {
            depth: deepest,
            calls,
        }
    }
}

/// The headers of a function's loops, and the start of the last block that leads back to each.
fn loops(function: &Function) -> HashMap<u64, u64> {
    let mut loops: HashMap<u64, u64> = HashMap::new();
    for block in &function.blocks {
        let edges = block.terminator.edges();
        for edge in edges.filter(|edge| edge.kind == EdgeKind::Back) {
            let last = loops.entry(edge.target).or_insert(block.start);
            *last = block.start.max(*last);
        }
    }
    loops
}

/// How often code at this nesting of loops is executed for each call.
fn factor(depth: i32) -> f64 {
    ITERATIONS.powi(depth)
}

/// The estimated number of calls of each function.
fn estimate(flow: &ControlFlow, shapes: &[Shape]) -> Vec<f64> {
    let functions = &flow.functions;
    let index = |entry: u64| functions.binary_search_by_key(&entry, |f| f.entry).ok();
    let known = |function: &Function| f64::from(u8::from(flow.exposed.contains(&function.entry)));
    let first: Vec<f64> = functions.iter().map(known).collect();
    let mut calls = first.clone();
    for _ in 0..ROUNDS {
        let mut next = first.clone();
        for (shape, calls) in shapes.iter().zip(&calls) {
            for &(target, depth) in &shape.calls {
                let chance = match depth {
                    0 => CHANCE,
                    depth => factor(depth),
                };
                if let Some(target) = index(target) {
                    next[target] = (next[target] + calls * chance).min(MOST);
                }
            }
        }
        calls = next;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::testing::{block, forward, function_at};

    const NOP: u32 = 0x0000_0013;

    /// A function of 16 instructions that calls `callee`: in a loop if `loops`.
    fn calls(entry: u64, callee: u64, loops: bool) -> Function {
        let words = [NOP; 8];
        let second = entry + 32;
        let call = Terminator::Call {
            target: callee,
            return_to: forward(second),
            returns_twice: false,
        };
        let end = match loops {
            true => Terminator::Branch {
                taken: crate::cfg::Edge {
                    target: entry,
                    kind: EdgeKind::Back,
                },
                not_taken: forward(second),
            },
            false => Terminator::Return,
        };
        let blocks = vec![block(entry, &words, call), block(second, &words, end)];
        function_at(entry, blocks)
    }

    /// A function of 16 instructions that calls none.
    fn leaf(entry: u64) -> Function {
        function_at(entry, vec![block(entry, &[NOP; 16], Terminator::Return)])
    }

    fn flow() -> ControlFlow {
        ControlFlow {
            // The first one is called from outside, and calls the third one in a loop. Nothing calls the
            // second one, which calls the fourth one.
            functions: vec![
                calls(0x1000, 0x3000, true),
                calls(0x2000, 0x4000, false),
                leaf(0x3000),
                leaf(0x4000),
            ],
            exposed: HashSet::from([0x1000]),
        }
    }

    #[test]
    fn loops_and_what_they_call_are_warm() {
        let flow = flow();
        assert_eq!(guess(&flow, 0.25).len(), 1);
        assert_eq!(guess(&flow, 0.5), HashSet::from([0x1000, 0x3000]));
        assert_eq!(guess(&flow, 1.0).len(), 4);
    }

    #[test]
    fn one_function_is_always_warm() {
        assert_eq!(guess(&flow(), 0.0).len(), 1);
        let empty = ControlFlow {
            functions: Vec::new(),
            exposed: HashSet::new(),
        };
        assert!(guess(&empty, 0.4).is_empty());
    }

    #[test]
    fn recursion_ends() {
        let flow = ControlFlow {
            functions: vec![calls(0x1000, 0x1000, true), leaf(0x2000)],
            exposed: HashSet::from([0x1000]),
        };
        assert_eq!(guess(&flow, 0.7), HashSet::from([0x1000]));
    }
}
