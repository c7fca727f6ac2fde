//! What unit tests of the analyses build functions from.

use std::collections::HashSet;

use hartline_isa::decode;

use super::{Conventions, Features, Liveness, Unit};
use crate::cfg::{Block, Edge, EdgeKind, Function, Terminator};
use crate::elf::Constants;
use crate::technique::Disabled;

/// A block of these instruction words.
pub(super) fn block(start: u64, words: &[u32], terminator: Terminator) -> Block {
    let decoded = words.iter().map(|&word| decode(word).unwrap());
    let addresses = (0..).map(|n| start + 4 * n);
    Block {
        start,
        instructions: addresses.zip(decoded).collect(),
        terminator,
        is_loop_header: false,
    }
}

/// An edge that leads no way back.
pub(super) fn forward(target: u64) -> Edge {
    let kind = EdgeKind::Forward;
    Edge { target, kind }
}

/// The function of these blocks, the first one its entry, in a file of its own.
pub(super) fn function(blocks: Vec<Block>, precise: bool) -> (Function, Unit) {
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
        constants: Constants::default(),
    };
    (function, unit)
}
