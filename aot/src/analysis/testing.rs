//! Functions and files of a few instructions, for unit tests.

use std::collections::HashSet;

use hartline_isa::decode;

use super::{Conventions, Features, Liveness, Unit};
use crate::cfg::{Block, ControlFlow, Edge, EdgeKind, Function, Terminator};
use crate::elf::Constants;
use crate::technique::Disabled;

/// A block of these instruction words.
pub(crate) fn block(start: u64, words: &[u32], terminator: Terminator) -> Block {
    let decoded = words.iter().map(|&word| decode(word).unwrap());
    let addresses = (0..).map(|n| start + 4 * n);
    Block {
        start,
        instructions: addresses.zip(decoded).collect(),
        terminator,
        is_loop_header: false,
    }
}

/// An edge that closes no loop.
pub(crate) fn forward(target: u64) -> Edge {
    let kind = EdgeKind::Forward;
    Edge { target, kind }
}

/// A function of these blocks, the first one its entry, as the only function of a file.
pub(crate) fn function(blocks: Vec<Block>, precise: bool) -> (Function, Unit) {
    let function = Function {
        entry: blocks[0].start,
        name: None,
        blocks,
    };
    let unit = Unit {
        text: 0x1000..0x2000,
        position_independent: false,
        entries: HashSet::from([function.entry]),
        polling: HashSet::new(),
        liveness: Liveness::default(),
        features: Features::default(),
        conventions: Conventions::default(),
        disabled: Disabled::default(),
        precise,
        parks_registers: false,
        has_sequences: false,
        constants: Constants::default(),
    };
    (function, unit)
}

/// Entry of [`saves_s2`].
pub(crate) const CALLEE: u64 = 0x1000;
/// Entry of [`calls_callee`].
pub(crate) const CALLER: u64 = 0x2000;
const RET: u32 = 0x0000_8067;
const JAL: u32 = 0x0000_00ef;
/// `addi sp, sp, -16`, `sd s2, 0(sp)`, `mv s2, a0`, `li a5, 1`, `add a0, s2, a5`,
/// `ld s2, 0(sp)`, `addi sp, sp, 16`, `ret`.
pub(crate) const SAVES_S2: [u32; 8] = [
    0xff01_0113,
    0x0121_3023,
    0x0005_0913,
    0x0010_0793,
    0x00f9_0533,
    0x0001_3903,
    0x0101_0113,
    RET,
];

/// A function of these blocks.
pub(crate) fn function_at(entry: u64, blocks: Vec<Block>) -> Function {
    Function {
        entry,
        name: None,
        blocks,
    }
}

/// A function that saves `s2` and does not use its caller's `a5`.
pub(crate) fn saves_s2() -> Function {
    function_at(CALLEE, vec![block(CALLEE, &SAVES_S2, Terminator::Return)])
}

/// A function that calls [`saves_s2`].
pub(crate) fn calls_callee() -> Function {
    let after = CALLER + 4;
    let return_to = Edge {
        target: after,
        kind: EdgeKind::Forward,
    };
    let call = Terminator::Call {
        target: CALLEE,
        return_to,
        returns_twice: false,
    };
    let blocks = vec![
        block(CALLER, &[JAL], call),
        // `ld ra, 0(sp)`
        block(after, &[0x0001_3083, RET], Terminator::Return),
    ];
    function_at(CALLER, blocks)
}

/// A file of these functions; other files may call the functions at `exposed`.
pub(crate) fn file(functions: Vec<Function>, exposed: &[u64]) -> (ControlFlow, Unit) {
    let flow = ControlFlow {
        functions,
        exposed: exposed.iter().copied().collect(),
    };
    let features = Features::default();
    let liveness = Liveness::of(&flow.functions, &features);
    let unit = Unit {
        text: 0x1000..0x4000,
        position_independent: false,
        entries: flow.functions.iter().map(|f| f.entry).collect(),
        polling: HashSet::new(),
        conventions: Conventions::of(&flow, &liveness, &features),
        liveness,
        features,
        disabled: Disabled::default(),
        precise: false,
        parks_registers: false,
        has_sequences: false,
        constants: Constants::default(),
    };
    (flow, unit)
}
