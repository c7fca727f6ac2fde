//! The thread that serves the channel: it answers requests, busy-polls for some time, and sleeps.

use super::channel::Channel;
use super::device::Volumes;
use super::pool::{self, Pool};
use super::server::Server;
use crate::virtio::Guest;
use hartline_abi::volume::VOLUME_SLOTS;
use rustix::fs::Mode;
use rustix::process::umask;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bounds of the time of a busy-poll.
const MIN_POLLING: Duration = Duration::from_micros(50);
const MAX_POLLING: Duration = Duration::from_micros(200);

impl Volumes {
    /// Serves the channel until [`Volumes::finish`]. Interrupts `guest` when it waits for an
    /// answer. Calls `count` for each request.
    pub fn serve(
        &self,
        channel: &Channel,
        mut server: Server,
        guest: &Arc<dyn Guest>,
        count: &dyn Fn(),
    ) {
        clear_umask();
        let _ending = Ending(self);
        let mut pool = Pool::new(channel, guest);
        let mut budget = MIN_POLLING;
        while !self.lock().stop {
            self.serve_first(channel, &mut server, count);
            for number in 1..VOLUME_SLOTS {
                if pool.is_new(number) {
                    count();
                    let slot = channel.slot(number);
                    match server.begin(&slot.request(), slot.data()) {
                        Ok(result) => pool::answer(channel, slot, result, &**guest),
                        Err(work) => pool.submit(number, work),
                    }
                }
            }
            if busy_poll(&pool, budget) {
                budget = (budget * 2).min(MAX_POLLING);
            } else {
                budget = (budget / 2).max(MIN_POLLING);
                self.sleep(channel, &pool);
            }
        }
    }

    /// Serves the request in the first slot, for which a vCPU waits.
    fn serve_first(&self, channel: &Channel, server: &mut Server, count: &dyn Fn()) {
        if server.serve_at(channel, 0) {
            count();
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Enables notifications, checks for requests once more, and sleeps until a notification.
    fn sleep(&self, channel: &Channel, pool: &Pool<'_>) {
        let mut state = self.lock();
        state.kicked = false;
        channel.enable_notification();
        if !pool.is_any_new() {
            while !state.kicked && !state.stop {
                let result = self.changed.wait(state);
                state = result.unwrap_or_else(PoisonError::into_inner);
            }
        }
        channel.disable_notification();
    }
}

/// Gives the calling thread a separate umask, which is 0: requests contain the guest's umask.
/// Other threads keep theirs. A jailed process has a umask of 0 and may not call `unshare`.
fn clear_umask() {
    // SAFETY: `CLONE_FS` does not change the table of descriptors. Only the umask and the working
    // directory become this thread's own.
    if unsafe { unshare_unsafe(UnshareFlags::FS) }.is_ok() {
        umask(Mode::empty());
    }
}

/// Reports the end of the worker to waiting callers, also after a panic.
struct Ending<'a>(&'a Volumes);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Polls for requests for up to `time`. Returns whether there is one.
fn busy_poll(pool: &Pool<'_>, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if pool.is_any_new() {
            return true;
        }
        thread::yield_now();
    }
    pool.is_any_new()
}
