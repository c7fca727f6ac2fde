//! Times at which a computing guest is kicked: at ticks, and at the next timed event of the guest
//! ([`hartline_abi::boot::NextTime`]).

use crate::platform::{self, Mapping};
use hartline_abi::boot::{NextTime, Shared};
use rustix::thread::set_current_timer_slack;
use std::arch::x86_64::_rdtsc;
use std::mem::offset_of;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two ticks, ns.
const TICK: u64 = 10_000_000;
/// The guest sets a new time soon after an event. The VMM checks for it after this time, ns, so
/// that the guest need not exit to report it.
const SOON: u64 = 200_000;
/// The interval of further checks, for [`LATER`], ns: less than a millisecond, the shortest time
/// that programs tend to sleep.
const OFTEN: u64 = 400_000;
/// The time after an event for which the guest's time is checked [often](OFTEN), ns.
const LATER: u64 = 2 * TICK;

/// Binary digits of the fraction of a nanosecond.
const SHIFT: u32 = 60;
/// Lower limit for the frequency of the TSC, Hz: the length of its tick fits.
const LEAST_HZ: u64 = 100_000_000;

/// `CLOCK_MONOTONIC` of the guest, as the VMM reads it: never ahead of what the guest
/// reads, and behind by microseconds at most.
#[derive(Debug, Clone, Copy)]
pub struct GuestClock {
    /// TSC of the host, read just after the guest's TSC for the boot information.
    start: u64,
    /// Nanoseconds of a tick, times 2^[`SHIFT`].
    tick: u64,
    monotonic: u64,
}

impl GuestClock {
    /// Makes the clock, right after the boot information, which has `monotonic`, ns, for the time
    /// of the guest's TSC.
    #[must_use]
    pub fn new(hz: u64, monotonic: u64) -> Self {
        let tick = (1_000_000_000 << SHIFT) / u128::from(hz.max(LEAST_HZ));
        Self {
            start: tsc(),
            // Rounded down: it takes years to lag by a nanosecond. [`LEAST_HZ`] makes it fit.
            tick: u64::try_from(tick).unwrap_or(u64::MAX),
            monotonic,
        }
    }

    /// The time, ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.after(tsc().saturating_sub(self.start))
    }

    /// The time after `ticks` of the TSC.
    fn after(&self, ticks: u64) -> u64 {
        let passed = (u128::from(ticks) * u128::from(self.tick)) >> SHIFT;
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.monotonic.saturating_add(passed)
    }
}

fn tsc() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and it only reads the counter.
    unsafe { _rdtsc() }
}

/// Lets sleeps of the calling thread end on time, not up to 50 µs later. If the kernel refuses,
/// they end late.
pub(crate) fn sleep_precisely() {
    let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
}

/// The times at which the guest is kicked. One thread sleeps until they come. Threads of devices
/// that busy-poll their rings check the guest's time meanwhile, so that the sleeping thread need
/// not.
#[derive(Debug)]
pub struct Times {
    shared: Arc<Mapping>,
    clock: GuestClock,
    /// The guest's time that was served last.
    served: AtomicU64,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    next_tick: u64,
    /// Time of the sleeping thread's next check; `None`: it does not wake by itself.
    check: Option<u64>,
    /// Whether the guest is expected to set a time soon, and has not.
    soon: bool,
    /// End of the frequent checks for the guest's time.
    often: u64,
    /// Number of watching threads.
    watchers: u32,
    /// Whether a thread has watched all the time since the sleeping thread's last check.
    watched: bool,
}

impl Times {
    /// Times without a request.
    #[must_use]
    pub fn new(shared: Arc<Mapping>, clock: GuestClock) -> Self {
        let plan = Plan {
            soon: true,
            ..Plan::default()
        };
        Self {
            shared,
            clock,
            served: AtomicU64::new(u64::MAX),
            plan: Mutex::new(plan),
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, field: usize) -> Result<&AtomicU64, platform::Error> {
        let at = offset_of!(Shared, next_time) + field;
        self.shared.atomic_u64(at as u64)
    }

    fn next_check(&self) -> Result<&AtomicU64, platform::Error> {
        self.word(offset_of!(NextTime, next_check))
    }

    /// The guest's time, unless it was served.
    fn wanted(&self) -> Result<Option<u64>, platform::Error> {
        let at = self.word(offset_of!(NextTime, at))?.load(Ordering::SeqCst);
        Ok((at != self.served.load(Ordering::Relaxed)).then_some(at))
    }

    /// The time to sleep, which is reported to the guest; `None` if the guest does not tick: a
    /// thread that changes this wakes the sleeper.
    ///
    /// # Errors
    /// Only if the words are not in the shared pages: a bug of the VMM.
    pub fn until_next(&self, ticks: bool) -> Result<Option<Duration>, platform::Error> {
        let mut plan = self.plan();
        let soon = std::mem::replace(&mut plan.soon, !ticks);
        let is_watched = plan.watchers > 0;
        let was_watched = std::mem::replace(&mut plan.watched, is_watched);
        if !ticks {
            plan.check = None;
            self.next_check()?.store(0, Ordering::SeqCst);
            return Ok(None);
        }
        let now = self.clock.now();
        if plan.next_tick <= now || plan.next_tick - now > TICK {
            plan.next_tick = now + TICK;
        }
        let latest = match soon {
            _ if is_watched && was_watched => plan.next_tick,
            true => plan.next_tick.min(now + SOON),
            false if now < plan.often => plan.next_tick.min(now + OFTEN),
            false => plan.next_tick,
        };
        let check = match is_watched {
            true => latest,
            false => self.report(latest)?,
        };
        plan.check = Some(check);
        Ok(Some(Duration::from_nanos(check.saturating_sub(now))))
    }

    /// Reports to the guest the time of the next check: `latest`, or the guest's own time. Result:
    /// that time.
    fn report(&self, latest: u64) -> Result<u64, platform::Error> {
        let mut wanted = self.wanted()?;
        loop {
            let check = wanted.map_or(latest, |wanted| latest.min(wanted));
            self.next_check()?.store(check, Ordering::SeqCst);
            // The guest sets its time and then reads the VMM's: one of the two sees the other's.
            let again = self.wanted()?;
            if again == wanted {
                return Ok(check);
            }
            wanted = again;
        }
    }

    /// Whether the guest must be kicked now, after a sleep.
    ///
    /// # Errors
    /// As [`until_next`](Self::until_next).
    pub fn is_due(&self) -> Result<bool, platform::Error> {
        let now = self.clock.now();
        let time_came = self.take(now)?;
        Ok(time_came || self.plan().next_tick <= now)
    }

    /// Marks the guest's time as served, if it has come.
    fn take(&self, now: u64) -> Result<bool, platform::Error> {
        let Some(at) = self.wanted()?.filter(|at| *at <= now) else {
            return Ok(false);
        };
        self.served.store(at, Ordering::Relaxed);
        let mut plan = self.plan();
        plan.soon = true;
        plan.often = now + LATER;
        Ok(true)
    }

    /// Begins watching: the calling thread will call [`watch`](Self::watch) continuously.
    ///
    /// # Errors
    /// As [`until_next`](Self::until_next).
    pub fn begin_watching(&self) -> Result<(), platform::Error> {
        let mut plan = self.plan();
        plan.watchers += 1;
        // The guest need not report a new time.
        self.next_check()?.store(0, Ordering::SeqCst);
        Ok(())
    }

    /// Whether the guest must be kicked now, because its time has come.
    ///
    /// # Errors
    /// As [`until_next`](Self::until_next).
    pub fn watch(&self) -> Result<bool, platform::Error> {
        self.take(self.clock.now())
    }

    /// Ends the calling thread's watching. Result: whether the sleeping thread must check earlier
    /// than planned.
    ///
    /// # Errors
    /// As [`until_next`](Self::until_next).
    pub fn end_watching(&self) -> Result<bool, platform::Error> {
        let mut plan = self.plan();
        plan.watchers = plan.watchers.saturating_sub(1);
        if plan.watchers > 0 {
            return Ok(false);
        }
        plan.watched = false;
        match plan.check {
            None => Ok(false),
            Some(check) => Ok(self.report(check)? < check),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> Times {
        let shared = Arc::new(Mapping::anonymous("shared", 4 << 20).unwrap());
        Times::new(shared, GuestClock::new(1_000_000_000, 5))
    }

    fn set(times: &Times, at: u64) {
        let word = times.word(offset_of!(NextTime, at)).unwrap();
        word.store(at, Ordering::SeqCst);
    }

    fn reported(times: &Times) -> u64 {
        times.next_check().unwrap().load(Ordering::SeqCst)
    }

    fn sleep(times: &Times) -> Duration {
        times.until_next(true).unwrap().unwrap()
    }

    #[test]
    fn the_clock_is_never_ahead() {
        let hz = 2_893_202_000;
        let clock = GuestClock::new(hz, 7);
        for ticks in [0, 1, 2, hz, hz * 86_400 * 365] {
            let passed = u128::from(ticks) * 1_000_000_000 / u128::from(hz);
            let right = 7 + u64::try_from(passed).unwrap();
            assert!((right - 1..=right).contains(&clock.after(ticks)), "{ticks}");
        }
    }

    #[test]
    fn the_guest_is_told_how_long_the_sleep_is() {
        let times = times();
        assert_eq!(times.until_next(false).unwrap(), None);
        assert_eq!(reported(&times), 0);
        set(&times, u64::MAX);
        // Just back from a longer sleep, then up to a tick.
        let first = sleep(&times);
        assert!(first <= Duration::from_nanos(SOON), "{first:?}");
        let second = sleep(&times);
        assert!(second > Duration::from_nanos(SOON), "{second:?}");
        assert!(second <= Duration::from_nanos(TICK), "{second:?}");
        assert_eq!(reported(&times), times.plan().next_tick);
    }

    #[test]
    fn a_time_is_served_once_and_the_next_one_looked_for_soon() {
        let times = times();
        sleep(&times);
        sleep(&times);
        set(&times, times.clock.now() - 1);
        assert_eq!(sleep(&times), Duration::ZERO);
        assert!(times.is_due().unwrap());
        assert!(!times.is_due().unwrap());
        let soon = sleep(&times);
        assert!(soon <= Duration::from_nanos(SOON), "{soon:?}");
        assert_ne!(soon, Duration::ZERO);
        for _ in 0..4 {
            let often = sleep(&times);
            assert!(often <= Duration::from_nanos(OFTEN), "{often:?}");
        }
    }

    #[test]
    fn who_watches_lets_the_other_thread_sleep() {
        let times = times();
        set(&times, u64::MAX);
        times.begin_watching().unwrap();
        times.begin_watching().unwrap();
        assert!(
            sleep(&times) <= Duration::from_nanos(SOON),
            "not watched before"
        );
        assert_eq!(reported(&times), 0, "the guest need not report");
        let at = times.clock.now() + 1_000_000;
        set(&times, at);
        // Up to the next tick.
        assert!(sleep(&times) > Duration::from_nanos(TICK / 2));
        assert!(!times.watch().unwrap());
        assert!(!times.end_watching().unwrap(), "there is another one");
        assert_eq!(reported(&times), 0);
        assert!(
            times.end_watching().unwrap(),
            "the other thread sleeps too long"
        );
        assert_eq!(reported(&times), at);
        assert!(sleep(&times) <= Duration::from_nanos(1_000_000));
    }

    #[test]
    fn who_watches_takes_the_time() {
        let times = times();
        times.begin_watching().unwrap();
        sleep(&times);
        set(&times, times.clock.now());
        assert!(times.watch().unwrap());
        assert!(!times.watch().unwrap());
        assert!(!times.is_due().unwrap());
        let check = times.plan().check.unwrap();
        assert!(!times.end_watching().unwrap(), "nothing else comes");
        assert_eq!(reported(&times), check);
        // The guest sets its next time soon, and no thread watches for it now.
        assert!(sleep(&times) <= Duration::from_nanos(SOON));
    }

    #[test]
    fn nobody_looks_while_the_guest_waits() {
        let times = times();
        times.begin_watching().unwrap();
        set(&times, 1);
        assert_eq!(times.until_next(false).unwrap(), None);
        assert!(!times.end_watching().unwrap());
        assert_eq!(reported(&times), 0);
    }
}
