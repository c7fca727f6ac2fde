//! Chaos: schedules that a seed determines (`HARTLINE_CHAOS`).
//!
//! A program's result must not depend on when it is preempted, which of its code is translated,
//! where its pages are or how slow the host is. Under chaos a generator decides all of these, so a
//! test reaches in seconds states that a busy machine reaches once in hours.

/// Settings of one VM, part of the boot information. All zeros: off.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// Seed of the generator.
    pub seed: u64,
    /// Bits of [`Kind`]; 0: no chaos.
    pub kinds: u32,
    /// 1: the runtime checks itself (`--check`).
    pub check: u32,
}

/// The kinds of decisions of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Another task runs at safepoints.
    Preempt = 1,
    /// Another task runs at the end of system calls.
    Switch = 2,
    /// Pages move to other frames, become read-only or not present.
    Pages = 4,
    /// Translation images appear, change and disappear, with some of their functions.
    Images = 8,
    /// Translated code is interpreted for a while.
    Tiers = 16,
    /// Polling of devices ends at once.
    Polls = 32,
    /// Threads of the host that serve the guest are delayed.
    Late = 64,
    /// The slot for translations of code made at run time is full.
    Slot = 128,
}

impl Kind {
    /// All kinds, with their names in `HARTLINE_CHAOS`.
    pub const ALL: [(&'static str, Kind); 8] = [
        ("preempt", Kind::Preempt),
        ("switch", Kind::Switch),
        ("pages", Kind::Pages),
        ("images", Kind::Images),
        ("tiers", Kind::Tiers),
        ("polls", Kind::Polls),
        ("late", Kind::Late),
        ("slot", Kind::Slot),
    ];
}

/// A generator of 64-bit numbers (SplitMix64): the same numbers for the same seed.
#[derive(Debug, Clone)]
pub struct Generator(u64);

impl Generator {
    /// A generator that starts at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// The next number below `limit`, which must not be 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True with probability 1/`one_in`; never if that is 0.
    pub const fn once_in(&mut self, one_in: u64) -> bool {
        one_in != 0 && self.below(one_in) == 0
    }
}

/// Spreads the bits of `value` over all bits of the result.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
