//! The address ranges that functions are made from, and their entries.

use crate::elf::Binary;
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest total size of ranges that are merged to one function, bytes.
const MAX_MERGED: u64 = 64 << 10;
/// The largest range that is merged although nothing in it jumps back, bytes. A part of a function
/// that the compiler moved away as unlikely jumps back, or is short. A longer range is the callee of
/// a tail call; a `main` that only selects one of many commands would grow by all of them.
const MAX_WITHOUT_RETURN: u64 = 512;

/// The transfers of control to an address.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entered {
    /// By calls or through pointers.
    called: bool,
    /// By jumps from the unit that starts here.
    from: Option<u64>,
    /// By jumps from several units.
    shared: bool,
}

impl Entered {
    /// Adds an entry by a jump from a unit, or by other means.
    fn add(&mut self, from: Option<u64>) {
        match (from, self.from) {
            (None, _) => self.called = true,
            (Some(from), None) => self.from = Some(from),
            (Some(from), Some(known)) => self.shared |= from != known,
        }
    }

    /// Returns the unit that enters, if it is the only one and enters only by jumps.
    fn only_jumper(&self) -> Option<u64> {
        self.from.filter(|_| !self.called && !self.shared)
    }

    /// Whether the unit that starts at `start` may be one that jumps here.
    fn may_come_from(&self, start: u64) -> bool {
        self.shared || self.from == Some(start)
    }
}

/// A range of addresses that belongs together.
#[derive(Debug)]
pub(super) struct Unit {
    /// End of the range.
    pub end: u64,
    /// The end is only a guess: no unwind information or symbol gives it.
    guessed: bool,
    start_entered: Entered,
    /// Entries other than the start.
    inner: BTreeMap<u64, Entered>,
}

/// All units by start; they do not overlap.
#[derive(Debug)]
pub(super) struct Units {
    units: BTreeMap<u64, Unit>,
}

/// The effect of adding an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The entry was known.
    Known,
    /// A new function starts there.
    New,
    /// As `New`, and the unit that starts at this address ends there now.
    Split(u64),
}

impl Units {
    /// Creates units from the function ranges that the file names.
    pub(super) fn new(binary: &Binary<'_>) -> Self {
        let unit = |range: &Range<u64>| {
            let (start_entered, inner) = (Entered::default(), BTreeMap::new());
            (
                range.start,
                Unit {
                    end: range.end,
                    guessed: false,
                    start_entered,
                    inner,
                },
            )
        };
        Self {
            units: binary.functions().iter().map(unit).collect(),
        }
    }

    /// Starts of all units.
    pub(super) fn starts(&self) -> impl Iterator<Item = u64> {
        self.units.keys().copied()
    }

    /// The unit that contains an address.
    pub(super) fn containing(&self, address: u64) -> Option<Range<u64>> {
        let (&start, unit) = self.units.range(..=address).next_back()?;
        (address < unit.end).then_some(start..unit.end)
    }

    /// Whether an address is the start of a unit, in no unit, or in a unit whose end is a guess.
    pub(super) fn may_be_start(&self, address: u64) -> bool {
        let before = self.units.range(..=address).next_back();
        before.is_none_or(|(&start, unit)| start == address || unit.end <= address || unit.guessed)
    }

    /// Adds an entry at an address of the text, reached by a jump from the unit `from`, or by a
    /// call or pointer.
    pub(super) fn add(&mut self, binary: &Binary<'_>, address: u64, from: Option<u64>) -> Added {
        if let Some(unit) = self.units.get_mut(&address) {
            unit.start_entered.add(from);
            return Added::Known;
        }
        let mut entered = Entered::default();
        entered.add(from);
        let unit = self.units.range_mut(..address).next_back();
        let Some((&start, unit)) = unit.filter(|(_, unit)| address < unit.end) else {
            self.insert_guess(binary, address, entered);
            return Added::New;
        };
        if unit.guessed && from.is_none() {
            let rest = unit.inner.split_off(&address);
            let end = std::mem::replace(&mut unit.end, address);
            let new = Unit {
                end,
                guessed: true,
                start_entered: entered,
                inner: rest,
            };
            self.units.insert(address, new);
            return Added::Split(start);
        }
        let known = unit.inner.contains_key(&address);
        unit.inner.entry(address).or_default().add(from);
        if known { Added::Known } else { Added::New }
    }

    /// Adds a unit at an address in no unit, up to the next unit.
    fn insert_guess(&mut self, binary: &Binary<'_>, address: u64, start_entered: Entered) {
        let text = binary.text().iter().find(|text| address < text.end());
        let text_end = text.map_or(address, |text| text.end());
        let next = self.units.range(address..).next();
        let end = next.map_or(text_end, |(&next, _)| next.min(text_end));
        let inner = BTreeMap::new();
        self.units.insert(
            address,
            Unit {
                end,
                guessed: true,
                start_entered,
                inner,
            },
        );
    }

    /// Groups units to functions: a unit that only one other unit jumps to (a part that the
    /// compiler moved away as unlikely) is merged into that unit, if it jumps back or is short.
    /// Returns the root of every merged unit.
    pub(super) fn merge(&self) -> BTreeMap<u64, u64> {
        let mut parents: BTreeMap<u64, u64> = BTreeMap::new();
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for (&start, unit) in &self.units {
            let Some(jumper) = unit.start_entered.only_jumper() else {
                continue;
            };
            let root = root_of(&parents, jumper);
            let Some(root_unit) = self.units.get(&root).filter(|_| root != start) else {
                continue;
            };
            if unit.end - start > MAX_WITHOUT_RETURN && !self.jumps_into(start, jumper) {
                continue;
            }
            let size = *sizes.get(&start).unwrap_or(&(unit.end - start));
            let total = sizes.entry(root).or_insert(root_unit.end - root);
            if total.saturating_add(size) <= MAX_MERGED {
                *total += size;
                parents.insert(start, root);
            }
        }
        let starts: Vec<u64> = parents.keys().copied().collect();
        starts
            .into_iter()
            .map(|start| (start, root_of(&parents, start)))
            .collect()
    }

    /// Whether one unit may jump into the middle of another one.
    fn jumps_into(&self, from: u64, to: u64) -> bool {
        let entered = |unit: &Unit| unit.inner.values().any(|inner| inner.may_come_from(from));
        self.units.get(&to).is_some_and(entered)
    }

    /// Returns the entries of the functions after merging. Inner entries that only the same
    /// function jumps to are not included.
    pub(super) fn entries(&self, roots: &BTreeMap<u64, u64>) -> Vec<u64> {
        let root = |start: u64| *roots.get(&start).unwrap_or(&start);
        let mut entries = Vec::new();
        for (&start, unit) in &self.units {
            if root(start) == start {
                entries.push(start);
            }
            for (&address, entered) in &unit.inner {
                let jumper = entered.only_jumper().map(root);
                if jumper != Some(root(start)) {
                    entries.push(address);
                }
            }
        }
        entries
    }
}

/// The unit at the end of a chain of parents; chains have no cycles.
fn root_of(parents: &BTreeMap<u64, u64>, start: u64) -> u64 {
    let mut root = start;
    while let Some(&parent) = parents.get(&root) {
        root = parent;
    }
    root
}
