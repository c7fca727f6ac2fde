//! The events of chaos ([`crate::chaos`]): what happens to the running task when one is due.

use crate::arch::cpus;
use crate::arch::kick;
use crate::convert::to_usize;
use crate::kernel::{Control, Kernel};
use crate::mm::AddressSpace;
use hartline_abi::chaos::{Generator, Kind};
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, USER_END};

/// Number of the stack pointer register.
const SP: usize = 2;

impl Kernel {
    /// Makes the host interrupt loops without safepoints, also those of a single task.
    pub(crate) fn start_chaos(&mut self) {
        if self.chaos.preempts() {
            self.start_ticking();
        }
    }

    /// Whether the current safepoint, which may be the entry of a translated function, must be
    /// handled.
    #[inline]
    pub(crate) fn is_kick_due(&mut self, is_entry: bool) -> bool {
        match self.chaos.is_on() {
            true => self.is_event_due(is_entry),
            false => self.is_kicked(),
        }
    }

    #[cold]
    fn is_event_due(&mut self, is_entry: bool) -> bool {
        if self.memory().has_changed_code() {
            // Its kick is part of the store.
            return true;
        }
        if kick::take_interruption(self.kick()) {
            self.chaos.interrupt();
            // A loop that calls one function again and again looks like a function that calls for
            // the second time.
            self.chaos.entries.forget();
        }
        self.arm_safepoints();
        let hart = self.hart();
        let (pc, sp) = (hart.pc.get(), hart.x(SP));
        if !is_entry {
            self.chaos.entries.forget();
        } else if self.chaos.entries.ask(pc, sp) {
            return false;
        }
        self.chaos.is_due(pc)
    }

    /// Makes the next safepoint call the kernel.
    pub(crate) fn arm_safepoints(&mut self) {
        if self.chaos.is_on() {
            self.kick_self();
            kick::set_patience(self.kick(), None);
        }
    }

    /// Lets the translated function at `Hart::pc`, which called with the stack pointer `stack`,
    /// continue.
    pub(crate) fn let_in(&mut self, stack: u64) {
        if !self.chaos.is_on() {
            return;
        }
        let pc = self.hart().pc.get();
        let lowest = kick::stack_limit(self.hart().id);
        let frame = u64::from(*self.chaos.entries.frame(pc));
        let limit = stack.saturating_sub(frame).max(lowest);
        // With several vCPUs no seed determines the run, and vCPUs kick each other.
        let patience = (!cpus::several()).then_some(self.chaos.patience);
        kick::set_patience(self.kick(), patience);
        kick::set_poll_limit(self.kick(), limit);
        // A kick by the host from before it saw the limit must not be lost.
        if kick::is_interrupted(self.kick()) {
            self.kick_self();
        }
    }

    /// Applies the other events of a safepoint.
    pub(crate) fn disturb(&mut self) -> Control {
        if !self.chaos.is_on() || self.is_idle() {
            return Control::Continue;
        }
        if self.chaos.does_dear(Kind::Pages) {
            let memory = &mut self.spaces[self.current].memory;
            disturb_pages(memory, &mut self.chaos.random);
        }
        let mut control = Control::Continue;
        let returns = core::mem::take(&mut self.chaos.has_dropped);
        if returns || self.chaos.does_dear(Kind::Images) {
            self.disturb_images(returns);
            control = core::mem::replace(&mut self.control, Control::Continue);
        }
        if self.chaos.does(Kind::Tiers) {
            // Host frames are dropped: the function continues in the interpreter.
            control = Control::Restart;
        }
        control
    }

    /// Drops all images of the running process, or restores them in other windows and with other
    /// functions; processes that run later follow.
    fn disturb_images(&mut self, returns: bool) {
        if !returns && self.chaos.random.once_in(4) {
            self.chaos.has_dropped = true;
            self.drop_translations();
            return;
        }
        // All processes renew their images, as if there were newer ones.
        self.translations.generation += 1;
        self.catch_up_translations();
    }
}

/// Changes a few pages of a program.
fn disturb_pages(memory: &mut AddressSpace, random: &mut Generator) {
    for _ in 0..1 + random.below(8) {
        let ranges = memory.vmas().overlapping(0..USER_END).count() as u64;
        if ranges == 0 {
            return;
        }
        let chosen = to_usize(random.below(ranges));
        let range = memory.vmas().overlapping(0..USER_END).nth(chosen);
        let Some(range) = range.map(|(start, vma)| start..vma.end) else {
            return;
        };
        // Pages near one end, where programs use their ranges, are chosen as often as all others.
        let pages = (range.end - range.start).div_ceil(PAGE_SIZE);
        let page = match random.below(3) {
            0 => random.below(pages.min(HUGE_PAGE_SIZE / PAGE_SIZE)),
            1 => pages - 1 - random.below(pages.min(HUGE_PAGE_SIZE / PAGE_SIZE)),
            _ => random.below(pages),
        };
        let page = range.start + page * PAGE_SIZE;
        // Without free RAM the page stays as it is.
        let _ = match random.below(3) {
            0 => memory.hide_page(page),
            1 => memory.protect_page(page),
            _ => memory.move_page(page),
        };
    }
}
