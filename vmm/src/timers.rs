//! When a guest that computes is to be asked for attention: at ticks, and when the next
//! thing happens in it by itself ([`hartline_abi::boot::NextTime`]).

use crate::platform::{self, Mapping};
use hartline_abi::boot::{NextTime, Shared};
use std::arch::x86_64::_rdtsc;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two ticks, ns.
const TICK: u64 = 10_000_000;
/// After something has happened the guest sets a new time soon: that is looked for after
/// this time, ns, so that the guest need not leave the VM to tell it.
const SOON: u64 = 200_000;
/// The same from then on, for [`LATER`]: less than a millisecond, the shortest time that
/// programs tend to sleep.
const OFTEN: u64 = 400_000;
/// How long after something has happened the guest's time is looked for [often](OFTEN), ns.
const LATER: u64 = 2 * TICK;

/// `CLOCK_MONOTONIC` of the guest, as the VMM reads it: never ahead of what the guest
/// reads, and behind by microseconds at most.
#[derive(Debug, Clone, Copy)]
pub struct GuestClock {
    /// TSC of the host, just after the guest's was read for the boot information.
    start: u64,
    hz: u64,
    monotonic: u64,
}

impl GuestClock {
    /// To be made right after the boot information, which has `monotonic`, ns, for the time
    /// of the guest's TSC.
    #[must_use]
    pub fn new(hz: u64, monotonic: u64) -> Self {
        Self {
            start: tsc(),
            hz: hz.max(1),
            monotonic,
        }
    }

    /// Nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        let ticks = tsc().saturating_sub(self.start);
        let passed = u128::from(ticks) * 1_000_000_000 / u128::from(self.hz);
        self.monotonic.saturating_add(passed as u64)
    }
}

fn tsc() -> u64 {
    // SAFETY: the instruction only reads the counter.
    unsafe { _rdtsc() }
}

/// Lets sleeps of the calling thread end when they should, not up to 50 µs later. If the
/// kernel refuses, they do not.
pub(crate) fn sleep_precisely() {
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// The times at which the guest is asked for attention.
#[derive(Debug)]
pub struct Times {
    shared: Arc<Mapping>,
    clock: GuestClock,
    next_tick: u64,
    /// The guest's time for which attention was asked last.
    served: u64,
    /// The guest may be about to set a new one.
    soon: bool,
    /// Until when it is looked for often.
    often: u64,
}

impl Times {
    /// Nothing was asked for yet.
    #[must_use]
    pub fn new(shared: Arc<Mapping>, clock: GuestClock) -> Self {
        Self {
            shared,
            clock,
            next_tick: 0,
            served: u64::MAX,
            soon: true,
            often: 0,
        }
    }

    fn word(&self, field: usize) -> Result<&AtomicU64, platform::Error> {
        let at = offset_of!(Shared, next_time) + field;
        self.shared.atomic_u64(at as u64)
    }

    /// How long to sleep, which the guest is told. No limit if it does not tick: whoever
    /// changes that rouses the sleeper.
    ///
    /// # Errors
    /// Only if the words are not in the shared pages: a mistake of the VMM.
    pub fn until_next(&mut self, ticks: bool) -> Result<Option<Duration>, platform::Error> {
        let served = self.served;
        let soon = std::mem::replace(&mut self.soon, !ticks);
        if !ticks {
            self.word(offset_of!(NextTime, looks))?
                .store(0, Ordering::SeqCst);
            return Ok(None);
        }
        let now = self.clock.now();
        if self.next_tick <= now || self.next_tick - now > TICK {
            self.next_tick = now + TICK;
        }
        let latest = match soon {
            true => self.next_tick.min(now + SOON),
            false if now < self.often => self.next_tick.min(now + OFTEN),
            false => self.next_tick,
        };
        let looks = self.word(offset_of!(NextTime, looks))?;
        let at = self.word(offset_of!(NextTime, at))?;
        let mut seen = at.load(Ordering::SeqCst);
        loop {
            let wanted = if seen == served { u64::MAX } else { seen };
            let look = latest.min(wanted);
            looks.store(look, Ordering::SeqCst);
            // The guest sets its time and then reads ours: one of the two sees the other.
            let again = at.load(Ordering::SeqCst);
            if again == seen {
                return Ok(Some(Duration::from_nanos(look.saturating_sub(now))));
            }
            seen = again;
        }
    }

    /// Whether the guest is to be asked now, after a sleep.
    ///
    /// # Errors
    /// As [`until_next`](Self::until_next).
    pub fn is_due(&mut self) -> Result<bool, platform::Error> {
        let now = self.clock.now();
        let at = self.word(offset_of!(NextTime, at))?.load(Ordering::SeqCst);
        let time_came = at <= now && at != self.served;
        if time_came {
            self.served = at;
            self.soon = true;
            self.often = now + LATER;
        }
        let tick = self.next_tick <= now;
        Ok(time_came || tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> Times {
        let shared = Arc::new(Mapping::anonymous("shared", 4 << 20).unwrap());
        Times::new(shared, GuestClock::new(1_000_000_000, 5))
    }

    fn set(times: &Times, field: usize, value: u64) {
        times.word(field).unwrap().store(value, Ordering::SeqCst);
    }

    #[test]
    fn the_guest_is_told_how_long_the_sleep_is() {
        let mut times = times();
        let looks = offset_of!(NextTime, looks);
        assert_eq!(times.until_next(false).unwrap(), None);
        assert_eq!(times.word(looks).unwrap().load(Ordering::SeqCst), 0);
        set(&times, offset_of!(NextTime, at), u64::MAX);
        // Just back from a longer sleep, then up to a tick.
        let first = times.until_next(true).unwrap().unwrap();
        assert!(first <= Duration::from_nanos(SOON), "{first:?}");
        let second = times.until_next(true).unwrap().unwrap();
        assert!(second > Duration::from_nanos(SOON), "{second:?}");
        assert!(second <= Duration::from_nanos(TICK), "{second:?}");
        let told = times.word(looks).unwrap().load(Ordering::SeqCst);
        assert_eq!(told, times.next_tick);
    }

    #[test]
    fn a_time_is_served_once_and_the_next_one_looked_for_soon() {
        let mut times = times();
        times.until_next(true).unwrap();
        times.until_next(true).unwrap();
        let at = offset_of!(NextTime, at);
        set(&times, at, times.clock.now() - 1);
        assert_eq!(times.until_next(true).unwrap(), Some(Duration::ZERO));
        assert!(times.is_due().unwrap());
        assert!(!times.is_due().unwrap());
        let soon = times.until_next(true).unwrap().unwrap();
        assert!(soon <= Duration::from_nanos(SOON), "{soon:?}");
        assert_ne!(soon, Duration::ZERO);
        for _ in 0..4 {
            let often = times.until_next(true).unwrap().unwrap();
            assert!(often <= Duration::from_nanos(OFTEN), "{often:?}");
        }
    }
}
