//! The order in which the functions of a running program are translated: the functions where it
//! spends its time come first.
//!
//! A translated function may still be interpreted if control is inside it and reaches none of its
//! entries. Then the code from the current address on becomes a separate function.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::cfg::{ControlFlow, Function};
use crate::pieces::Piece;

/// Instructions of the first batch, which should be ready at once; each batch may have twice as
/// many as the previous one.
const FIRST_BATCH: usize = 400;
/// Instructions of the largest batch. A longer function is compiled alone ([`Size::Giant`]).
const LARGEST_BATCH: usize = 2000;
/// The total instructions of code inside one function that is translated from several addresses,
/// and the limits of the number of these addresses.
const INSIDE_LENGTH: usize = 16_000;
const MIN_INSIDE: usize = 4;
const MAX_INSIDE: usize = 16;

/// The execution count of a guest address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heat {
    /// Link-time address at which no translation was entered.
    pub pc: u64,
    /// The recent number of executions, an estimate.
    pub count: u64,
}

/// Code to translate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Index into [`ControlFlow::functions`].
    pub function: usize,
    /// If set, only the code that is reachable from this instruction of the function.
    pub inside: Option<u64>,
}

impl Part {
    /// Returns the part that is a whole function.
    #[must_use]
    pub const fn whole(function: usize) -> Self {
        let inside = None;
        Self { function, inside }
    }
}

/// Sizes of functions, by compilation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A function that is compiled in a batch with others.
    Small,
    /// A function that is compiled alone, which takes seconds.
    Giant,
}

impl Size {
    fn of(length: usize) -> Self {
        match length > LARGEST_BATCH {
            true => Self::Giant,
            false => Self::Small,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// Returned in a batch.
    Taken,
    /// In an image.
    Shown,
}

/// Selects the code of a file to translate, each part once.
#[derive(Debug)]
pub struct Order<'a> {
    functions: &'a [Function],
    /// First address of each block, and the index of its function; sorted.
    blocks: Vec<(u64, u32)>,
    /// By function.
    states: Vec<State>,
    /// Addresses at which translated code is entered, or will be.
    entries: HashSet<u64>,
    /// The number of addresses inside a function that were selected.
    insides: HashMap<usize, usize>,
    /// Executions at other addresses since their functions were in an image.
    rest: HashMap<u64, Rest>,
    budget: usize,
}

/// The executions of an address, summed from counts that also decrease.
#[derive(Debug, Clone, Copy)]
struct Rest {
    last: u64,
    sum: u64,
}

/// A part that may be selected.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    part: Part,
    length: usize,
    heat: u64,
}

impl Candidate {
    /// Returns the expected gain per compilation time. Short functions take the same time, as they
    /// are compiled together.
    fn score(&self) -> u64 {
        let cost = self.length.max(FIRST_BATCH) / FIRST_BATCH;
        self.heat / cost as u64
    }
}

impl<'a> Order<'a> {
    /// Creates the order for a file of which only `done` is translated.
    #[must_use]
    pub fn new(flow: &'a ControlFlow, done: &[Piece]) -> Self {
        let functions = &flow.functions[..];
        let mut blocks = Vec::new();
        for (index, function) in (0..).zip(functions) {
            blocks.extend(function.blocks.iter().map(|block| (block.start, index)));
        }
        blocks.sort_unstable();
        let mut order = Self {
            functions,
            blocks,
            states: vec![State::Waiting; functions.len()],
            entries: HashSet::new(),
            insides: HashMap::new(),
            rest: HashMap::new(),
            budget: FIRST_BATCH,
        };
        order.show(done);
        order
    }

    /// Records that an image of these pieces exists.
    pub fn show(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            for &entry in &piece.functions {
                if let Ok(index) = self.functions.binary_search_by_key(&entry, |f| f.entry) {
                    self.states[index] = State::Shown;
                }
            }
            self.entries.extend(&piece.functions);
            let resumed = piece.resume.iter().map(|point| point.guest);
            self.entries.extend(resumed);
        }
    }

    /// Returns the score of the next batch, to compare it with other files' batches; `None` if all
    /// executed code was already selected.
    pub fn score(&mut self, heats: &[Heat], size: Size) -> Option<u64> {
        let candidates = self.candidates(heats, size);
        candidates.iter().map(Candidate::score).max()
    }

    /// Returns the parts to translate next, the highest score first.
    pub fn next_batch(&mut self, heats: &[Heat], size: Size) -> Vec<Part> {
        let mut candidates = self.candidates(heats, size);
        candidates.sort_by_key(|c| (Reverse(c.score()), c.part.function, c.part.inside));
        let mut batch = Vec::new();
        let mut total = 0;
        for candidate in candidates {
            let is_first = batch.is_empty();
            if !is_first && (size == Size::Giant || total + candidate.length > self.budget) {
                continue;
            }
            total += candidate.length;
            self.take(candidate.part);
            batch.push(candidate.part);
        }
        if !batch.is_empty() && size == Size::Small {
            self.budget = (2 * self.budget).min(LARGEST_BATCH);
        }
        batch
    }

    /// Returns the number of instructions of a part; an upper bound if it is not a whole function.
    #[must_use]
    pub fn length(&self, part: Part) -> usize {
        let function = self.functions.get(part.function);
        function.map_or(0, Function::instruction_count)
    }

    fn take(&mut self, part: Part) {
        match part.inside {
            None => self.states[part.function] = State::Taken,
            Some(pc) => {
                self.entries.insert(pc);
                *self.insides.entry(part.function).or_default() += 1;
            }
        }
    }

    fn candidates(&mut self, heats: &[Heat], size: Size) -> Vec<Candidate> {
        let mut waiting: HashMap<usize, u64> = HashMap::new();
        let mut candidates = Vec::new();
        for heat in &merged(heats) {
            let owners = self.owners(heat.pc);
            let mut all_shown = true;
            for &(_, owner) in &self.blocks[owners.clone()] {
                let owner = owner as usize;
                all_shown &= self.states[owner] == State::Shown;
                if self.states[owner] == State::Waiting {
                    let total = waiting.entry(owner).or_default();
                    *total = total.saturating_add(heat.count);
                }
            }
            if all_shown && !owners.is_empty() {
                let owner = self.blocks[owners.start].1 as usize;
                candidates.extend(self.inside(owner, heat));
            }
        }
        candidates.extend(waiting.into_iter().map(|(function, heat)| {
            let part = Part::whole(function);
            let length = self.length(part);
            Candidate { part, length, heat }
        }));
        candidates.retain(|candidate| Size::of(candidate.length) == size);
        candidates
    }

    /// Returns the candidate for an address inside a function that is in the image. Its translation
    /// is worthwhile if interpreting the code since has taken about as long as the compiler takes.
    fn inside(&mut self, function: usize, heat: &Heat) -> Option<Candidate> {
        if self.entries.contains(&heat.pc) {
            return None;
        }
        let new = Rest {
            last: heat.count,
            sum: 0,
        };
        let rest = self.rest.entry(heat.pc).or_insert(new);
        rest.sum += heat.count.saturating_sub(rest.last);
        rest.last = heat.count;
        let since = rest.sum;
        let part = Part {
            function,
            inside: Some(heat.pc),
        };
        let length = self.length(part);
        let most = (INSIDE_LENGTH / length.max(1)).clamp(MIN_INSIDE, MAX_INSIDE);
        let few = self.insides.get(&function).is_none_or(|&n| n < most);
        let heat = since;
        (few && since >= 500 + 5 * length as u64).then_some(Candidate { part, length, heat })
    }

    /// Returns the functions that have an instruction at `pc`, as a range of `blocks`.
    fn owners(&self, pc: u64) -> std::ops::Range<usize> {
        let end = self.blocks.partition_point(|&(start, _)| start <= pc);
        let Some(&(start, index)) = end.checked_sub(1).map(|last| &self.blocks[last]) else {
            return 0..0;
        };
        let block = self.functions[index as usize].block(start);
        let has = block.is_some_and(|block| {
            let found = block
                .instructions
                .binary_search_by_key(&pc, |entry| entry.0);
            found.is_ok()
        });
        match has {
            true => self.blocks.partition_point(|&(other, _)| other < start)..end,
            false => 0..0,
        }
    }
}

/// The execution counts by address. Processes that map the file at different addresses count the same code
/// apart.
fn merged(heats: &[Heat]) -> Vec<Heat> {
    let mut merged = heats.to_vec();
    merged.sort_unstable_by_key(|heat| heat.pc);
    merged.dedup_by(|heat, first| {
        let is_same = heat.pc == first.pc;
        if is_same {
            first.count = first.count.saturating_add(heat.count);
        }
        is_same
    });
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::{Block, Terminator};
    use hartline_isa::decode;

    /// Functions of `lengths` instructions, 0x10000 bytes apart; the second block of each is a
    /// loop.
    fn flow(lengths: &[usize]) -> ControlFlow {
        let nop = decode(0x13).unwrap();
        let functions = lengths.iter().enumerate().map(|(number, &length)| {
            let entry = 0x1_0000 * (number as u64 + 1);
            let block = |start: u64, length: usize, is_loop_header| Block {
                start,
                instructions: (0..length as u64).map(|n| (start + 4 * n, nop)).collect(),
                terminator: Terminator::Return,
                is_loop_header,
            };
            Function {
                entry,
                name: None,
                blocks: vec![block(entry, 1, false), block(entry + 4, length - 1, true)],
            }
        });
        ControlFlow {
            functions: functions.collect(),
            exposed: HashSet::new(),
        }
    }

    fn heat(pc: u64, count: u64) -> Heat {
        Heat { pc, count }
    }

    fn piece(functions: &[u64]) -> Piece {
        Piece {
            functions: functions.to_vec(),
            resume: Vec::new(),
            extents: Vec::new(),
            objects: Vec::new(),
        }
    }

    fn whole(functions: &[usize]) -> Vec<Part> {
        functions.iter().copied().map(Part::whole).collect()
    }

    #[test]
    fn the_hottest_come_first_and_once() {
        let flow = flow(&[10, 500, 10, 10]);
        let mut order = Order::new(&flow, &[piece(&[0x4_0000])]);
        assert!(order.next_batch(&[], Size::Small).is_empty());
        let heats = [
            heat(0x1_0000, 5),
            heat(0x2_0000, 3),
            heat(0x2_0004, 9),
            heat(0x3_0008, 7),
            heat(0x4_0000, 99),
            heat(0x7777, 99),
        ];
        assert_eq!(order.score(&heats, Size::Small), Some(12));
        // A function that is larger than a batch is compiled alone.
        assert_eq!(order.next_batch(&heats, Size::Small), whole(&[1]));
        assert_eq!(order.score(&heats, Size::Small), Some(7));
        assert_eq!(order.next_batch(&heats, Size::Small), whole(&[2, 0]));
        assert_eq!(order.score(&heats, Size::Small), None);
        assert!(order.next_batch(&heats, Size::Small).is_empty());
    }

    #[test]
    fn giants_come_alone_and_do_not_hold_up_others() {
        let flow = flow(&[10_000, 10, 9_000]);
        let mut order = Order::new(&flow, &[]);
        let heats = [
            heat(0x1_0000, 100),
            heat(0x2_0000, 50),
            heat(0x3_0004, 2000),
        ];
        assert_eq!(order.score(&heats, Size::Small), Some(50));
        assert_eq!(order.score(&heats, Size::Giant), Some(2000 / 22));
        assert_eq!(order.next_batch(&heats, Size::Giant), whole(&[2]));
        assert_eq!(order.next_batch(&heats, Size::Small), whole(&[1]));
        assert_eq!(order.next_batch(&heats, Size::Giant), whole(&[0]));
        assert_eq!(order.score(&heats, Size::Giant), None);
    }

    #[test]
    fn batches_grow() {
        let flow = flow(&[100; 100]);
        let mut order = Order::new(&flow, &[]);
        let heats: Vec<Heat> = (1..=100).map(|n| heat(0x1_0000 * n, 1)).collect();
        let mut sizes = Vec::new();
        loop {
            let batch = order.next_batch(&heats, Size::Small);
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [4, 8, 16, 20, 20, 20, 12]);
    }

    #[test]
    fn what_is_interpreted_on_is_translated_from_there() {
        let flow = flow(&[100]);
        let mut order = Order::new(&flow, &[]);
        let inner = 0x1_0020;
        let part = Part {
            function: 0,
            inside: Some(inner),
        };
        assert_eq!(
            order.next_batch(&[heat(inner, 1)], Size::Small),
            whole(&[0])
        );
        // While the code is being compiled, its effect on the counts is not known.
        assert_eq!(order.score(&[heat(inner, 100_000)], Size::Small), None);
        let mut resumed = piece(&[0x1_0000]);
        resumed.resume.push(crate::link::ResumePoint {
            guest: 0x1_0004,
            function: 0x1_0000,
        });
        order.show(&[resumed]);
        let count = 100_000;
        let heats = |more| [heat(inner, count + more), heat(0x1_0004, count + more)];
        assert_eq!(order.score(&heats(0), Size::Small), None);
        assert_eq!(order.score(&heats(700), Size::Small), None);
        // The count has been halved and increases again.
        assert_eq!(order.score(&[heat(inner, count / 2)], Size::Small), None);
        assert_eq!(
            order.score(&[heat(inner, count / 2 + 200)], Size::Small),
            None
        );
        // Neither an entry nor an address without an instruction is selected.
        let odd = [heat(inner + 2, 9 * count), heat(0x1_0190, 9 * count)];
        assert_eq!(order.score(&odd, Size::Small), None);
        let hotter = odd.map(|odd| heat(odd.pc, 99 * count));
        assert_eq!(order.score(&hotter, Size::Small), None);
        let enough = [heat(inner, count / 2 + 300)];
        assert_eq!(order.next_batch(&enough, Size::Small), [part]);
        assert_eq!(order.score(&heats(9999), Size::Small), None);
    }

    /// Each compiled function goes into the image, which has a function once.
    #[test]
    fn counts_of_one_address_select_it_once() {
        let flow = flow(&[100]);
        let mut order = Order::new(&flow, &[piece(&[0x1_0000])]);
        let inner = 0x1_0020;
        let heats = |count| [heat(inner, 10), heat(0x1_0000, 1), heat(inner, count)];
        assert_eq!(order.score(&heats(5000), Size::Small), None);
        // Different counts of one address are no executions.
        assert_eq!(order.score(&heats(5000), Size::Small), None);
        let part = Part {
            function: 0,
            inside: Some(inner),
        };
        assert_eq!(order.next_batch(&heats(6000), Size::Small), [part]);
        assert!(order.next_batch(&heats(9999), Size::Small).is_empty());
    }

    #[test]
    fn places_inside_a_function_are_limited() {
        let flow = flow(&[1500]);
        let mut order = Order::new(&flow, &[piece(&[0x1_0000])]);
        let heats = |count| {
            (0..30)
                .map(|n| heat(0x1_0008 + 4 * n, count))
                .collect::<Vec<_>>()
        };
        assert_eq!(order.score(&heats(0), Size::Small), None);
        let mut parts = Vec::new();
        loop {
            let batch = order.next_batch(&heats(1 << 20), Size::Small);
            if batch.is_empty() {
                break;
            }
            parts.extend(batch);
        }
        assert_eq!(parts.len(), INSIDE_LENGTH / 1500);
    }
}
