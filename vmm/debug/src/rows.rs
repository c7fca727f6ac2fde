//! Rows of line tables (DWARF 5, section 6.2).

use crate::budget::Budget;
use crate::dwarf::Unit;
use std::ops::{ControlFlow, Range};

/// Code of one line.
pub(crate) struct Row {
    /// Link-time addresses.
    pub(crate) code: Range<u64>,
    /// Index of the file in the header of the line table.
    pub(crate) file: u64,
    /// 0 for code without a line.
    pub(crate) line: u64,
}

/// A row whose end is not known yet.
struct Begun {
    file: u64,
    line: u64,
    start: u64,
    /// Whether a statement begins there.
    is_statement: bool,
}

/// Calls `action` with the rows of a unit in the order of the table, until it breaks or the budget ends.
pub(crate) fn each_row(
    unit: &Unit,
    budget: &Budget,
    mut action: impl FnMut(Row) -> ControlFlow<()>,
) {
    let Some(program) = unit.line_program.clone() else {
        return;
    };
    let mut rows = program.rows();
    let mut before: Option<Begun> = None;
    // Code that the linker left out is at address 0.
    let mut is_used = true;
    while let Ok(Some((_, row))) = rows.next_row() {
        if budget.take(1).is_err() {
            return;
        }
        let start = row.address();
        if before.is_none() {
            is_used = start != 0;
        }
        if let Some(begun) = &before
            && is_used
            && begun.start < start
        {
            let row = Row {
                code: begun.start..start,
                file: begun.file,
                line: begun.line,
            };
            if action(row).is_break() {
                return;
            }
        }
        if row.end_sequence() {
            before = None;
            continue;
        }
        let is_better =
            |before: &Begun| before.start != start || row.is_stmt() || !before.is_statement;
        if before.as_ref().is_none_or(is_better) {
            before = Some(Begun {
                file: row.file_index(),
                line: row.line().map_or(0, std::num::NonZeroU64::get),
                start,
                is_statement: row.is_stmt(),
            });
        }
    }
}
