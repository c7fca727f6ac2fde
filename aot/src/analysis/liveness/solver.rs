//! The data flow over all functions of a file, solved to its fixed point.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{End, Ends, Liveness, Need, Summary, summaries};
use crate::analysis::features::Features;
use crate::analysis::register_set::{PSABI, RegisterSet};
use crate::cfg::Function;

/// The limit of block evaluations, as a multiple of the number of blocks. Beyond it, every register
/// counts as needed everywhere.
const EFFORT: usize = 256;

impl Liveness {
    /// Analyses all functions of a file together.
    #[must_use]
    pub fn of(functions: &[Function], features: &Features) -> Self {
        let mut solver = Solver::new(functions, features);
        if solver.find_changed() && solver.solve() && !solver.finds_other_convention() {
            solver.liveness
        } else {
            Self::default()
        }
    }
}

/// The data flow over all functions. Sets only grow, so it terminates.
struct Solver<'f> {
    functions: &'f [Function],
    liveness: Liveness,
    blocks: Vec<Vec<Summary>>,
    /// Registers needed at block starts, as known so far.
    live: Vec<Vec<Need>>,
    index: HashMap<u64, usize>,
    /// Functions that call or jump to a function, by its entry.
    users: HashMap<u64, Vec<usize>>,
    /// Whether each block is reachable: blocks after calls that do not return are not.
    reached: Vec<Vec<bool>>,
    /// See [`continued`].
    continued: Vec<Vec<u64>>,
    /// Registers needed after returns from functions whose caller is not known.
    after_unknown: Need,
    work: VecDeque<usize>,
    queued: Vec<bool>,
}

impl<'f> Solver<'f> {
    fn new(functions: &'f [Function], features: &Features) -> Self {
        let blocks: Vec<_> = functions.iter().map(|f| summaries(f, features)).collect();
        let results = Need {
            read: RegisterSet::default(),
            any: PSABI,
        };
        let ends = Ends {
            entry: Need::default(),
            returned: results,
            changed: RegisterSet::default(),
            returns: false,
        };
        let continued = continued(functions);
        let mut users: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, others) in continued.iter().enumerate() {
            for &other in others {
                users.entry(other).or_default().push(number);
            }
        }
        for (number, blocks) in blocks.iter().enumerate() {
            for block in blocks {
                for &target in &block.leaves {
                    users.entry(target).or_default().push(number);
                }
                if let End::Call(Some(callee)) = block.end {
                    users.entry(callee).or_default().push(number);
                }
            }
        }
        Self {
            functions,
            liveness: Liveness {
                functions: functions.iter().map(|f| (f.entry, ends)).collect(),
            },
            live: blocks
                .iter()
                .map(|b| vec![Need::default(); b.len()])
                .collect(),
            index: functions
                .iter()
                .enumerate()
                .map(|(n, f)| (f.entry, n))
                .collect(),
            reached: blocks.iter().map(|b| vec![false; b.len()]).collect(),
            users,
            continued,
            after_unknown: results,
            // Callees tend to precede their callers.
            work: (0..functions.len()).collect(),
            queued: vec![true; functions.len()],
            blocks,
        }
    }

    /// Computes the registers that functions and their callees may change, and whether the
    /// functions return. `false` if the effort exceeds its limit.
    fn find_changed(&mut self) -> bool {
        let mut effort = self.effort();
        while let Some(number) = self.work.pop_front() {
            self.queued[number] = false;
            match effort.checked_sub(self.blocks[number].len()) {
                Some(left) => effort = left,
                None => return false,
            }
            let entry = self.functions[number].entry;
            let mut changed = self.liveness.changed(Some(entry));
            for block in &self.blocks[number] {
                changed = changed.union(block.written);
                changed = changed.union(match block.end {
                    End::Call(callee) => self.liveness.changed(callee),
                    End::Untracked | End::Unknown => RegisterSet::ALL,
                    End::Flow | End::Return | End::Trap => RegisterSet::default(),
                });
                for &target in &block.leaves {
                    changed = changed.union(self.liveness.changed(Some(target)));
                }
            }
            for &other in &self.continued[number] {
                changed = changed.union(self.liveness.changed(Some(other)));
            }
            let returns = self.follow(number);
            let Some(ends) = self.liveness.functions.get_mut(&entry) else {
                continue;
            };
            let before = (ends.changed, ends.returns);
            if before != (changed, returns) {
                (ends.changed, ends.returns) = (changed, returns);
                self.queue_users(entry);
            }
        }
        (0..self.functions.len()).for_each(|number| self.queue(number));
        true
    }

    /// Follows a function from its entry; `true` if it may return.
    fn follow(&mut self, number: usize) -> bool {
        let blocks = &self.blocks[number];
        let reached = &mut self.reached[number];
        reached.fill(false);
        let function = &self.functions[number];
        let first = function
            .blocks
            .iter()
            .position(|b| b.start == function.entry);
        let mut work: Vec<usize> = first.into_iter().collect();
        let mut returns = false;
        while let Some(index) = work.pop() {
            if std::mem::replace(&mut reached[index], true) {
                continue;
            }
            let block = &blocks[index];
            if let End::Call(callee) = block.end
                && !self.liveness.returns(callee)
            {
                continue;
            }
            returns |= matches!(block.end, End::Return | End::Unknown | End::Untracked)
                || block
                    .leaves
                    .iter()
                    .any(|&pc| self.liveness.returns(Some(pc)));
            work.extend(&block.next);
        }
        returns
    }

    fn effort(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum::<usize>() * EFFORT
    }

    fn queue_users(&mut self, entry: u64) {
        for user in self.users.get(&entry).cloned().unwrap_or_default() {
            self.queue(user);
        }
    }

    /// Solves the liveness; `false` if the effort exceeds its limit.
    fn solve(&mut self) -> bool {
        let mut effort = self.effort();
        while let Some(number) = self.work.pop_front() {
            self.queued[number] = false;
            let entry = self.functions[number].entry;
            let returned = self.liveness.returned(entry);
            loop {
                match effort.checked_sub(self.blocks[number].len()) {
                    Some(left) => effort = left,
                    None => return false,
                }
                if !self
                    .liveness
                    .pass(&self.blocks[number], returned, &mut self.live[number])
                {
                    break;
                }
            }
            self.publish_entry(number, entry);
            self.publish_returns(number, returned);
        }
        true
    }

    /// Whether code after an indirect call takes results from registers that the psABI does not use
    /// for results. The compiler (Go) then has its own convention, and may use it in less visible
    /// ways. Only blocks whose single predecessor is the call count: others may never be returned
    /// to.
    fn finds_other_convention(&self) -> bool {
        let functions = self.blocks.iter().zip(&self.reached);
        functions.into_iter().any(|(blocks, reached)| {
            let mut preds = vec![0u32; blocks.len()];
            for &next in blocks.iter().flat_map(|block| &block.next) {
                preds[next] += 1;
            }
            blocks.iter().zip(reached).any(|(block, &reached)| {
                let (End::Call(None), &[next]) = (&block.end, block.next.as_slice()) else {
                    return false;
                };
                let read = blocks[next].read.difference(PSABI);
                reached && preds[next] == 1 && read != RegisterSet::default()
            })
        })
    }

    fn queue(&mut self, number: usize) {
        if !std::mem::replace(&mut self.queued[number], true) {
            self.work.push_back(number);
        }
    }

    /// Propagates the need at a function's entry to its callers.
    fn publish_entry(&mut self, number: usize, entry: u64) {
        let first = self.functions[number]
            .blocks
            .iter()
            .position(|block| block.start == entry);
        let needed = first.map_or(Need::UNKNOWN, |first| self.live[number][first]);
        let Some(ends) = self.liveness.functions.get_mut(&entry) else {
            return;
        };
        if std::mem::replace(&mut ends.entry, needed) != needed {
            self.queue_users(entry);
        }
    }

    /// Propagates the need after returns to the functions that `number` calls or jumps to.
    fn publish_returns(&mut self, number: usize, returned: Need) {
        let mut found = Vec::new();
        let reached = self.reached[number].iter();
        for (block, _) in self.blocks[number]
            .iter()
            .zip(reached)
            .filter(|(_, reached)| **reached)
        {
            match block.end {
                End::Call(callee) if !self.liveness.returns(callee) => {}
                End::Call(callee) => {
                    let after = self.liveness.after(block, &self.live[number]);
                    let changed = self.liveness.changed(callee);
                    if callee.is_some() {
                        found.push((callee, after.across_call(changed)));
                    }
                    // The function may leave after the call.
                    found.extend(block.leaves.iter().map(|&pc| (Some(pc), returned)));
                }
                End::Flow => found.extend(block.leaves.iter().map(|&pc| (Some(pc), returned))),
                End::Unknown => found.push((None, returned)),
                End::Return | End::Untracked | End::Trap => {}
            }
        }
        let continued = self.continued[number].iter();
        found.extend(continued.map(|&entry| (Some(entry), returned)));
        for (callee, needed) in found {
            match callee {
                Some(entry) => self.add_returned(entry, needed),
                None => self.add_unknown(needed),
            }
        }
    }

    fn add_returned(&mut self, entry: u64, needed: Need) {
        let Some(ends) = self.liveness.functions.get_mut(&entry) else {
            return self.add_unknown(needed);
        };
        let all = ends.returned.union(needed);
        if std::mem::replace(&mut ends.returned, all) != all {
            let number = self.index[&entry];
            self.queue(number);
        }
    }

    /// Adds registers that may be needed after the return of any function.
    fn add_unknown(&mut self, needed: Need) {
        let all = self.after_unknown.union(needed);
        if std::mem::replace(&mut self.after_unknown, all) != all {
            for function in self.functions {
                self.add_returned(function.entry, all);
            }
        }
    }
}

/// For each function, entries of others that the interpreter may change over to while it is in this
/// function: functions with common code at or after their entry. A loop that several functions
/// share is entered in any of them.
fn continued(functions: &[Function]) -> Vec<Vec<u64>> {
    let entries: HashSet<u64> = functions.iter().map(|function| function.entry).collect();
    let mut headers: HashMap<u64, usize> = HashMap::new();
    let mut result = vec![Vec::new(); functions.len()];
    for (number, function) in functions.iter().enumerate() {
        for block in &function.blocks {
            let addresses = block.instructions.iter().map(|&(pc, _)| pc);
            let inside = addresses.filter(|&pc| pc != function.entry && entries.contains(&pc));
            result[number].extend(inside);
            if block.is_loop_header {
                let first = *headers.entry(block.start).or_insert(number);
                if first != number {
                    result[number].push(functions[first].entry);
                    result[first].push(function.entry);
                }
            }
        }
    }
    result
}
