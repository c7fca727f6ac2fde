//! Control-flow recovery: finds the functions and basic blocks in an ELF file's text.
//!
//! The result need not be complete to be correct: an address that was not found is dispatched at
//! run time and, in the end, interpreted. But the result is exact. A hart that starts at a block
//! executes exactly its instructions. The block's terminator lists every successor; the list of an
//! indirect jump may be partial, and has a fallback.
//!
//! Recovery assumes that memory that the file maps read-only keeps its contents. It also assumes
//! that calls preserve the psABI's saved registers in functions that keep the address of a jump
//! table in such a register across calls.

mod blocks;
mod constants;
mod explorer;
mod function;
mod graph;
mod inside;
mod recover;
mod resolved;
mod searches;
mod setjmp;
mod statistics;
mod tables;
mod units;
mod values;

pub use function::{Block, Edge, EdgeKind, Function, Index, JumpTable, Terminator, TopByte};
pub use inside::entered_at;
pub use recover::recover;
pub use searches::find_searches;
pub use statistics::Statistics;

use std::collections::{BTreeSet, HashSet};

/// The recovered functions of a file.
#[derive(Debug, Clone)]
pub struct ControlFlow {
    /// Sorted by entry.
    pub functions: Vec<Function>,
    /// Addresses in the code that also appear other than as the target of a jump or call: in a
    /// register, in data, or as an entry that the file names.
    pub exposed: HashSet<u64>,
}

impl ControlFlow {
    /// Returns the targets of all jump tables.
    #[must_use]
    pub fn cases(&self) -> BTreeSet<u64> {
        let blocks = self.functions.iter().flat_map(|function| &function.blocks);
        let tables = blocks.filter_map(|block| match &block.terminator {
            Terminator::JumpTable(table) => Some(table),
            _ => None,
        });
        let edges = tables.flat_map(|table| &table.targets);
        edges.map(|edge| edge.target).collect()
    }

    /// Returns the function with this entry.
    #[must_use]
    pub fn function(&self, entry: u64) -> Option<&Function> {
        let index = self
            .functions
            .binary_search_by_key(&entry, |function| function.entry);
        index.ok().map(|index| &self.functions[index])
    }
}
