//! Tables for terminals.

use serde_json::Value;
use std::io::{self, Write};

/// Prints rows under headings; each column is as wide as its longest entry.
///
/// # Errors
/// Standard output cannot be written.
pub fn print<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let headings = headings.map(str::to_owned);
    let mut out = io::stdout().lock();
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line += &format!("{cell:<width$}  ", width = width(column));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A field of an answer as text; empty if it is missing.
pub fn text(answer: &Value, field: &str) -> String {
    match answer.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.escape_debug().to_string(),
        Some(other) => other.to_string(),
    }
}

/// A text with at most `width` characters, the last of which says if more would follow.
pub fn cut(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['\u{2026}'])
            .collect(),
    }
}

/// The first characters of an id, which are enough to distinguish ids.
pub fn short(answer: &Value, field: &str) -> String {
    text(answer, field).chars().take(12).collect()
}
