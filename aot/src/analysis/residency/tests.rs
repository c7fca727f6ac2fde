//! Joins of paths and loops of a few instructions; the register is `s2`, which is not passed
//! in a host register.

use super::*;
use crate::analysis::register_flow::whereabouts;
use crate::analysis::testing::{block, forward, function};
use crate::cfg::{Block, Edge, EdgeKind};

const S2: u32 = 1 << 18;
const NOP: u32 = 0x0000_0013;
const MV_A0_S2: u32 = 0x0009_0513;
const ADDI_S2_S2_1: u32 = 0x0019_0913;
const BEQZ_A0: u32 = 0x0005_0463;
const LI_S2_1: u32 = 0x0010_0913;
const JAL: u32 = 0x0000_00ef;
const RET: u32 = 0x0000_8067;

fn branch(taken: u64, not_taken: u64) -> Terminator {
    Terminator::Branch {
        taken: forward(taken),
        not_taken: forward(not_taken),
    }
}

fn next(target: u64) -> Terminator {
    let next = forward(target);
    Terminator::FallThrough { next }
}

fn call(return_to: u64) -> Terminator {
    Terminator::Call {
        target: 0x9000,
        return_to: forward(return_to),
        returns_twice: false,
    }
}

/// Whether `s2` is dirty, and resident, at the start of each block.
fn analyse(blocks: Vec<Block>) -> Vec<(bool, bool)> {
    let (function, unit) = function(blocks, false);
    let summary = FunctionSummary::of(&function, &unit);
    let dirty = dirty(&summary, |_| RegisterSet::ALL);
    let resident = resident(&summary, |pc| dirty.at_start(pc), |_| RegisterSet::ALL);
    let has_s2 = |set: RegisterSet| set.x & S2 != 0;
    let starts = function.blocks.iter().map(|block| block.start);
    starts
        .map(|pc| (has_s2(dirty.at_start(pc)), has_s2(resident.at_start(pc))))
        .collect()
}

/// The state after a diamond of two paths, at a block of `after`.
fn diamond(left: &[u32], right: &[u32], after: &[u32]) -> (bool, bool) {
    analyse(diamond_blocks(left, right, after))[3]
}

fn diamond_blocks(left: &[u32], right: &[u32], after: &[u32]) -> Vec<Block> {
    vec![
        block(0x1000, &[BEQZ_A0], branch(0x1200, 0x1100)),
        block(0x1100, left, next(0x1300)),
        block(0x1200, right, next(0x1300)),
        block(0x1300, &[after, &[RET]].concat(), Terminator::Return),
    ]
}

/// A loop that may call in each iteration; the header is the block at 0x1100.
fn looping(call: Option<Terminator>, round: &[u32]) -> (bool, bool) {
    let mut header = block(
        0x1100,
        &[&[NOP], round, &[BEQZ_A0]].concat(),
        branch(0x1300, 0x1200),
    );
    header.is_loop_header = true;
    let back = Edge {
        target: 0x1100,
        kind: EdgeKind::Back,
    };
    let again = Terminator::Jump { target: back };
    let blocks = vec![
        block(0x1000, &[NOP], next(0x1100)),
        header,
        block(0x1200, &[JAL], call.unwrap_or(next(0x1240))),
        block(0x1240, &[NOP], again),
        block(0x1300, &[RET], Terminator::Return),
    ];
    analyse(blocks)[1]
}

#[test]
fn after_a_call_nothing_is_resident() {
    let blocks = vec![
        block(0x1000, &[MV_A0_S2, JAL], call(0x1100)),
        block(0x1100, &[MV_A0_S2, RET], Terminator::Return),
    ];
    assert_eq!(analyse(blocks), [(false, false), (false, false)]);
}

#[test]
fn what_all_paths_have_is_resident() {
    assert_eq!(diamond(&[MV_A0_S2], &[MV_A0_S2], &[NOP]), (false, true));
}

#[test]
fn what_some_paths_have_is_resident_if_it_is_read() {
    assert_eq!(diamond(&[MV_A0_S2], &[NOP], &[NOP]), (false, false));
    assert_eq!(diamond(&[MV_A0_S2], &[NOP], &[MV_A0_S2]), (false, true));
}

#[test]
fn what_all_paths_change_is_stored_later() {
    let change = &[ADDI_S2_S2_1];
    assert_eq!(diamond(change, change, &[NOP]), (true, true));
}

#[test]
fn what_some_paths_change_they_store() {
    let change = &[ADDI_S2_S2_1];
    assert_eq!(diamond(change, &[NOP], &[NOP]), (false, false));
    assert_eq!(diamond(change, &[MV_A0_S2], &[MV_A0_S2]), (false, true));
}

#[test]
fn loops_without_calls_keep_what_they_use() {
    assert_eq!(looping(None, &[MV_A0_S2]), (false, true));
    assert_eq!(looping(None, &[ADDI_S2_S2_1]), (true, true));
    assert_eq!(looping(None, &[NOP]), (false, false));
}

#[test]
fn loops_with_calls_do_not() {
    let call = || Some(call(0x1240));
    assert_eq!(looping(call(), &[NOP]), (false, false));
    assert_eq!(looping(call(), &[ADDI_S2_S2_1]), (false, false));
}

/// Whether `s2` is in the `Hart` structure after the two paths, and whether it may be unavailable.
fn after_join(left: &[u32], right: &[u32], after: &[u32]) -> (bool, bool) {
    let (function, unit) = function(diamond_blocks(left, right, after), false);
    let found = whereabouts(&function, 0x1300, &unit);
    (found.in_hart.x & S2 != 0, found.unknown.x & S2 != 0)
}

#[test]
fn a_crash_finds_registers_where_the_paths_left_them() {
    let change = &[ADDI_S2_S2_1];
    let at = |left, right, after| after_join(left, right, after);
    assert_eq!(at(&[NOP], &[NOP], &[NOP]), (true, false));
    assert_eq!(at(change, &[NOP], &[MV_A0_S2]), (true, false));
    assert_eq!(at(change, change, &[MV_A0_S2]), (false, false));
    // Nothing needs the register, so no path stored it, and callers may not have passed it.
    assert_eq!(at(change, &[NOP], &[LI_S2_1]), (false, true));
    assert_eq!(at(&[NOP], &[NOP], &[LI_S2_1]), (false, true));
}
