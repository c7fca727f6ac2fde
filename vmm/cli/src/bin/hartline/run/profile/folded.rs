//! Folded stacks, for flame graphs: a line for each stack with its functions, the outermost one first,
//! and its microseconds.

use super::Profile;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// Writes a profile.
///
/// # Errors
/// Those of the file.
pub fn write(profile: &Profile, file: &mut impl Write) -> io::Result<()> {
    // Stacks with other lines of the same functions are the same line here.
    let mut lines: BTreeMap<String, Duration> = BTreeMap::new();
    for (stack, _, time) in profile.totals() {
        // A semicolon separates functions.
        let names = stack
            .iter()
            .map(|&frame| profile.frames[frame].name.replace([';', '\n'], ":"));
        let line = names.collect::<Vec<_>>().join(";");
        *lines.entry(line).or_default() += time;
    }
    for (line, time) in lines {
        writeln!(file, "{line} {}", time.as_micros())?;
    }
    Ok(())
}
