//! Chaos: what happens when is decided by a seed ([`hartline_abi::chaos`]).
//!
//! With chaos safepoints ask for attention, so the number of safepoints between two events
//! does not depend on the host, and with one vCPU the same seed gives the same run, unless
//! the program looks at the time or at devices. [`Chaos::schedule`] tells whether it did. How
//! often each kind of event happens is drawn from the seed too: some seeds do one thing at
//! every safepoint, others do everything now and then.

use crate::cpus;
use crate::dispatch;
use crate::kernel::{Control, Kernel};
use crate::memory::AddressSpace;
use hartline_abi::chaos::{Generator, Kind, Settings, mix};
use hartline_abi::hart::PATIENCE;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, USER_END};

/// The stack pointer.
const SP: usize = 2;

/// Safepoints between two events are up to twice as many as one of these.
const SPANS: [u64; 6] = [1, 4, 16, 64, 512, 4096];
/// Once in how many events each kind happens; 0: never.
const RATES: [u64; 5] = [0, 1, 4, 16, 64];
/// After so many events they become rare: a program that runs long still ends.
const MANY: u64 = 200_000;
/// A task that only waits for others, in a loop, has to let them run: safepoints of a turn. So many
/// take 30 ms in translated code and 90 ms in the interpreter. A program whose threads wait for one
/// another hundreds of times still ends in a minute.
const LONGEST_TURN: u64 = 2_000;
/// After the host has interrupted a loop: programs that wait in such loops still end.
const LESS_PATIENCE: u64 = 1;
/// So many events of the kinds that make exits happen often.
const MANY_DEAR: u64 = 1000;

/// The generator of the VM and what it was drawn to do.
#[derive(Debug)]
pub(crate) struct Chaos {
    settings: Settings,
    random: Generator,
    /// For what is asked as often as the host is slow, so that it does not disturb the other.
    waits: Generator,
    /// Safepoints of the turn so far.
    turn: u64,
    /// The host raises the limit of a hart that reaches no safepoint with the attempt after so many.
    patience: u64,
    /// A digest of where the events were.
    schedule: u64,
    /// Safepoints until the next event.
    left: u64,
    span: u64,
    /// Events so far, and those that were dear.
    events: u64,
    dear: u64,
    /// Once in how many events each bit of `kinds` happens.
    rates: [u64; u32::BITS as usize],
    /// Entries of translated code that are not taken.
    interpreted: u64,
    /// Images of a process were dropped: they come back with the next event.
    has_dropped: bool,
    /// A task is about to go on: it does at least that.
    is_quiet: bool,
    entries: Entries,
}

/// Entries of translated functions. A function that finds `poll_limit` raised asks for
/// attention before it does anything, and is entered again afterwards. It can only go on if
/// the limit is below its stack frame, whose size is found by trying. What it calls is below
/// the limit and asks again.
#[derive(Debug)]
struct Entries {
    /// Where the last one was: address of the function, and the program's stack pointer. The
    /// host's is lower each time if the function has an adapter, through which it is entered.
    last: (u64, u64),
    /// Upper bounds of frame sizes, by a hash of the address.
    frames: [u32; 256],
}

impl Entries {
    /// The function at `pc` asks with the program's stack pointer `sp`. Whether that is for
    /// the second time.
    fn ask(&mut self, pc: u64, sp: u64) -> bool {
        let again = core::mem::replace(&mut self.last, (pc, sp)) == (pc, sp);
        if again {
            let frame = self.frame(pc);
            *frame = (*frame * 2).max(32);
        }
        again
    }

    fn frame(&mut self, pc: u64) -> &mut u32 {
        &mut self.frames[(mix(pc) % 256) as usize]
    }

    /// Something else happened since.
    fn forget(&mut self) {
        self.last = (0, 0);
    }
}

impl Chaos {
    pub fn new(settings: Settings) -> Self {
        let mut random = Generator::new(settings.seed);
        let span = SPANS[random.below(SPANS.len() as u64) as usize];
        let rates = core::array::from_fn(|_| RATES[random.below(RATES.len() as u64) as usize]);
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
            interpreted: 0,
            has_dropped: false,
            is_quiet: false,
            entries: Entries {
                last: (0, 0),
                frames: [0; 256],
            },
        }
    }

    /// Whether safepoints ask for attention all the time: for chaos, or for checks.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.settings.kinds != 0 || self.checks()
    }

    /// Whether it decides when tasks change.
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

    /// A digest of the places in the program where something happened, and of what was drawn
    /// there. Two runs with the same digest had the same schedule. 0: nothing happened.
    pub fn schedule(&self) -> u64 {
        self.schedule
    }

    /// At a safepoint at `pc`: whether something happens there.
    fn is_due(&mut self, pc: u64) -> bool {
        self.turn += 1;
        self.left -= 1;
        if self.left != 0 {
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

    /// Whether the running task's turn is over, though it could go on.
    pub fn ends_turn(&mut self) -> bool {
        let ends = self.does(Kind::Preempt) || self.turn >= LONGEST_TURN;
        if ends {
            self.turn = 0;
        }
        ends
    }

    /// The host has interrupted a loop that calls nothing. Something is due at this safepoint, and
    /// the turn is over: the next safepoint comes only when the host loses its patience again.
    fn interrupt(&mut self) {
        self.turn = LONGEST_TURN;
        self.left = 1;
        // The run depends on the host by now.
        self.patience = LESS_PATIENCE;
    }

    /// Whether waiting for a device ends at once.
    pub fn ends_wait(&mut self) -> bool {
        let rate = self.rates[(Kind::Polls as u32).trailing_zeros() as usize];
        self.has(Kind::Polls) && self.waits.once_in(rate)
    }

    /// Whether a task is only let go on.
    pub fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet;
    }

    /// As [`does`](Self::does), for what leaves the VM or makes KVM work.
    fn does_dear(&mut self, kind: Kind) -> bool {
        let does = self.does(kind) && (self.dear < MANY_DEAR || self.random.once_in(64));
        self.dear += u64::from(does);
        does
    }

    /// Which of `count` tasks that can run is next, in order; the first without chaos.
    pub fn choose(&mut self, count: usize) -> usize {
        match count > 1 && (self.has(Kind::Preempt) || self.has(Kind::Switch)) {
            true => self.random.below(count as u64) as usize,
            false => 0,
        }
    }

    /// Whether translated code is not entered although there is some.
    pub fn refuses_translation(&mut self) -> bool {
        if !self.has(Kind::Tiers) {
            return false;
        }
        if self.interpreted == 0 && self.does(Kind::Tiers) {
            self.interpreted = 1 + self.random.below(2 * self.span);
        }
        let refuses = self.interpreted != 0;
        self.interpreted = self.interpreted.saturating_sub(1);
        refuses
    }

    /// Which functions of an image that comes into use it shows.
    pub fn mask(&mut self) -> Mask {
        if !self.has(Kind::Images) {
            return Mask::default();
        }
        Mask {
            seed: self.random.next(),
            // Few, half, nearly all or all of them.
            hidden: [230, 128, 25, 0][self.random.below(4) as usize],
        }
    }

    /// Whether images come into use again although nothing is new.
    pub fn renews_images(&self) -> bool {
        self.has(Kind::Images)
    }
}

/// Functions of an image that are hidden, as if they had not been translated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mask {
    seed: u64,
    /// So many of 256.
    hidden: u8,
}

impl Mask {
    /// Whether the function at `pc` is hidden.
    #[inline]
    pub fn hides(self, pc: u64) -> bool {
        self.hidden != 0 && (mix(pc ^ self.seed) as u8) < self.hidden
    }
}

impl Kernel {
    /// Has the host interrupt loops that reach no safepoint, also those of a task that is alone.
    pub(crate) fn start_chaos(&mut self) {
        if self.chaos.preempts() {
            self.start_ticking();
        }
    }

    /// Whether the safepoint that was reached is to be served, which may be the entry of a
    /// translated function.
    #[inline]
    pub(crate) fn is_attention_due(&mut self, is_entry: bool) -> bool {
        match self.chaos.is_on() {
            true => self.is_event_due(is_entry),
            false => self.attention(),
        }
    }

    #[cold]
    fn is_event_due(&mut self, is_entry: bool) -> bool {
        if dispatch::take_interruption(self.hart_pointer()) {
            self.chaos.interrupt();
            // A loop that calls the same function again and again looks like a function that asks
            // for the second time.
            self.chaos.entries.forget();
        }
        self.arm_safepoints();
        let hart = self.hart();
        let (pc, sp) = (hart.pc, hart.x[SP]);
        if !is_entry {
            self.chaos.entries.forget();
        } else if self.chaos.entries.ask(pc, sp) {
            return false;
        }
        self.chaos.is_due(pc)
    }

    /// Has the next safepoint ask for attention.
    pub(crate) fn arm_safepoints(&mut self) {
        if self.chaos.is_on() {
            self.ask_attention();
            dispatch::set_patience(self.hart_pointer(), None);
        }
    }

    /// Lets the translated function at `Hart::pc`, which asked for attention with the stack
    /// pointer `stack`, go on.
    pub(crate) fn let_in(&mut self, stack: u64) {
        if !self.chaos.is_on() {
            return;
        }
        let pc = self.hart().pc;
        let lowest = dispatch::stack_limit(self.hart().id);
        let frame = u64::from(*self.chaos.entries.frame(pc));
        let limit = stack.saturating_sub(frame).max(lowest);
        // With several vCPUs no seed gives the same run, and one asks another for attention.
        let patience = (!cpus::several()).then_some(self.chaos.patience);
        dispatch::set_patience(self.hart_pointer(), patience);
        dispatch::set_poll_limit(self.hart_pointer(), limit);
        // What the host wanted before it saw the limit must not be lost with it.
        if dispatch::is_interrupted(self.hart_pointer()) {
            self.ask_attention();
        }
    }

    /// What happens at a safepoint besides.
    pub(crate) fn disturb(&mut self) -> Control {
        if !self.chaos.is_on() || self.is_idle() {
            return Control::Continue;
        }
        if self.chaos.does_dear(Kind::Pages) {
            let Kernel { chaos, memory, .. } = self;
            disturb_pages(memory, &mut chaos.random);
        }
        let mut control = Control::Continue;
        let returns = core::mem::take(&mut self.chaos.has_dropped);
        if returns || self.chaos.does_dear(Kind::Images) {
            self.disturb_images(returns);
            control = core::mem::replace(&mut self.control, Control::Continue);
        }
        if self.chaos.does(Kind::Tiers) {
            // Host frames are dropped: the function goes on in the interpreter.
            control = Control::Restart;
        }
        control
    }

    /// Drops all images of the running process, or has them come again, from other places
    /// and with other functions; processes that run later follow.
    fn disturb_images(&mut self, returns: bool) {
        if !returns && self.chaos.random.once_in(4) {
            self.chaos.has_dropped = true;
            self.stop_sharers();
            self.images.clear();
            self.release_images();
            self.use_dispatch_cache();
            self.control = Control::Restart;
            return;
        }
        self.shift_generation();
        self.catch_up_translations();
    }
}

/// Disturbs a few pages of a program.
fn disturb_pages(memory: &mut AddressSpace, random: &mut Generator) {
    for _ in 0..1 + random.below(8) {
        let ranges = memory.vmas().overlapping(0..USER_END).count() as u64;
        if ranges == 0 {
            return;
        }
        let chosen = random.below(ranges) as usize;
        let range = memory.vmas().overlapping(0..USER_END).nth(chosen);
        let Some(range) = range.map(|(start, vma)| start..vma.end) else {
            return;
        };
        // Near one end, where programs use their ranges, as often as anywhere.
        let pages = (range.end - range.start).div_ceil(PAGE_SIZE);
        let page = match random.below(3) {
            0 => random.below(pages.min(HUGE_PAGE_SIZE / PAGE_SIZE)),
            1 => pages - 1 - random.below(pages.min(HUGE_PAGE_SIZE / PAGE_SIZE)),
            _ => random.below(pages),
        };
        let page = range.start + page * PAGE_SIZE;
        // Without RAM the page stays as it is.
        let _ = match random.below(3) {
            0 => memory.hide_page(page),
            1 => memory.protect_page(page),
            _ => memory.move_page(page),
        };
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
        // However often: its frame is taken for larger each time.
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
        assert!(!chaos.is_on() && !chaos.renews_images() && !chaos.refuses_translation());
        assert!(Kind::ALL.iter().all(|&(_, kind)| !chaos.does(kind)));
        assert_eq!(chaos.choose(5), 0);
        assert!(!(0..4096).any(|pc| chaos.mask().hides(pc)));
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

    /// A loop that calls nothing reaches a safepoint only when the host interrupts it.
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
