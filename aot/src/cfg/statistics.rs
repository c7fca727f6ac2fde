//! Statistics of control-flow recovery.

use super::{ControlFlow, Terminator};
use crate::elf::Binary;
use std::collections::{BTreeMap, BTreeSet};

/// Counts over all functions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Functions.
    pub functions: usize,
    /// Blocks.
    pub blocks: usize,
    /// Instructions in blocks; shared instructions count once for each function.
    pub instructions: usize,
    /// Bytes of code in the file.
    pub text_bytes: u64,
    /// Bytes of instructions in at least one block.
    pub reached_bytes: u64,
    /// Bytes in ranges that unwind information or symbols give to functions.
    pub function_bytes: u64,
    /// The bytes of `function_bytes` that are in at least one block.
    pub reached_function_bytes: u64,
    /// Addresses of indirect jumps that have a jump table.
    pub jump_tables: BTreeSet<u64>,
    /// Addresses of indirect jumps without a jump table.
    pub indirect_jumps: BTreeSet<u64>,
    /// Addresses of indirect calls.
    pub indirect_calls: BTreeSet<u64>,
}

impl ControlFlow {
    /// Counts the recovered code of a file.
    #[must_use]
    pub fn statistics(&self, binary: &Binary<'_>) -> Statistics {
        let mut statistics = Statistics {
            functions: self.functions.len(),
            text_bytes: binary
                .text()
                .iter()
                .map(|text| text.bytes.len() as u64)
                .sum(),
            function_bytes: binary
                .functions()
                .iter()
                .map(|range| range.end - range.start)
                .sum(),
            ..Statistics::default()
        };
        let mut reached: BTreeMap<u64, u64> = BTreeMap::new();
        for block in self.functions.iter().flat_map(|function| &function.blocks) {
            statistics.blocks += 1;
            statistics.instructions += block.instructions.len();
            let end = reached.entry(block.start).or_default();
            *end = block.end().max(*end);
            let Some(&(last, _)) = block.instructions.last() else {
                continue;
            };
            match block.terminator {
                Terminator::JumpTable(_) => statistics.jump_tables.insert(last),
                Terminator::JumpIndirect => statistics.indirect_jumps.insert(last),
                Terminator::CallIndirect { .. } => statistics.indirect_calls.insert(last),
                _ => continue,
            };
        }
        statistics.add_reached(binary, reached);
        statistics
    }
}

impl Statistics {
    /// Adds up ranges, which may overlap, by start.
    fn add_reached(&mut self, binary: &Binary<'_>, ranges: BTreeMap<u64, u64>) {
        let mut functions = binary.functions().iter().peekable();
        let mut position = 0;
        for (start, end) in ranges {
            let start = start.max(position);
            if start >= end {
                continue;
            }
            position = end;
            self.reached_bytes += end - start;
            while functions
                .next_if(|function| function.end <= start)
                .is_some()
            {}
            let mut ahead = functions.clone();
            while let Some(function) = ahead.next_if(|function| function.start < end) {
                let shared = function.end.min(end) - function.start.max(start);
                self.reached_function_bytes += shared;
            }
        }
    }
}
