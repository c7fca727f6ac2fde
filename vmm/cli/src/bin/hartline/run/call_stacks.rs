//! `--stack-trace`: the call stack below each system call of `--strace`.

use super::backtrace::{Backtraces, Place};
use crate::debug_dir::DebugDirectories;
use hartline_debug::budget::Budget;
use hartline_tree::TreeImage;
use hartline_vmm::call_stacks::{CallStacks, CallingTask};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most tasks whose stacks are kept until their calls return. Of more tasks, the ones with the highest
/// numbers have stacks.
const MOST_TASKS: usize = 1024;
/// Longest stack, bytes; the outermost callers of a longer one are left out.
const LONGEST: usize = 64 << 10;
/// Steps that the debug information of one stack may cost, some milliseconds.
const STEPS: u64 = 2_000_000;

/// Writes call stacks to the file of the trace.
pub struct TracedStacks {
    file: File,
    state: Mutex<State>,
}

struct State {
    backtraces: Backtraces,
    /// Stacks of calls that have not returned, by task.
    found: BTreeMap<u64, String>,
}

impl fmt::Debug for TracedStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedStacks")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl TracedStacks {
    /// Stacks of a program with these files, written to `file`, which the trace shares.
    pub fn new(file: File, tree: &Arc<TreeImage>, debug: &DebugDirectories) -> Self {
        Self {
            file,
            state: Mutex::new(State {
                backtraces: Backtraces::new(tree, debug),
                found: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallStacks for TracedStacks {
    fn find(&self, task: u64, from: &CallingTask) {
        let mut state = self.state();
        let place = Place {
            pc: from.pc,
            x: &from.x.map(Some),
            trampoline: from.trampoline,
            mappings: &from.mappings,
            memory: &from.memory,
        };
        let lines = state.backtraces.lines(&place, &Budget::new(STEPS));
        let text = indented(&lines);
        state.found.insert(task, text);
        if state.found.len() > MOST_TASKS {
            state.found.pop_first();
        }
    }

    fn write(&self, task: u64) {
        let found = self.state().found.remove(&task);
        if let Some(text) = found {
            // The program runs on if the trace cannot be written.
            let _ = (&self.file).write_all(text.as_bytes());
        }
    }
}

/// The lines of a stack below the line of its call.
fn indented(lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        if text.len() + line.len() > LONGEST {
            text.push_str("     ... more callers\n");
            break;
        }
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stacks_are_cut() {
        assert_eq!(indented(&["#0".into(), "#1".into()]), "    #0\n    #1\n");
        let text = indented(&vec!["x".repeat(1000); 1000]);
        assert!(text.len() <= LONGEST + 1000);
        assert!(text.ends_with("x\n     ... more callers\n"));
    }
}
