//! In which order the functions of a running program are translated: those first
//! where it spends its time.

use std::collections::{HashMap, HashSet};

use crate::cfg::{ControlFlow, Function};

/// Instructions of the first batch, which is to be ready at once; each batch may
/// have twice as many as the one before.
const FIRST_BATCH: usize = 400;
/// Instructions of the largest batch.
const LARGEST_BATCH: usize = 4000;

/// How often control came to a guest address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heat {
    /// Link-time address: a function's entry or a loop's start.
    pub pc: u64,
    /// How often; an estimate.
    pub count: u64,
}

/// Hands out the functions of a file, each once.
#[derive(Debug)]
pub struct Order<'a> {
    functions: &'a [Function],
    /// Functions that have something at an address that may be hot.
    owners: HashMap<u64, Vec<usize>>,
    /// Those that were handed out.
    taken: HashSet<usize>,
    budget: usize,
}

impl<'a> Order<'a> {
    /// Nothing has been handed out but the functions with the entries `done`.
    #[must_use]
    pub fn new(flow: &'a ControlFlow, done: &HashSet<u64>) -> Self {
        let functions = &flow.functions[..];
        let mut owners: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut taken = HashSet::new();
        for (index, function) in functions.iter().enumerate() {
            if done.contains(&function.entry) {
                taken.insert(index);
                continue;
            }
            let headers = function.blocks.iter().filter(|block| block.is_loop_header);
            let places = headers.map(|block| block.start);
            for pc in places.chain([function.entry]) {
                owners.entry(pc).or_default().push(index);
            }
        }
        Self {
            functions,
            owners,
            taken,
            budget: FIRST_BATCH,
        }
    }

    /// The functions to translate now, hottest first, as indices; none if nothing
    /// that was not handed out has been executed.
    pub fn next_batch(&mut self, heats: &[Heat]) -> Vec<usize> {
        let mut totals: HashMap<usize, u64> = HashMap::new();
        for heat in heats {
            let owners = self.owners.get(&heat.pc).map_or(&[][..], Vec::as_slice);
            for &owner in owners.iter().filter(|owner| !self.taken.contains(owner)) {
                let total = totals.entry(owner).or_default();
                *total = total.saturating_add(heat.count);
            }
        }
        let mut hottest: Vec<(usize, u64)> = totals.into_iter().collect();
        hottest.sort_by_key(|&(index, count)| (std::cmp::Reverse(count), index));
        let mut batch = Vec::new();
        let mut size = 0;
        for (index, _) in hottest {
            let length = self.functions[index].instruction_count();
            if !batch.is_empty() && size + length > self.budget {
                continue;
            }
            size += length;
            self.taken.insert(index);
            batch.push(index);
        }
        if !batch.is_empty() {
            self.budget = (2 * self.budget).min(LARGEST_BATCH);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::{Block, Terminator};
    use hartline_isa::decode;

    /// Functions of `lengths` instructions, 0x1000 bytes apart, the second block of
    /// each being a loop.
    fn flow(lengths: &[usize]) -> ControlFlow {
        let nop = decode(0x13).unwrap();
        let functions = lengths.iter().enumerate().map(|(number, &length)| {
            let entry = 0x1000 * (number as u64 + 1);
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

    #[test]
    fn the_hottest_come_first_and_once() {
        let flow = flow(&[10, 500, 10, 10]);
        let mut order = Order::new(&flow, &HashSet::from([0x4000]));
        assert!(order.next_batch(&[]).is_empty());
        let heats = [
            heat(0x1000, 5),
            heat(0x2000, 3),
            heat(0x2004, 9),
            heat(0x3004, 7),
            heat(0x4000, 99),
            heat(0x7777, 99),
        ];
        // One that is larger than a batch comes alone.
        assert_eq!(order.next_batch(&heats), [1]);
        assert_eq!(order.next_batch(&heats), [2, 0]);
        assert!(order.next_batch(&heats).is_empty());
    }

    #[test]
    fn batches_grow() {
        let flow = flow(&[100; 200]);
        let mut order = Order::new(&flow, &HashSet::new());
        let heats: Vec<Heat> = (1..=200).map(|n| heat(0x1000 * n, 1)).collect();
        let mut sizes = Vec::new();
        loop {
            let batch = order.next_batch(&heats);
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [4, 8, 16, 32, 40, 40, 40, 20]);
    }
}
