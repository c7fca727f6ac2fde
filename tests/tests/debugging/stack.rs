//! Call stacks as Hartline and gdb print them.

use hartline_tests::Result;
use hartline_tests::process;
use std::path::Path;
use std::process::Command;

/// A frame of a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// `<signal>` for a signal frame.
    pub function: String,
    /// gdb leaves it out at the start of a line.
    pub pc: Option<u64>,
    /// Name of the source file, and the line.
    pub line: Option<(String, u64)>,
}

impl Frame {
    fn signal() -> Self {
        Self {
            function: "<signal>".into(),
            pc: None,
            line: None,
        }
    }

    /// Whether this is gdb's frame. Code without debug information is compared by its address: a
    /// function may have several symbols.
    pub fn is_like(&self, gdb: &Self) -> bool {
        let is_same_code = match (self.pc, gdb.pc) {
            (Some(own), Some(theirs)) => own == theirs,
            _ => true,
        };
        let is_same_function = self.line.is_none() || self.function == gdb.function;
        is_same_code && is_same_function && self.line == gdb.line
    }
}

/// The number of a text with `0x`.
pub fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The frames in a report of Hartline.
pub fn reported(text: &str) -> Vec<Frame> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let frames = lines.map(|line| {
        let (_, rest) = line.split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        if rest.starts_with("<signal") {
            return Some(Frame::signal());
        }
        let (pc, rest) = rest.split_once(" in ")?;
        let (name, place) = match rest.split_once(" at ") {
            Some((name, place)) => (name, Some(place)),
            None => (rest, None),
        };
        Some(Frame {
            function: name.split([' ', '+']).next()?.to_owned(),
            pc: hexadecimal(pc),
            line: place.and_then(line_of),
        })
    });
    frames.map(|frame| frame.expect("a frame")).collect()
}

/// `PATH:LINE`, without the directories.
fn line_of(place: &str) -> Option<(String, u64)> {
    let (path, number) = place.split(' ').next()?.rsplit_once(':')?;
    let file = path.rsplit('/').next()?;
    Some((file.to_owned(), number.parse().ok()?))
}

/// What gdb prints for commands about a core dump.
pub fn gdb_text(program: &Path, core: &Path, commands: &[&str]) -> Result<String> {
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]);
    // As many frames as Hartline shows.
    let settings = [
        "set width 0",
        "set backtrace past-main on",
        "set backtrace limit 256",
    ];
    for command in settings.iter().chain(commands) {
        gdb.args(["-ex", command]);
    }
    let outcome = process::run(gdb.arg(program).arg(core), b"")?;
    Ok(outcome.stdout_text() + &outcome.stderr_text())
}

/// The frames that gdb prints for a command.
pub fn gdb(program: &Path, core: &Path, command: &str) -> Result<Vec<Frame>> {
    let text = gdb_text(program, core, &["echo STACK\\n", command])?;
    // Before the commands, gdb prints the innermost frame.
    let (_, text) = text.split_once("STACK\n").ok_or_else(|| text.clone())?;
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let frames = lines.map(|line| {
        let (_, rest) = line.split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        if rest.starts_with("<signal") {
            return Some(Frame::signal());
        }
        let (pc, rest) = match rest.split_once(" in ") {
            Some((pc, rest)) if pc.starts_with("0x") => (hexadecimal(pc), rest),
            _ => (None, rest),
        };
        Some(Frame {
            function: rest.split_once(" (")?.0.to_owned(),
            pc,
            line: rest
                .rsplit_once(") at ")
                .and_then(|(_, place)| line_of(place)),
        })
    });
    let frames: Option<Vec<Frame>> = frames.collect();
    frames.ok_or_else(|| text.into())
}

/// The frames that lldb prints for the thread that crashed. It has no mark for signal frames.
pub fn lldb(program: &Path, core: &Path) -> Result<Vec<Frame>> {
    let mut lldb = Command::new("lldb-19");
    lldb.args(["--no-lldbinit", "--batch"]);
    lldb.arg("--core").arg(core).arg(program);
    let outcome = process::run(lldb.args(["-o", "bt"]), b"")?;
    let text = outcome.stdout_text();
    let lines = text.lines().filter_map(|line| line.split_once("frame #"));
    let frames = lines.map(|(_, line)| {
        let (pc, rest) = line.split_once(": ")?.1.split_once(' ')?;
        let (_, rest) = rest.split_once('`')?;
        let rest = rest.split_once("[inlined] ").map_or(rest, |(_, rest)| rest);
        let name = rest.split(['(', ' ']).next()?;
        // FILE:LINE:COLUMN
        let place = rest.rsplit_once(" at ").map(|(_, place)| place);
        let place = place.and_then(|place| place.rsplit_once(':'));
        let line = place.and_then(|(place, _)| line_of(place));
        Some(Frame {
            function: name.to_owned(),
            // An inlined function has the address of its first instruction.
            pc: hexadecimal(pc).filter(|_| line.is_none()),
            line,
        })
    });
    let frames: Option<Vec<Frame>> = frames.collect();
    frames.ok_or_else(|| format!("{outcome:?}").into())
}
