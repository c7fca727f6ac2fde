//! Reads mutated ELF files and recovers their control flow. The result is an error, or functions
//! that lie in the code and have consistent edges.

#![no_main]

use hartline_aot::cfg::Function;
use hartline_aot::translator::{Options, Translator};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(translator) = Translator::new(bytes, &Options::default()) else {
        return;
    };
    let binary = translator.binary();
    let text = binary.text_range();
    let mut last = None;
    for function in &translator.flow().functions {
        assert!(last < Some(function.entry), "not sorted: {last:x?}");
        last = Some(function.entry);
        assert!(binary.is_text(function.entry), "{:#x}", function.entry);
        check(function);
        for block in &function.blocks {
            assert!(text.contains(&block.start), "{:#x}", block.start);
            for &(pc, instruction) in &block.instructions {
                assert_eq!(binary.instruction(pc), Some(instruction), "{pc:#x}");
            }
        }
    }
    let statistics = translator.flow().statistics(binary);
    let _ = format!("{statistics:?}");
});

/// Checks that edges inside the function lead to its blocks.
fn check(function: &Function) {
    assert!(function.block(function.entry).is_some());
    let edges = function
        .blocks
        .iter()
        .flat_map(|block| block.terminator.edges());
    for edge in edges.filter(|edge| edge.is_internal()) {
        let found = function.block(edge.target);
        assert!(found.is_some_and(|block| block.start == edge.target));
    }
}
