//! Counters of interpreted code, for the VMM to translate it ([`hartline_abi::hotness`]).

use crate::arch::host::Host;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use hartline_abi::hotness::{Hotness, SAMPLE, place, slot};

/// The counters of a program.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    table: NonNull<Hotness>,
}

impl Counters {
    /// Creates counters in `table`.
    ///
    /// # Safety
    /// `table` must stay mapped as long as the program runs.
    #[must_use]
    pub const unsafe fn new(table: NonNull<Hotness>) -> Counters {
        Counters { table }
    }

    /// The counters that the VMM of `host` reads.
    #[must_use]
    pub fn of(host: Host) -> Counters {
        // SAFETY: the table stays mapped, as `Host::hotness` says.
        unsafe { Counters::new(host.hotness()) }
    }

    /// Counts that execution reached `pc`, where there is no translation of `variant`.
    #[inline]
    pub fn count(&self, pc: u64, variant: u32) {
        self.count_times(pc, variant, 1);
    }

    /// Counts that execution was seen at `pc` by chance, in code that LLVM has not translated.
    pub fn count_sample(&self, pc: u64, variant: u32) {
        self.count_times(pc, variant, SAMPLE);
    }

    /// As [`count`](Self::count), for a number of times.
    #[inline]
    pub fn count_times(&self, pc: u64, variant: u32, times: u64) {
        let place = place(pc, variant);
        // SAFETY: mapped (`new`), and accessed as atomics only.
        let hot = unsafe { &(&(*self.table.as_ptr()).slots)[slot(place)] };
        // This hart is the only writer, so the addition need not be atomic.
        let count = hot.count.load(Ordering::Relaxed);
        let count = match hot.place.load(Ordering::Relaxed) == place {
            true => count + times,
            false if count <= times => {
                hot.place.store(place, Ordering::Relaxed);
                times
            }
            false => count - times,
        };
        hot.count.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn frequent_places_keep_their_slot() {
        // SAFETY: all-zero bytes are a valid table.
        let table = Box::leak(unsafe { Box::<Hotness>::new_zeroed().assume_init() });
        let at = |table: &Hotness, pc: u64| {
            let hot = &table.slots[slot(pc)];
            (
                hot.place.load(Ordering::Relaxed),
                hot.count.load(Ordering::Relaxed),
            )
        };
        let hot = 0x1_0000;
        let rival = (1..).map(|n| hot + 2 * n).find(|&pc| slot(pc) == slot(hot));
        let rival = rival.unwrap();
        // SAFETY: leaked.
        let counters = unsafe { Counters::new(NonNull::from(&*table)) };
        for _ in 0..10 {
            counters.count(hot, 0);
        }
        counters.count(rival, 0);
        assert_eq!(at(table, hot), (hot, 9));
        for _ in 0..20 {
            counters.count(rival, 0);
        }
        assert_eq!(at(table, rival), (rival, 12));
        // A sample takes the slot over.
        counters.count_sample(hot, 0);
        assert_eq!(at(table, hot), (hot, SAMPLE));
        // Another variant of the same code is another key.
        counters.count(hot, 1);
        assert_eq!(at(table, hot), (hot, SAMPLE));
        assert_eq!(at(table, hot | 1), (hot | 1, 1));
    }
}
