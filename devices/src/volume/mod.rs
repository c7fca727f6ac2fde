//! Volumes: a thread that does what the guest asks for ([`hartline_abi::volume`]) with the
//! files of the host that it was given, and others for what takes long.

mod channel;
mod copies;
pub mod cost;
mod depth;
mod host;
#[cfg(test)]
mod limit_tests;
mod names;
mod nodes;
mod server;
#[cfg(test)]
mod tests;
pub mod tree;
mod usage;
mod waiting;

pub use channel::Channel;
pub use copies::{Copies, FileCopy};
pub use host::use_descriptors;
pub use server::{Server, Volume};
pub use usage::{Space, Usage, measure};

use crate::virtio::Guest;
use hartline_abi::volume::VOLUME_PLACES;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use waiting::Helpers;

/// Bounds of the time for which the thread watches the channel before it sleeps.
const MIN_SPIN: Duration = Duration::from_micros(50);
const MAX_SPIN: Duration = Duration::from_micros(200);
/// How often who waits for an answer looks whether to give up.
const LOOK: Duration = Duration::from_millis(50);

/// The volumes of one VM. [`Volumes::serve`] runs on a thread of its own.
#[derive(Debug, Default)]
pub struct Volumes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The doorbell rang since the thread last looked.
    rung: bool,
    /// The thread is to end.
    stop: bool,
    ended: bool,
}

impl Volumes {
    /// The guest rang [`hartline_abi::port::VOLUME`].
    pub fn ring_doorbell(&self) {
        self.lock().rung = true;
        self.changed.notify_all();
    }

    /// Waits until the request in the channel is answered, if there is one. `is_submitted`
    /// and `give_up` are asked whether it is not yet, and whether to go on waiting. Result:
    /// whether somebody is there to answer.
    #[must_use]
    pub fn wait(&self, is_submitted: &dyn Fn() -> bool, give_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.lock();
        while is_submitted() && !state.ended && !give_up() {
            let result = self.changed.wait_timeout(state, LOOK);
            state = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        !(state.ended && is_submitted())
    }

    /// Lets the thread end after the request that it is serving.
    pub fn finish(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Serves the channel until [`Volumes::finish`]. `guest` is told of answers that it waits
    /// for. `count` is called for each request.
    pub fn serve(
        &self,
        channel: &Channel,
        mut server: Server,
        guest: &Arc<dyn Guest>,
        count: &dyn Fn(),
    ) {
        // The guest's umask is in its requests. This thread's own would add to it; the
        // other threads keep theirs.
        // SAFETY: no memory is involved.
        unsafe {
            if libc::unshare(libc::CLONE_FS) == 0 {
                libc::umask(0);
            }
        }
        let _ending = Ending(self);
        let mut helpers = Helpers::new(channel, guest);
        let mut spin = MIN_SPIN;
        while !self.lock().stop {
            self.serve_first(channel, &mut server, count);
            for number in 1..VOLUME_PLACES {
                if helpers.is_new(number) {
                    count();
                    let place = channel.place(number);
                    match server.begin(&place.request(), place.data()) {
                        Ok(result) => waiting::answer(channel, place, result, &**guest),
                        Err(work) => helpers.give(number, work),
                    }
                }
            }
            if watch(&helpers, spin) {
                spin = (spin * 2).min(MAX_SPIN);
            } else {
                spin = (spin / 2).max(MIN_SPIN);
                self.sleep(channel, &helpers);
            }
        }
    }

    /// Serves what the guest cannot go on without.
    fn serve_first(&self, channel: &Channel, server: &mut Server, count: &dyn Fn()) {
        if server.serve_at(channel, 0) {
            count();
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Sleeps until the doorbell rings, unless a request came meanwhile.
    fn sleep(&self, channel: &Channel, helpers: &Helpers<'_>) {
        let mut state = self.lock();
        state.rung = false;
        channel.announce_sleep();
        if !helpers.is_any_new() {
            while !state.rung && !state.stop {
                let result = self.changed.wait(state);
                state = result.unwrap_or_else(PoisonError::into_inner);
            }
        }
        channel.awake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells who waits that the thread ended, also in a panic.
struct Ending<'a>(&'a Volumes);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Watches the channel for up to `time`. Result: whether a request came.
fn watch(helpers: &Helpers<'_>, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if helpers.is_any_new() {
            return true;
        }
        thread::yield_now();
    }
    helpers.is_any_new()
}
