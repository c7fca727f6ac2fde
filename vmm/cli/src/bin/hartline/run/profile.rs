//! `--profile`: samples become a file that speedscope and the Firefox Profiler load.

use super::ran::Ran;
use hartline_abi::layout::{IMAGE_BASE, STACK_BASE};
use hartline_abi::profile::Location;
use hartline_debug::module::Line;
use hartline_vmm::profile::Taken;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::hash::Hash;
use std::io::{self, BufWriter, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The stored part of a sample; many samples are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Raw {
    interpreted: bool,
    /// Location of the program, unless the stack has it: guest pc, and file and offset.
    leaf: Option<(u64, Option<(u32, u64)>)>,
    /// Words of the host stack that may be return addresses, and their indexes in it.
    stack: Vec<(u32, u64)>,
    cut: bool,
}

impl Raw {
    fn new(taken: &Taken) -> Self {
        let words = (0..).zip(&taken.stack);
        let addresses = words.filter(|(_, word)| (IMAGE_BASE..STACK_BASE).contains(word));
        Self {
            interpreted: taken.location == Location::Interpreter,
            leaf: (taken.location != Location::Inside).then_some((taken.pc, taken.file)),
            stack: addresses.map(|(at, &word)| (at, word)).collect(),
            cut: taken.cut,
        }
    }

    fn word(&self, at: u32) -> Option<u64> {
        let index = self.stack.binary_search_by_key(&at, |word| word.0).ok()?;
        Some(self.stack[index].1)
    }

    /// The functions, innermost first.
    fn frames(&self, ran: &mut Ran<'_>) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let Some((pc, file)) = self.leaf {
            let around = file.and_then(|(inode, offset)| {
                let (_, entry) = ran.around(inode, offset)?;
                Some(Frame::of(ran, inode, entry))
            });
            let mut frame = around.unwrap_or_else(|| Frame::named(format!("{pc:#x}")));
            if self.interpreted {
                frame.name.push_str(" [interpreted]");
            }
            frames.push(frame);
        }
        let mut at = 0;
        while let Some(frame) = self.word(at).and_then(|word| ran.frame(word)) {
            let function = frame.function;
            frames.extend(function.map(|(inode, entry)| Frame::of(ran, inode, entry)));
            let words = u32::try_from(frame.size / 8).unwrap_or(u32::MAX);
            at = at.saturating_add(words).saturating_add(1);
        }
        if self.cut {
            frames.push(Frame::named("[more callers]".to_owned()));
        }
        frames
    }
}

/// A function in the profile, and the line at which it starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Frame {
    name: String,
    line: Option<Line>,
}

impl Frame {
    fn named(name: String) -> Self {
        Self { name, line: None }
    }

    fn of(ran: &mut Ran<'_>, inode: u32, entry: u64) -> Self {
        Self {
            name: ran.name(inode, entry),
            line: ran.line(inode, entry),
        }
    }

    fn json(&self) -> serde_json::Value {
        match &self.line {
            Some(Line { file, number }) => {
                json!({ "name": self.name, "file": file, "line": number })
            }
            None => json!({ "name": self.name }),
        }
    }
}

/// A set of values with numbers.
struct Table<T> {
    numbers: HashMap<T, usize>,
}

impl<T: Hash + Eq> Table<T> {
    fn new() -> Self {
        Self {
            numbers: HashMap::new(),
        }
    }

    fn number(&mut self, value: T) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(value).or_insert(next)
    }

    /// The values in the order of their numbers.
    fn values(&self) -> Vec<&T> {
        let mut pairs: Vec<_> = self.numbers.iter().collect();
        pairs.sort_unstable_by_key(|&(_, &number)| number);
        pairs.into_iter().map(|(value, _)| value).collect()
    }
}

/// The samples of a run.
pub struct Recorder {
    state: Mutex<State>,
}

struct State {
    samples: Table<Raw>,
    /// Number of the sample, and its time, in the order of the samples.
    times: Vec<(usize, Duration)>,
}

impl Recorder {
    /// A recorder without samples.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                samples: Table::new(),
                times: Vec::new(),
            }),
        }
    }

    /// Keeps a sample.
    pub fn record(&self, taken: &Taken) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.samples.number(Raw::new(taken));
        state.times.push((number, taken.time));
    }

    /// Inodes of the files that samples were taken in.
    pub fn inodes(&self) -> BTreeSet<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let leaves = state.samples.numbers.keys().filter_map(|raw| raw.leaf);
        leaves.filter_map(|(_, file)| Some(file?.0)).collect()
    }

    /// Writes the profile of the program `name`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: File, name: &str, ran: &mut Ran<'_>) -> io::Result<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = BufWriter::new(file);
        serde_json::to_writer(&mut file, &state.speedscope(name, ran))?;
        file.flush()
    }
}

impl State {
    /// The profile in the format of <https://www.speedscope.app/file-format-schema.json>.
    fn speedscope(&self, name: &str, ran: &mut Ran<'_>) -> serde_json::Value {
        let mut frames = Table::new();
        let mut stack = |raw: &Raw| -> Vec<usize> {
            let stack = raw.frames(ran).into_iter().rev();
            stack.map(|frame| frames.number(frame)).collect()
        };
        let stacks: Vec<_> = self.samples.values().into_iter().map(&mut stack).collect();
        let samples: Vec<_> = self.times.iter().map(|&(n, _)| &stacks[n]).collect();
        let nanoseconds = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let weights: Vec<u64> = self.times.iter().map(|(_, t)| nanoseconds(t)).collect();
        let total: u64 = weights.iter().sum();
        let frames = frames.values();
        let frames: Vec<_> = frames.iter().map(|frame| frame.json()).collect();
        json!({
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": name,
            "exporter": concat!("hartline ", env!("CARGO_PKG_VERSION")),
            "activeProfileIndex": 0,
            "shared": { "frames": frames },
            "profiles": [{
                "type": "sampled",
                "name": name,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": total,
                "samples": samples,
                "weights": weights,
            }],
        })
    }
}
