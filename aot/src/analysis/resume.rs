//! Resume points: addresses inside functions at which translated code can be entered.
//!
//! Host frames may be dropped while a function is running (a signal handler returned, the host
//! stack was used up, the program jumped out of nested calls). The interpreter then continues in
//! the middle of the function. It must not stay there if that is the program's main loop: at the
//! header of an outermost loop it can change over to the translation. Inner loops have no resume
//! points, because an entry into one would make the loops around it irreducible.

use std::collections::{HashMap, HashSet};

use super::polls::needs_poll;
use super::unit::Unit;
use crate::cfg::{EdgeKind, Function};
use crate::technique::Technique;

/// The most steps of the search for one function's loops.
const EFFORT: usize = 1 << 20;

/// Returns the link-time addresses at which `function` can be entered besides its entry.
#[must_use]
pub fn resume_points(function: &Function, unit: &Unit) -> Vec<u64> {
    // The slow path of the entry poll holds the addresses as 32-bit numbers.
    if !needs_poll(function) || !unit.disabled.allows(Technique::Polls) {
        return Vec::new();
    }
    let mut points = outermost_headers(function);
    let is_entry = |pc| pc == function.entry || unit.entries.contains(&pc);
    points.retain(|&pc| !is_entry(pc) && i32::try_from(pc).is_ok());
    points
}

fn outermost_headers(function: &Function) -> Vec<u64> {
    let mut predecessors: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut latches: HashMap<u64, Vec<u64>> = HashMap::new();
    for block in &function.blocks {
        for edge in block.terminator.edges().filter(|edge| edge.is_internal()) {
            predecessors
                .entry(edge.target)
                .or_default()
                .push(block.start);
            if edge.kind == EdgeKind::Back {
                latches.entry(edge.target).or_default().push(block.start);
            }
        }
    }
    let mut inner = HashSet::new();
    let mut effort = EFFORT;
    for (&header, sources) in &latches {
        let mut body = HashSet::from([header]);
        let mut work = sources.clone();
        while let Some(block) = work.pop() {
            if !body.insert(block) {
                continue;
            }
            inner.insert(block);
            let before = predecessors.get(&block).map_or(&[][..], Vec::as_slice);
            work.extend_from_slice(before);
            match effort.checked_sub(before.len() + 1) {
                Some(left) => effort = left,
                None => return Vec::new(),
            }
        }
    }
    let mut headers: Vec<u64> = latches
        .into_keys()
        .filter(|header| !inner.contains(header))
        .collect();
    headers.sort_unstable();
    headers
}
