//! The life of a device's thread: while there is work, and for some time after, it watches the
//! rings, so that the guest need not ring; then it asks for the doorbell, looks once more, and
//! sleeps.

use super::{DeviceError, Guest};
use crate::lateness;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Shortest time for which the rings are watched, unless they are not at all.
const MIN_POLLING: Duration = Duration::from_micros(20);

/// What other threads tell the device's own.
#[derive(Debug)]
pub(crate) struct Bell {
    event: EventFd,
    stop: AtomicBool,
}

impl Bell {
    /// # Errors
    /// If the host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            stop: AtomicBool::new(false),
        })
    }

    /// Wakes the thread.
    pub fn ring(&self) {
        // Fails only if the counter is at its limit: then it is signalled already.
        let _: io::Result<()> = self.event.write(1);
    }

    /// Lets the thread end, or a new one begin.
    pub fn stop(&self, stop: bool) {
        self.stop.store(stop, Ordering::SeqCst);
        self.ring();
    }

    /// What is readable when it was rung.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Sleeps until it is rung, for `time` at most if that is given.
    pub fn wait(&self, time: Option<Duration>) {
        let mut poll = libc::pollfd {
            fd: self.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // Rounded up: not called too early again and again.
        let time = time.map_or(-1, |time| {
            i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
        });
        // SAFETY: one valid entry. Interrupted: who sleeps looks, and finds nothing.
        unsafe { libc::poll(&raw mut poll, 1, time) };
        if poll.revents != 0 {
            self.quiet();
        }
    }

    /// It was heard. To be called before the rings are looked at, so that a later ring is seen
    /// later.
    pub fn quiet(&self) {
        let _: io::Result<u64> = self.event.read();
    }
}

/// A device's thread, which runs while the device is active, and its bell.
#[derive(Debug)]
pub(crate) struct Thread<T> {
    bell: Arc<Bell>,
    handle: Option<JoinHandle<T>>,
}

impl<T> Thread<T> {
    /// None runs yet.
    ///
    /// # Errors
    /// If the host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            bell: Arc::new(Bell::new()?),
            handle: None,
        })
    }

    /// What other threads tell it.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Lets it end, and waits for that. Result: what it gives back, if it ran and did not panic.
    pub fn stop(&mut self) -> Option<T> {
        let handle = self.handle.take()?;
        self.bell.stop(true);
        handle.join().ok()
    }
}

impl<T: Send + 'static> Thread<T> {
    /// Starts it; one that ran has been stopped. Result: whether the host had a thread.
    pub fn start(&mut self, name: &str, run: impl FnOnce() -> T + Send + 'static) -> bool {
        self.bell.stop(false);
        let thread = thread::Builder::new().name(name.into());
        self.handle = thread.spawn(run).ok();
        self.handle.is_some()
    }
}

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a device's thread does.
pub(crate) trait Work {
    /// For whom it works.
    fn guest(&self) -> &dyn Guest;

    /// Does what there is to do. Result: whether there was anything.
    fn turn(&mut self) -> Result<bool, DeviceError>;

    /// There was nothing to do: the rings are watched.
    fn watches(&self);

    /// Asks for the doorbell, looks once more, and sleeps until it rings.
    fn sleep(&mut self) -> Result<(), DeviceError>;
}

/// Works until the thread is to end, or the guest breaks a ring. The rings are watched for
/// `longest` at most.
pub(crate) fn run(work: &mut impl Work, bell: &Bell, longest: Duration) -> Result<(), DeviceError> {
    let shortest = MIN_POLLING.min(longest);
    let mut budget = shortest;
    while !bell.stop.load(Ordering::SeqCst) {
        work.guest().set_watching(true);
        let result = work_on(work, bell, &mut budget, [shortest, longest]);
        work.guest().set_watching(false);
        result?;
        if !bell.stop.load(Ordering::SeqCst) {
            work.sleep()?;
        }
    }
    Ok(())
}

/// Works until nothing was there to do for `budget`, or the thread is to end.
fn work_on(
    work: &mut impl Work,
    bell: &Bell,
    budget: &mut Duration,
    [shortest, longest]: [Duration; 2],
) -> Result<(), DeviceError> {
    while !bell.stop.load(Ordering::SeqCst) {
        lateness::point();
        work.guest().watch();
        if work.turn()? {
            continue;
        }
        work.watches();
        if !watch(work, *budget)? {
            *budget = (*budget / 2).max(shortest);
            return Ok(());
        }
        *budget = (*budget * 2).min(longest);
    }
    Ok(())
}

/// Works if there is something to do within `time`. Result: whether there was.
fn watch(work: &mut impl Work, time: Duration) -> Result<bool, DeviceError> {
    let start = Instant::now();
    while start.elapsed() < time {
        thread::yield_now();
        work.guest().watch();
        if work.turn()? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Counts threads that watch, and how often they did.
    #[derive(Debug, Default)]
    struct Watched {
        watchers: AtomicU32,
        looks: AtomicU32,
    }

    impl Guest for Watched {
        fn interrupt(&self) {}

        fn set_watching(&self, watches: bool) {
            let before = match watches {
                true => self.watchers.fetch_add(1, Ordering::SeqCst),
                false => self.watchers.fetch_sub(1, Ordering::SeqCst),
            };
            assert_eq!(before, u32::from(!watches));
        }

        fn watch(&self) {
            assert_eq!(self.watchers.load(Ordering::SeqCst), 1);
            self.looks.fetch_add(1, Ordering::SeqCst);
        }

        fn fail(&self, _: DeviceError) {}
    }

    /// Has something to do a few times, sleeps, again, and ends.
    struct Few<'a> {
        guest: Watched,
        bell: &'a Bell,
        left: u32,
        turns: u32,
        sleeps: u32,
        /// The last turn fails.
        fails: bool,
    }

    impl Work for Few<'_> {
        fn guest(&self) -> &dyn Guest {
            &self.guest
        }

        fn turn(&mut self) -> Result<bool, DeviceError> {
            self.turns += 1;
            if self.fails && self.sleeps == 1 {
                return Err(DeviceError::Ring);
            }
            self.left = self.left.saturating_sub(1);
            Ok(self.left > 0)
        }

        fn watches(&self) {}

        fn sleep(&mut self) -> Result<(), DeviceError> {
            assert_eq!(self.guest.watchers.load(Ordering::SeqCst), 0);
            self.sleeps += 1;
            self.left = 4;
            self.bell.stop(self.sleeps == 2);
            Ok(())
        }
    }

    #[test]
    fn the_guest_knows_who_watches() {
        for (longest, fails) in [(0, false), (50, false), (50, true)] {
            let bell = Bell::new().unwrap();
            let mut few = Few {
                guest: Watched::default(),
                bell: &bell,
                left: 4,
                turns: 0,
                sleeps: 0,
                fails,
            };
            let result = run(&mut few, &bell, Duration::from_micros(longest));
            assert_eq!(result.is_err(), fails);
            assert_eq!(few.guest.watchers.load(Ordering::SeqCst), 0);
            assert_eq!(few.guest.looks.load(Ordering::SeqCst), few.turns);
            assert_eq!(few.sleeps, if fails { 1 } else { 2 });
            assert!(few.turns >= if fails { 5 } else { 8 });
        }
    }
}
