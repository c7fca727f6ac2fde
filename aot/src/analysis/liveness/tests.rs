//! The data flow on functions of a few instructions.

use super::*;
use crate::analysis::returns::returns_with_arguments;
use crate::analysis::testing::block;
use crate::cfg::{Edge, EdgeKind};

const EXTERNAL: EdgeKind = EdgeKind::External;

fn function(blocks: Vec<Block>) -> Function {
    Function {
        entry: blocks[0].start,
        name: None,
        blocks,
    }
}

fn liveness(functions: &[Function]) -> Liveness {
    Liveness::of(functions, &Features::default())
}

const RET: u32 = 0x0000_8067;
const ADD_A0_A3_T0: u32 = 0x0056_8533;
const ADD_A0_A0_T1: u32 = 0x0065_0533;
const MV_SP_A0: u32 = 0x0005_0113;
const NOP: u32 = 0x0000_0013;
const JAL: u32 = 0x0000_00ef;
const JALR_A5: u32 = 0x0007_80e7;
const T0: u32 = 1 << 5;
const T1: u32 = 1 << 6;
const A2: u32 = 1 << 12;
const A3: u32 = 1 << 13;

/// A function that calls 0x1000 and executes `word` after the return.
fn caller(entry: u64, word: u32) -> Function {
    let return_to = Edge {
        target: entry + 4,
        kind: EdgeKind::Forward,
    };
    let call = Terminator::Call {
        target: 0x1000,
        return_to,
        returns_twice: false,
    };
    function(vec![
        block(entry, &[JAL], call),
        block(entry + 4, &[word, RET], Terminator::Return),
    ])
}

#[test]
fn only_what_is_read_is_needed() {
    let leaf = function(vec![block(
        0x1000,
        &[ADD_A0_A3_T0, RET],
        Terminator::Return,
    )]);
    let live = liveness(&[leaf, caller(0x2000, NOP)]);
    let entry = live.at_entry(0x1000).x;
    assert_eq!(entry & (A2 | A3 | T0 | T1), A3 | T0);
    assert_eq!(live.at_return(0x1000), PSABI);
    // The caller does not change a3 and t0, so their need passes through.
    assert_eq!(live.at_entry(0x2000).x & (A2 | A3 | T0 | T1), A3 | T0);
    assert_eq!(live.at_entry(0x9999), RegisterSet::ALL);
}

#[test]
fn what_a_caller_reads_afterwards_survives() {
    let leaf = function(vec![block(0x1000, &[NOP, RET], Terminator::Return)]);
    let live = liveness(&[leaf, caller(0x2000, ADD_A0_A0_T1)]);
    assert_eq!(live.at_return(0x1000).x, PSABI.x | T1);
    assert_eq!(live.at_entry(0x1000).x & (T0 | T1), T1);
}

#[test]
fn another_convention_is_recognised() {
    let return_to = Edge {
        target: 0x3004,
        kind: EdgeKind::Forward,
    };
    let indirect = function(vec![
        block(0x3000, &[JALR_A5], Terminator::CallIndirect { return_to }),
        block(0x3004, &[ADD_A0_A0_T1, RET], Terminator::Return),
    ]);
    let leaf = function(vec![block(0x1000, &[NOP, RET], Terminator::Return)]);
    let live = liveness(&[leaf, indirect]);
    assert_eq!(live.at_return(0x1000), RegisterSet::ALL);
    assert_eq!(live.at_entry(0x3000), RegisterSet::ALL);
}

#[test]
fn tail_calls_pass_on_what_is_needed() {
    let target = Edge {
        target: 0x1000,
        kind: EXTERNAL,
    };
    let leaf = function(vec![block(0x1000, &[NOP, RET], Terminator::Return)]);
    let tail = function(vec![block(0x4000, &[NOP], Terminator::Jump { target })]);
    let mut caller = caller(0x2000, ADD_A0_A0_T1);
    if let Terminator::Call { target, .. } = &mut caller.blocks[0].terminator {
        *target = 0x4000;
    }
    let live = liveness(&[leaf, caller, tail]);
    assert_eq!(live.at_return(0x1000).x & T1, T1);
}

#[test]
fn a_switch_of_stacks_keeps_everything() {
    let switch = function(vec![block(0x1000, &[MV_SP_A0, RET], Terminator::Return)]);
    let live = liveness(std::slice::from_ref(&switch));
    assert_eq!(live.at_entry(0x1000).x & (A2 | T0), A2 | T0);
    assert!(!returns_with_arguments(&switch, &switch.blocks[0]));
    let words = [MV_SP_A0, 0x0007_8613, RET];
    let start = function(vec![block(0x1000, &words, Terminator::Return)]);
    assert!(returns_with_arguments(&start, &start.blocks[0]));
}
