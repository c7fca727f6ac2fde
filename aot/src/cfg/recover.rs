//! Finds all functions from the entries that the file names.

use super::blocks;
use super::constants::Constants;
use super::explorer::Marks;
use super::function::{Block, Function, Terminator};
use super::units::{Added, Units};
use super::{ControlFlow, setjmp};
use crate::elf::Binary;
use hartline_isa::{ImmediateOp, Instruction, Operation, XReg};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// The limit of decoded instructions, as a multiple of the positions where one can start.
const DECODE_FACTOR: usize = 16;
/// The limit of instructions in functions that share a unit's code, as a multiple of the positions
/// where one can start.
const SHARE_FACTOR: u64 = 4;
/// The lower bound of both limits, instructions.
const MIN_BUDGET: usize = 4096;

/// Recovers the control flow of a file. Time and memory are linear in the size of
/// its text.
#[must_use]
pub fn recover(binary: &Binary<'_>) -> ControlFlow {
    let mut recovery = Recovery::new(binary);
    recovery.discover();
    recovery.merge();
    recovery.finish()
}

struct Recovery<'r, 'a> {
    binary: &'r Binary<'a>,
    marks: Marks,
    units: Units,
    /// The root of each unit that is merged into another.
    roots: BTreeMap<u64, u64>,
    /// The other units merged into a root.
    members: HashMap<u64, Vec<u64>>,
    functions: BTreeMap<u64, Function>,
    pending: Vec<u64>,
    /// Addresses in the code that appear in registers.
    taken: HashSet<u64>,
    /// Targets of jump tables.
    labels: HashSet<u64>,
    /// The number of instructions that may still be decoded.
    budget: usize,
    /// The number of instructions that inner entries of a unit may still have.
    shares: HashMap<u64, usize>,
}

/// Addresses that a function refers to.
#[derive(Debug, Default)]
struct References {
    /// Called, or address taken.
    called: Vec<u64>,
    /// Jumped to.
    jumped: Vec<u64>,
    /// Held in a register; not necessarily code.
    taken: Vec<u64>,
}

impl<'r, 'a> Recovery<'r, 'a> {
    fn new(binary: &'r Binary<'a>) -> Self {
        let addresses: usize = binary.text().iter().map(|text| text.bytes.len() / 2).sum();
        Self {
            binary,
            marks: Marks::new(binary),
            units: Units::new(binary),
            roots: BTreeMap::new(),
            members: HashMap::new(),
            functions: BTreeMap::new(),
            pending: Vec::new(),
            taken: HashSet::new(),
            labels: HashSet::new(),
            budget: addresses.saturating_mul(DECODE_FACTOR).max(MIN_BUDGET),
            shares: HashMap::new(),
        }
    }

    /// Builds every unit separately, and follows its references.
    fn discover(&mut self) {
        self.pending = self.units.starts().collect();
        self.pending.reverse();
        for &entry in self.binary.entries() {
            self.enter(entry, None);
        }
        self.work();
        if !self.binary.has_text_bounds() {
            return;
        }
        for &pointer in self.binary.pointers() {
            if !self.labels.contains(&pointer) {
                self.enter(pointer, None);
                self.work();
            }
        }
        self.sweep();
    }

    /// Rebuilds functions that consist of several units.
    fn merge(&mut self) {
        self.roots = self.units.merge();
        for (&start, &root) in &self.roots {
            self.members.entry(root).or_default().push(start);
        }
        let entries: HashSet<u64> = self.units.entries(&self.roots).into_iter().collect();
        self.functions.retain(|entry, _| entries.contains(entry));
        for &entry in &entries {
            let merged = self
                .root(entry)
                .is_some_and(|root| self.members.contains_key(&root));
            if merged {
                self.functions.remove(&entry);
                self.pending.push(entry);
            }
        }
        self.pending.sort_unstable();
        self.shares.clear();
        self.work();
    }

    fn finish(self) -> ControlFlow {
        let mut functions: Vec<Function> = self.functions.into_values().collect();
        let twice = setjmp::find(&functions);
        if !twice.is_empty() {
            functions
                .iter_mut()
                .for_each(|function| setjmp::mark(function, &twice));
        }
        let mut exposed = self.taken;
        exposed.extend(self.binary.entries());
        exposed.extend(self.binary.pointers());
        ControlFlow { functions, exposed }
    }

    fn work(&mut self) {
        while let Some(entry) = self.pending.pop() {
            if self.functions.contains_key(&entry) || self.budget == 0 {
                continue;
            }
            self.build(entry);
        }
    }

    /// Returns the start of the unit that the function of an address belongs to.
    fn root(&self, address: u64) -> Option<u64> {
        let start = self.units.containing(address)?.start;
        Some(*self.roots.get(&start).unwrap_or(&start))
    }

    /// Returns the ranges of the function at an entry.
    fn ranges(&self, root: u64) -> Vec<Range<u64>> {
        let members = self.members.get(&root).into_iter().flatten();
        let starts = std::iter::once(root).chain(members.copied());
        starts
            .filter_map(|start| self.units.containing(start))
            .collect()
    }

    fn build(&mut self, entry: u64) {
        let Some(root) = self.root(entry) else {
            return;
        };
        let ranges = self.ranges(root);
        if entry != root {
            let addresses = ranges
                .iter()
                .map(|range| (range.end - range.start) / 2)
                .sum::<u64>();
            let share = usize::try_from(addresses * SHARE_FACTOR).unwrap_or(usize::MAX);
            if *self.shares.entry(root).or_insert(share.max(MIN_BUDGET)) == 0 {
                return;
            }
        }
        let (blocks, decoded) = blocks::build(self.binary, &mut self.marks, &ranges, entry);
        self.budget = self.budget.saturating_sub(decoded);
        if entry != root
            && let Some(share) = self.shares.get_mut(&root)
        {
            *share = share.saturating_sub(decoded);
        }
        for block in &blocks {
            if let Terminator::JumpTable(table) = &block.terminator {
                let inside = table.targets.iter().filter(|edge| edge.is_internal());
                self.labels.extend(inside.map(|edge| edge.target));
            }
        }
        let references = References::of(self.binary, &blocks, &ranges);
        self.taken.extend(&references.taken);
        let name = self.binary.name(entry).filter(|name| !name.is_empty());
        let function = Function {
            entry,
            name: name.map(str::to_owned),
            blocks,
        };
        self.functions.insert(entry, function);
        self.follow(references, entry, root);
    }

    fn follow(&mut self, references: References, entry: u64, root: u64) {
        let from = self.units.containing(entry).map_or(root, |unit| unit.start);
        for address in references.jumped {
            self.enter(address, Some(from));
        }
        for address in references.called {
            self.enter(address, None);
        }
        let bounded = self.binary.has_text_bounds();
        for address in references.taken.into_iter().filter(|_| bounded) {
            // Labels of computed gotos point into the middle of a function.
            if self.units.may_be_start(address) && self.binary.may_start_function(address) {
                self.enter(address, None);
            }
        }
    }

    /// Treats code without any reference as functions, unless unwind information or symbols say
    /// otherwise.
    fn sweep(&mut self) {
        for text in self.binary.text() {
            let mut pc = text.start;
            while pc < text.end() {
                let instruction = self.binary.instruction(pc);
                let is_code = instruction.is_some_and(|instruction| !is_padding(&instruction));
                if is_code && !self.marks.is_decoded(pc) && self.units.may_be_start(pc) {
                    self.enter(pc, None);
                    self.work();
                }
                pc += instruction.map_or(2, |instruction| u64::from(instruction.length()));
            }
        }
    }

    /// Adds an entry that is reached by a jump from the unit `from`, or otherwise.
    fn enter(&mut self, address: u64, from: Option<u64>) {
        if !self.binary.is_text(address) {
            return;
        }
        match self.units.add(self.binary, address, from) {
            Added::Known => {}
            Added::New => self.pending.push(address),
            Added::Split(start) => {
                let too_long = |(_, function): &(&u64, &Function)| {
                    function.blocks.iter().any(|block| block.end() > address)
                };
                let affected = self.functions.range(start..address).filter(too_long);
                let stale: Vec<u64> = affected.map(|(&entry, _)| entry).collect();
                for entry in stale {
                    self.functions.remove(&entry);
                    self.pending.push(entry);
                }
                self.functions.remove(&address);
                self.pending.push(address);
            }
        }
    }
}

/// Whether an instruction is a `nop`, which aligns the next function.
fn is_padding(instruction: &Instruction) -> bool {
    match instruction.operation() {
        Operation::Immediate {
            op: ImmediateOp::Addi,
            rd,
            ..
        } => rd == XReg::ZERO,
        _ => false,
    }
}

impl References {
    /// Collects the references of a function whose code may be in `ranges`.
    fn of(binary: &Binary<'_>, blocks: &[Block], ranges: &[Range<u64>]) -> Self {
        let mut references = Self::default();
        for block in blocks {
            references.add_edges(block, ranges);
            let mut constants = Constants::new();
            for (pc, instruction) in &block.instructions {
                let taken = constants.step(*pc, instruction);
                references
                    .taken
                    .extend(taken.filter(|&address| binary.is_text(address)));
            }
            // A call that links in `t0` returns by an indirect jump.
            let link = block
                .instructions
                .last()
                .and_then(|(_, last)| match last.operation() {
                    Operation::Jal { rd, .. } | Operation::Jalr { rd, .. } => Some(rd),
                    _ => None,
                });
            if link == Some(XReg::T0) {
                references.called.push(block.end());
            }
        }
        references
    }

    fn add_edges(&mut self, block: &Block, ranges: &[Range<u64>]) {
        if let Terminator::Call { target, .. } = block.terminator {
            self.called.push(target);
        }
        for edge in block.terminator.edges().filter(|edge| !edge.is_internal()) {
            let cut_off = ranges.iter().any(|range| range.contains(&edge.target));
            match block.terminator {
                Terminator::FallThrough { .. } => self.called.push(edge.target),
                // Entries read beyond the end of a table lead anywhere.
                Terminator::JumpTable(_) => {}
                _ if cut_off => self.called.push(edge.target),
                // The callee of a call at the end of a function does not return: nothing follows.
                Terminator::Call { .. } | Terminator::CallIndirect { .. } => {}
                _ => self.jumped.push(edge.target),
            }
        }
    }
}
