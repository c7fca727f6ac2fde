//! The interpreter's work in code that programs made: which code is worth a translation.
//!
//! Work is counted per region of [`LONGEST`](super::LONGEST) bytes, because a translation from an address
//! in a region covers about as much. Each translation is preceded by as much work as it takes itself.
//! So a program is at most twice as slow as with the best choice between both, also if it makes many
//! functions that run few times.

use super::LONGEST;
use crate::convert::{low_u32, to_usize};
use alloc::boxed::Box;

/// Work of a translation, in interpreted instructions.
const TRANSLATION: u32 = 3000;
/// Work of an arrival at an address without a translation, besides its instructions: look-ups, and
/// often the way from and to translated code.
const ARRIVAL: u64 = 10;
/// Most instructions between two arrivals that count: some of them may be elsewhere.
pub(crate) const MOST: u64 = 256;
/// Number of addresses, and of regions, that are counted at once.
const COUNTERS: usize = 1 << 12;

/// The last arrival at an address.
#[derive(Debug, Clone, Copy, Default)]
struct Arrival {
    pc: u64,
    /// The fence before it.
    fence: u32,
}

/// The work in a region since the last translation there.
#[derive(Debug, Clone, Copy, Default)]
struct Region {
    number: u64,
    work: u32,
}

/// The work in all regions.
#[derive(Debug)]
pub(super) struct Heat {
    arrivals: Box<[Arrival; COUNTERS]>,
    regions: Box<[Region; COUNTERS]>,
    /// The region of the last arrival.
    last: u64,
}

impl Default for Heat {
    fn default() -> Self {
        Self {
            arrivals: Box::new([Arrival::default(); COUNTERS]),
            regions: Box::new([Region::default(); COUNTERS]),
            last: 0,
        }
    }
}

impl Heat {
    /// Counts that execution came to `pc`, where there is no translation, after `work` more interpreted
    /// instructions on its vCPU, and after `fence` fences. Returns whether to look for a translation: at the first time,
    /// at the first time after a fence, and when the region is hot.
    #[inline]
    pub fn arrive(&mut self, pc: u64, work: u64, fence: u32) -> bool {
        let work = work.min(MOST) + ARRIVAL;
        let last = core::mem::replace(&mut self.last, number(pc));
        let region = &mut self.regions[to_usize(last) % COUNTERS];
        if region.number != last {
            *region = Region {
                number: last,
                work: 0,
            };
        }
        region.work = region.work.saturating_add(low_u32(work));
        let arrival = &mut self.arrivals[to_usize(pc >> 1) % COUNTERS];
        let is_first = arrival.pc != pc || arrival.fence != fence;
        *arrival = Arrival { pc, fence };
        is_first || self.is_hot(pc)
    }

    fn is_hot(&self, pc: u64) -> bool {
        let region = self.regions[to_usize(number(pc)) % COUNTERS];
        region.number == number(pc) && region.work >= TRANSLATION
    }

    /// Whether the code at `pc` is worth a translation. If it is, the work begins at 0 again.
    pub fn take(&mut self, pc: u64) -> bool {
        let is_hot = self.is_hot(pc);
        if is_hot {
            self.regions[to_usize(number(pc)) % COUNTERS].work = 0;
        }
        is_hot
    }
}

/// The region of an address.
fn number(pc: u64) -> u64 {
    pc / LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comes `times` times to `pc`, and executes `length` instructions each time. Returns how often a
    /// translation was looked for.
    fn run(heat: &mut Heat, pc: u64, times: usize, length: u64) -> usize {
        (0..times).filter(|_| heat.arrive(pc, length, 0)).count()
    }

    #[test]
    fn code_is_looked_for_at_first_and_after_fences() {
        let mut heat = Heat::default();
        for fence in 0..3 {
            assert!(heat.arrive(0x1000, 0, fence));
            assert!(!heat.arrive(0x1000, 0, fence));
        }
        // Another address in the same counter.
        assert!(heat.arrive(0x1000 + 2 * COUNTERS as u64, 0, 2));
        assert!(heat.arrive(0x1000, 0, 2));
    }

    #[test]
    fn the_sooner_the_longer_it_runs() {
        for (length, most) in [(0, 300), (90, 30), (10_000, 12)] {
            let mut heat = Heat::default();
            assert_eq!(run(&mut heat, 0x1000, most, length), 1);
            assert!(!heat.take(0x1000));
            assert_eq!(run(&mut heat, 0x1000, 1, length), 1);
            assert!(heat.take(0x1000), "{length}");
            assert!(!heat.take(0x1000));
        }
    }

    #[test]
    fn work_counts_in_the_region_in_which_it_was() {
        let mut heat = Heat::default();
        // 200 instructions at each arrival at 0x1000, none in the next region.
        for _ in 0..20 {
            heat.arrive(0x1000, 0, 0);
            heat.arrive(0x1000 + LONGEST, 200, 0);
        }
        assert!(!heat.take(0x1000 + LONGEST));
        // All addresses of a region are hot.
        assert!(heat.take(0x1000 + LONGEST - 2));
        // A region with the same counter.
        let far = 0x1000 + LONGEST * COUNTERS as u64;
        run(&mut heat, far, 13, 1000);
        assert!(heat.take(far));
        run(&mut heat, 0x1000, 5, 0);
        assert!(!heat.take(far) && !heat.take(0x1000));
    }
}
