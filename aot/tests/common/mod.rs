//! Translates a few instructions, for tests that examine the machine code.

use std::collections::HashSet;

use hartline_aot::analysis::{Conventions, Features, Liveness, Unit};
use hartline_aot::cfg::{Block, Function, Terminator};
use hartline_aot::elf::Constants;
use hartline_aot::technique::{Disabled, Technique};
use hartline_aot::translate::{Stage, emit};
use hartline_isa::decode;

/// The address of the function.
pub const BASE: u64 = 0x1_0000;
/// The instruction `ret`.
pub const RET: u32 = 0x0000_8067;

/// A block at `start` that executes `words`.
pub fn block(start: u64, words: &[u32], terminator: Terminator) -> Block {
    let decoded = words
        .iter()
        .map(|&word| decode(word).expect("an instruction"));
    Block {
        start,
        instructions: (0..).map(|n| start + 4 * n).zip(decoded).collect(),
        terminator,
        is_loop_header: false,
    }
}

/// A function of these blocks at a stage of translation.
pub fn translated(
    blocks: Vec<Block>,
    disabled: &[Technique],
    precise: bool,
    stage: Stage,
) -> String {
    let function = Function {
        entry: BASE,
        name: None,
        blocks,
    };
    let features = Features::new("+popcnt,+lzcnt,+bmi,+bmi2");
    let unit = Unit {
        text: BASE..BASE + 0x1000,
        position_independent: false,
        entries: HashSet::from([BASE]),
        polling: HashSet::from([BASE]),
        liveness: Liveness::of(std::slice::from_ref(&function), &features),
        features,
        conventions: Conventions::default(),
        disabled: Disabled::new(disabled),
        precise,
        parks_registers: false,
        has_sequences: false,
        constants: Constants::default(),
    };
    emit(&[&function], &unit, stage).expect("compiles")
}

/// The instructions in the text of an assembly file, up to the first return.
pub fn lines(text: &str) -> Vec<String> {
    let start = text.find("f_10000:").expect("the function is there");
    text[start..]
        .lines()
        .filter_map(|line| line.strip_prefix('\t'))
        .filter(|line| !line.starts_with('.'))
        .take_while(|line| !line.starts_with("ret"))
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}
