//! `--profile-lines`: the call stacks of samples, with source lines and inlined functions.

use super::super::backtrace::{Backtraces, Place};
use crate::debug_dir::DebugDirectories;
use hartline_debug::budget::Budget;
use hartline_debug::module::Location;
use hartline_debug::unwind::Address;
use hartline_tree::TreeImage;
use hartline_vmm::call_stacks::{CallingTask, SampleStacks};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps that the unwind tables may cost for one sample, a millisecond at most.
const STEPS: u64 = 100_000;

/// The call stacks of samples.
pub struct SampledStacks(Mutex<State>);

struct State {
    backtraces: Backtraces,
    /// The stack of the sample that is being taken.
    last: Vec<Address>,
    /// The work that the lines of the profile may cause.
    lines: Budget,
}

impl fmt::Debug for SampledStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledStacks").finish_non_exhaustive()
    }
}

impl SampledStacks {
    /// Stacks through files of `tree`.
    pub fn new(tree: &Arc<TreeImage>, debug: &DebugDirectories) -> Self {
        Self(Mutex::new(State {
            backtraces: Backtraces::new(tree, debug),
            last: Vec::new(),
            lines: Budget::new(4 * Budget::REPORT),
        }))
    }

    /// Takes the stack of the last sample, the innermost address first; it is empty if there is none.
    pub fn take(&self) -> Vec<Address> {
        std::mem::take(&mut self.state().last)
    }

    /// The inode of the file of an address, and its link-time address there.
    pub fn place(&self, address: &Address) -> Option<(u32, u64)> {
        let (file, linked) = address.place?;
        Some((self.state().backtraces.inode(file)?, linked))
    }

    /// The locations in the source of an address, the innermost inlined function first.
    pub fn locations(&self, address: &Address) -> Vec<Location> {
        let state = self.state();
        state.backtraces.locations(address, &state.lines)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SampleStacks for SampledStacks {
    fn sample(&self, from: &CallingTask) {
        let mut state = self.state();
        let place = Place {
            pc: from.pc,
            x: &from.x.map(Some),
            trampoline: from.trampoline,
            mappings: &from.mappings,
            memory: &from.memory,
        };
        state.last = state.backtraces.addresses(&place, &Budget::new(STEPS));
    }
}
