//! Jump tables that several jumps of a function share.

use std::collections::BTreeMap;

use crate::cfg::{Edge, Function, JumpTable, Terminator};

/// Returns the targets of edges.
#[must_use]
pub fn addresses(targets: &[Edge]) -> Vec<u64> {
    targets.iter().map(|edge| edge.target).collect()
}

/// Returns the tables of a function that several jumps share, by the addresses of their targets.
#[must_use]
pub fn shared_tables(function: &Function) -> BTreeMap<Vec<u64>, Vec<&JumpTable>> {
    let mut tables: BTreeMap<Vec<u64>, Vec<&JumpTable>> = BTreeMap::new();
    for block in &function.blocks {
        if let Terminator::JumpTable(table) = &block.terminator
            && table.index.is_some()
            && table.targets.iter().all(|edge| edge.is_internal())
        {
            let users = tables.entry(addresses(&table.targets)).or_default();
            users.push(table);
        }
    }
    tables.retain(|_, users| users.len() > 1);
    tables
}
