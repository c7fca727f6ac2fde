//! `--profile`: samples become a file for speedscope and the Firefox Profiler, for pprof, or for flame
//! graphs.

mod folded;
mod pprof;
mod speedscope;
mod stacks;

pub use stacks::SampledStacks;

use super::ran::Ran;
use hartline_abi::layout::{IMAGE_BASE, STACK_BASE};
use hartline_abi::profile::Location;
use hartline_debug::module::Line;
use hartline_debug::unwind::Address;
use hartline_vmm::profile::Taken;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::hash::Hash;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
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
    /// The program's call stack, if it was found: then the fields above are not needed.
    source: Vec<Address>,
}

impl Raw {
    fn new(taken: &Taken, source: Vec<Address>) -> Self {
        let interpreted = taken.location == Location::Interpreter;
        if !source.is_empty() {
            return Self {
                interpreted,
                leaf: None,
                stack: Vec::new(),
                cut: false,
                source,
            };
        }
        let words = (0..).zip(&taken.stack);
        let addresses = words.filter(|(_, word)| (IMAGE_BASE..STACK_BASE).contains(word));
        Self {
            interpreted,
            leaf: (taken.location != Location::Inside).then_some((taken.pc, taken.file)),
            stack: addresses.map(|(at, &word)| (at, word)).collect(),
            cut: taken.cut,
            source,
        }
    }

    fn word(&self, at: u32) -> Option<u64> {
        let index = self.stack.binary_search_by_key(&at, |word| word.0).ok()?;
        Some(self.stack[index].1)
    }

    /// The functions, innermost first.
    fn frames(&self, ran: &mut Ran<'_>, stacks: Option<&SampledStacks>) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let Some(stacks) = stacks {
            let source = self.source.iter();
            frames.extend(source.flat_map(|address| Frame::of_source(ran, stacks, address)));
        }
        if let Some(frame) = frames.first_mut().filter(|_| self.interpreted) {
            frame.name.push_str(" [interpreted]");
        }
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

    /// The functions at an address, the innermost inlined one first.
    fn of_source(ran: &Ran<'_>, stacks: &SampledStacks, address: &Address) -> Vec<Self> {
        let place = stacks.place(address);
        let unnamed = || match place {
            Some((inode, linked)) => ran.function(inode, linked),
            None => format!("{:#x}", address.pc),
        };
        let locations = stacks.locations(address);
        if locations.is_empty() {
            return vec![Self::named(unnamed())];
        }
        let frame = |location: hartline_debug::module::Location| Self {
            name: location.function.unwrap_or_else(unnamed),
            line: location.line,
        };
        locations.into_iter().map(frame).collect()
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

/// The format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Speedscope,
    Pprof,
    Folded,
}

impl Format {
    /// The format of a file with this name.
    fn of(path: &Path) -> Self {
        let name = path.to_string_lossy();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        match () {
            () if ends(&[".pb.gz", ".pprof"]) => Self::Pprof,
            () if ends(&[".folded", ".txt"]) => Self::Folded,
            () => Self::Speedscope,
        }
    }
}

/// A profile with names.
struct Profile {
    name: String,
    frames: Vec<Frame>,
    /// Different stacks: numbers of frames, the outermost one first.
    stacks: Vec<Vec<usize>>,
    /// Number of the stack, and its time, in the order of the samples.
    times: Vec<(usize, Duration)>,
    /// Processor time between samples.
    period: Duration,
}

impl Profile {
    /// The time of each stack together.
    fn totals(&self) -> Vec<(&[usize], u64, Duration)> {
        let stacks = self.stacks.iter();
        let mut totals: Vec<_> = stacks
            .map(|stack| (&stack[..], 0, Duration::ZERO))
            .collect();
        for &(number, time) in &self.times {
            totals[number].1 += 1;
            totals[number].2 += time;
        }
        totals
    }
}

/// A time in nanoseconds.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The samples of a run.
pub struct Recorder {
    state: Mutex<State>,
    stacks: Option<Arc<SampledStacks>>,
    period: Duration,
}

struct State {
    samples: Table<Raw>,
    /// Number of the sample, and its time, in the order of the samples.
    times: Vec<(usize, Duration)>,
}

impl Recorder {
    /// A recorder without samples, of which each has a stack in `stacks`.
    pub fn new(period: Duration, stacks: Option<Arc<SampledStacks>>) -> Self {
        Self {
            state: Mutex::new(State {
                samples: Table::new(),
                times: Vec::new(),
            }),
            stacks,
            period,
        }
    }

    /// Keeps a sample.
    pub fn record(&self, taken: &Taken) {
        let source = self.stacks.as_ref().map(|stacks| stacks.take());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = Raw::new(taken, source.unwrap_or_default());
        let number = state.samples.number(raw);
        state.times.push((number, taken.time));
    }

    /// Inodes of the files that samples were taken in.
    pub fn inodes(&self) -> BTreeSet<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inodes = BTreeSet::new();
        for raw in state.samples.numbers.keys() {
            inodes.extend(raw.leaf.and_then(|(_, file)| Some(file?.0)));
            if let Some(stacks) = &self.stacks {
                let places = raw
                    .source
                    .iter()
                    .filter_map(|address| stacks.place(address));
                inodes.extend(places.map(|(inode, _)| inode));
            }
        }
        inodes
    }

    /// Writes the profile of the program `name` in the format of `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(
        &self,
        (file, path): (File, &Path),
        name: &str,
        ran: &mut Ran<'_>,
    ) -> io::Result<()> {
        let profile = self.profile(name, ran);
        let mut file = BufWriter::new(file);
        match Format::of(path) {
            Format::Speedscope => speedscope::write(&profile, &mut file)?,
            Format::Pprof => pprof::write(&profile, &mut file)?,
            Format::Folded => folded::write(&profile, &mut file)?,
        }
        file.flush()
    }

    fn profile(&self, name: &str, ran: &mut Ran<'_>) -> Profile {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut frames = Table::new();
        let mut stack = |raw: &Raw| -> Vec<usize> {
            let stack = raw.frames(ran, self.stacks.as_deref()).into_iter().rev();
            stack.map(|frame| frames.number(frame)).collect()
        };
        let stacks: Vec<_> = state.samples.values().into_iter().map(&mut stack).collect();
        Profile {
            name: name.to_owned(),
            stacks,
            frames: frames.values().into_iter().cloned().collect(),
            times: state.times.clone(),
            period: self.period,
        }
    }
}
