//! Chaos: a seed decides when events happen ([`hartline_abi::chaos`]).
//!
//! With chaos the safepoints call the kernel, so the number of safepoints between two events does
//! not depend on the host. With one vCPU, the same seed gives the same run, unless the program
//! reads the time or devices. [`Chaos::schedule`] shows whether two runs were the same. The rate of
//! each kind of event is drawn from the seed too: some seeds do one thing at every safepoint,
//! others do everything now and then.

use crate::convert::{low_u8, to_usize};
use hartline_abi::chaos::{Generator, Kind, Settings, mix};
use hartline_abi::hart::PATIENCE;

/// The best kind of code that may be entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// No translated code.
    Interpreter,
    /// The baseline translator's code.
    Baseline,
    /// LLVM's code, and the baseline translator's where there is none.
    Optimised,
}

/// Mean numbers of safepoints between two events; the actual number is at most twice as large.
const SPANS: [u64; 6] = [1, 4, 16, 64, 512, 4096];
/// Rates of a kind of event: once in this many events; 0: never.
const RATES: [u64; 5] = [0, 1, 4, 16, 64];
/// Number of events after which they become rare, so that a long program still ends.
const MANY: u64 = 200_000;
/// Most safepoints in a turn of a task that waits for others in a loop, before it must let them
/// run. They take 30 ms in translated code and 90 ms in the interpreter. A program whose threads
/// wait for one another hundreds of times still ends within a minute.
const LONGEST_TURN: u64 = 2_000;
/// The same while each part of translated code is compared with the interpreter, which takes up to a
/// millisecond.
const LONGEST_CHECKED_TURN: u64 = 100;
/// Patience after the host has interrupted a loop, so that programs that wait in such loops still
/// end.
const LESS_PATIENCE: u64 = 1;
/// Number of events that cause exits before these become rare.
const MANY_DEAR: u64 = 1000;

/// The generator of the VM and the state of its decisions.
#[derive(Debug)]
pub(crate) struct Chaos {
    settings: Settings,
    pub(crate) random: Generator,
    /// A generator for decisions whose number depends on the host, so that they do not disturb the
    /// others.
    waits: Generator,
    /// Number of safepoints in the current turn.
    turn: u64,
    /// If a hart reaches no safepoint, the host raises its limit at this attempt.
    pub(crate) patience: u64,
    /// A digest of the events and their locations.
    schedule: u64,
    /// Safepoints until the next event.
    left: u64,
    span: u64,
    /// Number of events, and of those that cause exits.
    events: u64,
    dear: u64,
    /// Rates of the bits of `kinds`: once in this many events.
    rates: [u64; u32::BITS as usize],
    /// Number of entries into translated code that are still to be refused, except those in the
    /// tier.
    refused: u64,
    tier: Tier,
    /// Images of a process were dropped: the next event restores them.
    pub(crate) has_dropped: bool,
    /// A task is about to continue: no event prevents that.
    is_quiet: bool,
    pub(crate) entries: Entries,
}

/// Entries of translated functions. A function that finds `poll_limit` raised calls the kernel
/// before it does anything, and is then entered again. It can continue only if the limit is below
/// its stack frame, whose size is found by trial. The functions that it calls are below the limit
/// and call the kernel again.
#[derive(Debug)]
pub(crate) struct Entries {
    /// The last entry: address of the function, and the program's stack pointer. The host's stack
    /// pointer is lower each time if the function is entered through an adapter.
    last: (u64, u64),
    /// Upper bounds of frame sizes, by a hash of the address.
    frames: [u32; 256],
}

impl Entries {
    /// Records that the function at `pc` has called with the program's stack pointer `sp`. Returns
    /// whether it has done so before.
    pub(crate) fn ask(&mut self, pc: u64, sp: u64) -> bool {
        let again = core::mem::replace(&mut self.last, (pc, sp)) == (pc, sp);
        if again {
            let frame = self.frame(pc);
            *frame = (*frame * 2).max(32);
        }
        again
    }

    pub(crate) fn frame(&mut self, pc: u64) -> &mut u32 {
        &mut self.frames[to_usize(mix(pc) % 256)]
    }

    /// Forgets the last entry, because something else has happened since.
    pub(crate) fn forget(&mut self) {
        self.last = (0, 0);
    }
}

impl Chaos {
    pub fn new(settings: Settings) -> Self {
        let mut random = Generator::new(settings.seed);
        let span = SPANS[to_usize(random.below(SPANS.len() as u64))];
        let rates = core::array::from_fn(|_| RATES[to_usize(random.below(RATES.len() as u64))]);
        Self {
            settings,
            random,
            waits: Generator::new(!settings.seed),
            turn: 0,
            patience: PATIENCE,
            schedule: 0,
            left: 1,
            span,
            events: 0,
            dear: 0,
            rates,
            refused: 0,
            tier: Tier::Interpreter,
            has_dropped: false,
            is_quiet: false,
            entries: Entries {
                last: (0, 0),
                frames: [0; 256],
            },
        }
    }

    /// Whether every safepoint calls the kernel, for chaos or for checks.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.settings.kinds != 0 || self.checks()
    }

    /// Whether chaos decides when tasks are switched.
    pub fn preempts(&self) -> bool {
        self.settings.kinds != 0
    }

    /// Whether the runtime checks itself.
    pub fn checks(&self) -> bool {
        self.settings.check != 0
    }

    fn has(&self, kind: Kind) -> bool {
        self.settings.kinds & kind as u32 != 0
    }

    /// A digest of the locations of events in the program and of the numbers drawn there. Two runs
    /// with the same digest had the same schedule. 0: there were no events.
    pub fn schedule(&self) -> u64 {
        self.schedule
    }

    /// Counts a safepoint at `pc`. Returns whether an event happens there.
    pub(crate) fn is_due(&mut self, pc: u64) -> bool {
        self.turn += 1;
        self.left -= 1;
        let ends_turn = self.preempts() && self.turn == self.longest_turn();
        if self.left != 0 && !ends_turn {
            return false;
        }
        self.events += 1;
        self.schedule = mix(self.schedule ^ pc ^ self.random.clone().next());
        let span = match self.events > MANY {
            true => SPANS[SPANS.len() - 1],
            false => self.span,
        };
        self.left = 1 + self.random.below(2 * span);
        true
    }

    /// Whether an event of this kind happens now.
    pub fn does(&mut self, kind: Kind) -> bool {
        let rate = self.rates[(kind as u32).trailing_zeros() as usize];
        self.has(kind) && !self.is_quiet && self.random.once_in(rate)
    }

    fn longest_turn(&self) -> u64 {
        match self.checks() {
            true => LONGEST_CHECKED_TURN,
            false => LONGEST_TURN,
        }
    }

    /// Whether the turn of the running task is over, although the task could continue.
    pub fn ends_turn(&mut self) -> bool {
        let ends = self.does(Kind::Preempt) || self.turn >= self.longest_turn();
        if ends {
            self.turn = 0;
        }
        ends
    }

    /// Handles an interrupt by the host of a loop without calls. An event is due at this safepoint,
    /// and the turn is over, because the next safepoint comes only with the next interrupt.
    pub(crate) fn interrupt(&mut self) {
        self.turn = LONGEST_TURN;
        self.left = 1;
        // From now on the run depends on the host.
        self.patience = LESS_PATIENCE;
    }

    /// Whether waiting for a device ends at once.
    pub fn ends_wait(&mut self) -> bool {
        let rate = self.rates[(Kind::Polls as u32).trailing_zeros() as usize];
        self.has(Kind::Polls) && self.waits.once_in(rate)
    }

    /// Prevents events while a task is about to continue.
    pub fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet;
    }

    /// As [`does`](Self::does), for events that leave the VM or are expensive in KVM.
    pub(crate) fn does_dear(&mut self, kind: Kind) -> bool {
        let does = self.does(kind) && (self.dear < MANY_DEAR || self.random.once_in(64));
        self.dear += u64::from(does);
        does
    }

    /// Chooses the next of `count` runnable tasks in order; the first one without chaos.
    pub fn choose(&mut self, count: usize) -> usize {
        match count > 1 && (self.has(Kind::Preempt) || self.has(Kind::Switch)) {
            true => to_usize(self.random.below(count as u64)),
            false => 0,
        }
    }

    /// The best code that may be entered now.
    #[inline]
    pub fn best_tier(&mut self) -> Tier {
        match self.has(Kind::Tiers) {
            true => self.draw_tier(),
            false => Tier::Optimised,
        }
    }

    #[cold]
    fn draw_tier(&mut self) -> Tier {
        if self.refused == 0 && self.does(Kind::Tiers) {
            let drawn = self.random.below(4 * self.span);
            self.refused = 1 + drawn / 2;
            self.tier = match drawn % 2 {
                0 => Tier::Interpreter,
                _ => Tier::Baseline,
            };
        }
        if self.refused == 0 {
            return Tier::Optimised;
        }
        self.refused -= 1;
        self.tier
    }

    /// Draws the functions that a new image shows.
    pub fn mask(&mut self) -> Mask {
        if !self.has(Kind::Images) {
            return Mask::default();
        }
        Mask {
            seed: self.random.next(),
            // Hide nearly all, half, few or none of them.
            hidden: [230, 128, 25, 0][to_usize(self.random.below(4))],
        }
    }

    /// Whether images are renewed although there are no newer ones.
    pub fn renews_images(&self) -> bool {
        self.has(Kind::Images)
    }
}

/// Functions of an image that are hidden, as if they had not been translated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mask {
    seed: u64,
    /// Hidden functions out of 256.
    hidden: u8,
}

impl Mask {
    /// Whether the function at `pc` is hidden.
    #[inline]
    pub fn hides(self, pc: u64) -> bool {
        self.hidden != 0 && low_u8(mix(pc ^ self.seed)) < self.hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_asks_twice_goes_on() {
        let mut entries = Entries {
            last: (0, 0),
            frames: [0; 256],
        };
        assert!(!entries.ask(0x1000, 0x8000));
        // Each further call doubles the assumed size of its frame.
        for size in [32, 64, 128] {
            assert!(entries.ask(0x1000, 0x8000));
            assert_eq!(*entries.frame(0x1000), size);
        }
        assert!(!entries.ask(0x1000, 0x7ff0), "it has called itself");
        entries.forget();
        assert!(!entries.ask(0x1000, 0x7ff0));
    }

    fn chaos(seed: u64, kinds: u32) -> Chaos {
        Chaos::new(Settings {
            seed,
            kinds,
            check: 0,
        })
    }

    #[test]
    fn off_does_nothing() {
        let mut chaos = chaos(7, 0);
        assert!(!chaos.is_on() && !chaos.renews_images());
        assert_eq!(chaos.best_tier(), Tier::Optimised);
        assert!(Kind::ALL.iter().all(|&(_, kind)| !chaos.does(kind)));
        assert_eq!(chaos.choose(5), 0);
        assert!(!(0..4096).any(|pc| chaos.mask().hides(pc)));
    }

    #[test]
    fn no_turn_lasts_long_even_if_events_are_rare() {
        for (check, longest) in [(0, LONGEST_TURN), (1, LONGEST_CHECKED_TURN)] {
            let mut rare = Chaos::new(Settings {
                seed: 3,
                kinds: Kind::Pages as u32,
                check,
            });
            rare.span = SPANS[SPANS.len() - 1];
            for _ in 0..20 {
                let turn = (1..).find(|_| rare.is_due(0x1000) && rare.ends_turn());
                assert!(turn.is_some_and(|length| length <= longest));
            }
            // A task that is alone has no turns: events stay rare.
            let events = (0..20 * longest).filter(|_| rare.is_due(0x1000)).count();
            assert!(events < 20, "{events}");
        }
    }

    #[test]
    fn all_tiers_are_drawn() {
        let mut chaos = chaos(5, Kind::Tiers as u32);
        chaos.rates = [16; u32::BITS as usize];
        chaos.span = 4;
        let tiers: alloc::vec::Vec<Tier> = (0..10_000).map(|_| chaos.best_tier()).collect();
        for tier in [Tier::Interpreter, Tier::Baseline, Tier::Optimised] {
            let count = tiers.iter().filter(|&&drawn| drawn == tier).count();
            assert!(count > 100, "{tier:?}: {count}");
        }
    }

    #[test]
    fn every_turn_ends() {
        for seed in 0..50 {
            // With and without the kind that ends turns early.
            for kinds in [Kind::Images as u32, u32::MAX] {
                let mut chaos = chaos(seed, kinds);
                // A turn ends with an event.
                let last = LONGEST_TURN + 2 * SPANS[SPANS.len() - 1];
                let end = (0..last).find(|&at| chaos.is_due(at) && chaos.ends_turn());
                assert!(end.is_some(), "seed {seed}");
            }
        }
    }

    /// A loop without calls reaches a safepoint only when the host interrupts it.
    #[test]
    fn an_interrupted_turn_is_over() {
        for seed in 0..50 {
            let mut chaos = chaos(seed, Kind::Images as u32);
            assert!(!chaos.ends_turn());
            chaos.interrupt();
            assert!(chaos.is_due(0) && chaos.ends_turn(), "seed {seed}");
        }
    }

    #[test]
    fn a_seed_repeats_itself_and_differs_from_others() {
        let run = |seed| {
            let mut chaos = chaos(seed, u32::MAX);
            let mut events = alloc::vec::Vec::new();
            for at in 0..100_000 {
                if chaos.is_due(at) {
                    events.push((at, chaos.does(Kind::Preempt), chaos.choose(7)));
                }
            }
            events
        };
        assert_eq!(run(1), run(1));
        assert!((2..20).all(|seed| run(seed) != run(1)));
    }

    #[test]
    fn masks_hide_the_part_that_they_say() {
        let mask = Mask {
            seed: 3,
            hidden: 128,
        };
        let hidden = (0..10_000).filter(|pc| mask.hides(pc * 2)).count();
        assert!((4500..5500).contains(&hidden), "{hidden}");
    }
}
