//! What unit tests of the analyses build functions from.

use hartline_isa::decode;

use crate::cfg::{Block, Terminator};

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
