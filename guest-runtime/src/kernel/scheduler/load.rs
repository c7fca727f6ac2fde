//! Load averages: the number of runnable tasks, averaged over 1, 5 and 15 minutes, sampled every 5
//! seconds as on Linux.

use crate::arch::clock::SECOND;
use crate::file::proc_text::FRACTION;
use crate::kernel::Kernel;

/// The value 1 as an average.
const ONE: u64 = 1 << FRACTION;
/// Decay of an average in a period: e to the power of -5/60, -5/300 and -5/900.
const DECAY: [u64; 3] = [1884, 2014, 2037];
/// Time between two samples, ns.
const PERIOD: u64 = 5 * SECOND;
/// After this many periods the old averages have decayed to nothing.
const MOST: u64 = 10_000;

/// The load averages.
#[derive(Debug, Default)]
pub struct LoadAverage {
    /// Time of the next sample, ns of `CLOCK_MONOTONIC`; 0: never sampled.
    next: u64,
    /// Averages over 1, 5 and 15 minutes, with [`FRACTION`] fraction bits.
    pub averages: [u64; 3],
}

impl LoadAverage {
    /// Whether a sample is due.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.next
    }

    /// Adds the samples up to `now`, with `active` runnable tasks.
    pub fn update(&mut self, now: u64, active: u64) {
        if self.next == 0 {
            self.next = now + PERIOD;
            return;
        }
        if !self.is_due(now) {
            return;
        }
        let periods = (now - self.next) / PERIOD + 1;
        self.next += periods * PERIOD;
        let active = active * ONE;
        for (average, decay) in self.averages.iter_mut().zip(DECAY) {
            for _ in 0..periods.min(MOST) {
                // A growing average rounds up, because it would not reach its limit otherwise.
                let round = if active >= *average { ONE - 1 } else { 0 };
                *average = (*average * decay + active * (ONE - decay) + round) / ONE;
            }
        }
    }
}

impl Kernel {
    /// Samples the load, if it is due.
    #[inline]
    pub(crate) fn sample_load(&mut self, now: u64) {
        if self.scheduler.load.is_due(now) {
            let active = self.runnable_tasks();
            self.scheduler.load.update(now, active);
        }
    }

    /// Number of runnable tasks, including running ones.
    fn runnable_tasks(&self) -> u64 {
        self.tasks().filter(|task| task.wait.is_none()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_go_where_the_load_is_at_their_own_speed() {
        let mut load = LoadAverage::default();
        load.update(1, 2);
        assert_eq!(load.averages, [0; 3]);
        load.update(1 + PERIOD - 1, 2);
        assert_eq!(load.averages, [0; 3]);
        for n in 1..=12 {
            load.update(1 + n * PERIOD, 2);
        }
        // After one minute the first average is 2 (1 - 1/e).
        let [one, five, fifteen] = load.averages.map(|average| average * 100 / ONE);
        assert!(
            (124..=128).contains(&one) && (35..=37).contains(&five),
            "{one} {five}"
        );
        assert!((12..=14).contains(&fifteen), "{fifteen}");
        load.update(1 + 100_000 * PERIOD, 2);
        assert_eq!(load.averages, [2 * ONE; 3]);
        load.update(1 + 200_000 * PERIOD, 0);
        assert_eq!(load.averages, [0; 3]);
    }
}
