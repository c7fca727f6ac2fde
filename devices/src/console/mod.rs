//! The console: a thread that writes what the guest put into the output ring
//! ([`hartline_abi::console`]) to the descriptors of the VMM, in order.

mod output;
mod ring;
#[cfg(test)]
mod tests;

pub use ring::{Ring, RingError};

use output::Output;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bounds of the time for which the thread watches an empty ring before it sleeps.
const MIN_SPIN: Duration = Duration::from_micros(5);
const MAX_SPIN: Duration = Duration::from_micros(200);

/// The console of one VM. [`Console::serve`] runs on a thread of its own.
#[derive(Debug, Default)]
pub struct Console {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The doorbell rang since the thread last looked.
    rung: bool,
    /// Everything in the ring when this was last counted up is to be written out
    /// and `flushed` set to the same number.
    flush_requests: u64,
    flushed: u64,
    /// The thread is to write out what is left and end.
    stop: bool,
    ended: Option<Result<(), RingError>>,
}

impl Console {
    /// The guest rang [`hartline_abi::port::CONSOLE`].
    pub fn ring_doorbell(&self) {
        self.lock().rung = true;
        self.changed.notify_all();
    }

    /// Writes out the ring until [`Console::finish`]; `descriptors` are those for the
    /// guest's descriptors 1 and 2, and that for its traces. Each gets `limit` bytes at most,
    /// and takes nothing more then.
    ///
    /// # Errors
    /// [`RingError`] if the guest broke the ring: its VM is to be ended.
    pub fn serve(
        &self,
        ring: Ring,
        descriptors: [OwnedFd; 3],
        limit: u64,
    ) -> Result<(), RingError> {
        let ending = Ending(self);
        let result = self.run(ring, Output::new(descriptors, limit));
        self.lock().ended = Some(result);
        drop(ending);
        result
    }

    /// Waits until everything that the guest has published so far is written out.
    /// `give_up` is asked now and then whether to go on waiting.
    ///
    /// # Errors
    /// [`RingError`] if the guest broke the ring.
    pub fn flush(&self, give_up: &dyn Fn() -> bool) -> Result<(), RingError> {
        let mut state = self.lock();
        state.flush_requests += 1;
        let mine = state.flush_requests;
        self.changed.notify_all();
        loop {
            if let Some(result) = state.ended {
                return result;
            }
            if state.flushed >= mine || give_up() {
                return Ok(());
            }
            state = self.wait(state, Duration::from_millis(50));
        }
    }

    /// Lets the thread write out what is left and end, for at most `patience`
    /// (`None`: as long as it takes). The guest no longer runs.
    ///
    /// # Errors
    /// [`RingError`] if the guest broke the ring.
    pub fn finish(&self, patience: Option<Duration>) -> Result<(), RingError> {
        let deadline = patience.map(|p| Instant::now() + p);
        let mut state = self.lock();
        state.stop = true;
        self.changed.notify_all();
        loop {
            if let Some(result) = state.ended {
                return result;
            }
            let left = match deadline {
                None => Duration::from_secs(3600),
                Some(at) => at.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                return Ok(());
            }
            state = self.wait(state, left);
        }
    }

    fn run(&self, mut ring: Ring, mut output: Output) -> Result<(), RingError> {
        let mut spin = MIN_SPIN;
        loop {
            // Requests that came before the ring is read are fulfilled by reading it.
            let (requests, stop) = {
                let state = self.lock();
                (state.flush_requests, state.stop)
            };
            while let Some(batch) = ring.next_batch()? {
                ring.mark_broken(output.write(&batch));
                ring.release(&batch);
            }
            self.flushed(requests);
            if stop {
                return Ok(());
            }
            if watch(&ring, spin) {
                spin = (spin * 2).min(MAX_SPIN);
            } else {
                spin = (spin / 2).max(MIN_SPIN);
                self.sleep(&ring, requests);
            }
        }
    }

    fn flushed(&self, requests: u64) {
        let mut state = self.lock();
        if state.flushed != requests {
            state.flushed = requests;
            self.changed.notify_all();
        }
    }

    /// Sleeps until the doorbell rings, unless something came meanwhile or there
    /// are newer requests.
    fn sleep(&self, ring: &Ring, requests: u64) {
        let mut state = self.lock();
        state.rung = false;
        if ring.announce_sleep() {
            while !state.rung && !state.stop && state.flush_requests == requests {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        ring.awake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let result = self.changed.wait_timeout(state, time);
        result.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Tells who waits that the thread ended, also in a panic.
struct Ending<'a>(&'a Console);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().ended.get_or_insert(Ok(()));
        self.0.changed.notify_all();
    }
}

/// Watches the ring for up to `time`. Result: whether something came.
fn watch(ring: &Ring, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if ring.has_more() {
            return true;
        }
        thread::yield_now();
    }
    ring.has_more()
}
