//! The loop of a device's thread. While there is work, and for some time after, the thread
//! busy-polls the rings, so that the driver need not kick it. Then it enables notifications,
//! processes the rings once more, and sleeps.

use super::kick::Kick;
use super::{DeviceError, Guest};
use crate::lateness;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest time of a busy-poll, unless the longest is shorter.
const MIN_POLLING: Duration = Duration::from_micros(20);

/// A device's thread, which runs while the device is active, and its kick.
#[derive(Debug)]
pub(crate) struct WorkerThread<T> {
    kick: Arc<Kick>,
    handle: Option<JoinHandle<T>>,
}

impl<T> WorkerThread<T> {
    /// A thread that does not run yet.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            kick: Arc::new(Kick::new()?),
            handle: None,
        })
    }

    /// The kick that wakes the thread.
    pub fn kick(&self) -> &Arc<Kick> {
        &self.kick
    }

    /// Ends the thread and waits for its end. Returns the thread's result, if it ran and did not
    /// panic.
    pub fn stop(&mut self) -> Option<T> {
        let handle = self.handle.take()?;
        self.kick.set_stop(true);
        handle.join().ok()
    }
}

impl<T: Send + 'static> WorkerThread<T> {
    /// Starts the thread. An earlier one was stopped before.
    ///
    /// # Errors
    /// The host has no thread left.
    pub fn start(
        &mut self,
        name: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<()> {
        self.kick.set_stop(false);
        let thread = thread::Builder::new().name(name.into());
        self.handle = Some(thread.spawn(run)?);
        Ok(())
    }
}

impl<T> Drop for WorkerThread<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The work of a device's thread.
pub(crate) trait Work {
    /// The guest of the device that this worker serves.
    fn guest(&self) -> &dyn Guest;

    /// Processes the rings and the backend once. Returns whether there was work.
    fn process(&mut self) -> Result<bool, DeviceError>;

    /// Counts a busy-poll, which begins now because there was no work.
    fn count_poll(&self);

    /// Enables notifications, checks the rings once more, and sleeps until a kick.
    fn sleep(&mut self) -> Result<(), DeviceError>;
}

/// Works until the kick ends the thread, or the guest breaks a ring. A busy-poll takes `longest`
/// at most.
pub(crate) fn run(work: &mut impl Work, kick: &Kick, longest: Duration) -> Result<(), DeviceError> {
    let shortest = MIN_POLLING.min(longest);
    let mut budget = shortest;
    while !kick.is_stopped() {
        work.guest().set_polling(true);
        let result = process_until_idle(work, kick, &mut budget, [shortest, longest]);
        work.guest().set_polling(false);
        result?;
        if !kick.is_stopped() {
            work.sleep()?;
        }
    }
    Ok(())
}

/// Works until a busy-poll of `budget` finds nothing, or the thread is to end. The budget doubles
/// with each busy-poll that finds work and halves otherwise.
fn process_until_idle(
    work: &mut impl Work,
    kick: &Kick,
    budget: &mut Duration,
    [shortest, longest]: [Duration; 2],
) -> Result<(), DeviceError> {
    while !kick.is_stopped() {
        lateness::point();
        work.guest().poll();
        if work.process()? {
            continue;
        }
        work.count_poll();
        if !busy_poll(work, *budget)? {
            *budget = (*budget / 2).max(shortest);
            return Ok(());
        }
        *budget = (*budget * 2).min(longest);
    }
    Ok(())
}

/// Polls for work for up to `time`. Returns whether there was work.
fn busy_poll(work: &mut impl Work, time: Duration) -> Result<bool, DeviceError> {
    let start = Instant::now();
    while start.elapsed() < time {
        thread::yield_now();
        work.guest().poll();
        if work.process()? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts the threads that poll, and their polls.
    #[derive(Debug, Default)]
    struct PolledGuest {
        pollers: AtomicU32,
        polls: AtomicU32,
    }

    impl Guest for PolledGuest {
        fn interrupt(&self) {}

        fn set_polling(&self, is_polling: bool) {
            let before = match is_polling {
                true => self.pollers.fetch_add(1, Ordering::SeqCst),
                false => self.pollers.fetch_sub(1, Ordering::SeqCst),
            };
            assert_eq!(before, u32::from(!is_polling));
        }

        fn poll(&self) {
            assert_eq!(self.pollers.load(Ordering::SeqCst), 1);
            self.polls.fetch_add(1, Ordering::SeqCst);
        }

        fn fail(&self, _: DeviceError) {}
    }

    /// Has work a few times, sleeps, has work again, and ends.
    struct Few<'a> {
        guest: PolledGuest,
        kick: &'a Kick,
        left: u32,
        calls: u32,
        sleeps: u32,
        /// The work after the first sleep fails.
        fails: bool,
    }

    impl Work for Few<'_> {
        fn guest(&self) -> &dyn Guest {
            &self.guest
        }

        fn process(&mut self) -> Result<bool, DeviceError> {
            self.calls += 1;
            if self.fails && self.sleeps == 1 {
                return Err(DeviceError::Ring);
            }
            self.left = self.left.saturating_sub(1);
            Ok(self.left > 0)
        }

        fn count_poll(&self) {}

        fn sleep(&mut self) -> Result<(), DeviceError> {
            assert_eq!(self.guest.pollers.load(Ordering::SeqCst), 0);
            self.sleeps += 1;
            self.left = 4;
            self.kick.set_stop(self.sleeps == 2);
            Ok(())
        }
    }

    #[test]
    fn the_guest_knows_which_threads_poll() {
        for (longest, fails) in [(0, false), (50, false), (50, true)] {
            let kick = Kick::new().unwrap();
            let mut few = Few {
                guest: PolledGuest::default(),
                kick: &kick,
                left: 4,
                calls: 0,
                sleeps: 0,
                fails,
            };
            let result = run(&mut few, &kick, Duration::from_micros(longest));
            assert_eq!(result.is_err(), fails);
            assert_eq!(few.guest.pollers.load(Ordering::SeqCst), 0);
            assert_eq!(few.guest.polls.load(Ordering::SeqCst), few.calls);
            assert_eq!(few.sleeps, if fails { 1 } else { 2 });
            assert!(few.calls >= if fails { 5 } else { 8 });
        }
    }
}
