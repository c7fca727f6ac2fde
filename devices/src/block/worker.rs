//! The thread of a block device: it takes requests out of the ring and completes those that need
//! not wait for storage.

use super::pool::Pool;
use super::request::{Request, Served};
use super::shared::Shared;
use crate::virtio::kick::Kick;
use crate::virtio::stats::count;
use crate::virtio::worker::{self, Work};
use crate::virtio::{
    DeviceError, Direction, Guest, MAX_QUEUE_SIZE, enable_notification, next_chain,
};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// Most requests that are taken before the driver is notified.
const BATCH: usize = 32;
/// Number of requests for which the guest counts as one with several requests in flight, after a
/// request had to wait for another one. The pool serves them.
const PARALLEL_REQUESTS: u32 = 256;

/// The worker of a block device.
pub(super) struct Worker {
    pool: Pool,
    /// Reads in progress in storage.
    begun: Vec<(u16, Request)>,
    /// Remaining requests for which the guest counts as one with several in flight.
    parallel_left: u32,
    /// Whether this thread has waited for storage since it last found the ring empty.
    has_waited: bool,
    shared: Arc<Shared>,
    kick: Arc<Kick>,
}

impl Worker {
    /// A worker that gives requests that wait for storage to `pool`.
    pub fn new(pool: Pool, shared: Arc<Shared>, kick: Arc<Kick>) -> Self {
        Self {
            pool,
            begun: Vec::new(),
            parallel_left: 0,
            has_waited: false,
            shared,
            kick,
        }
    }

    /// Serves requests until the device is reset, or the guest breaks the ring.
    pub fn run(mut self, polling: Duration) {
        let kick = Arc::clone(&self.kick);
        if let Err(error) = worker::run(&mut self, &kick, polling) {
            self.shared.guest.fail(error);
        }
    }

    /// Takes requests out of the ring and serves those that need not wait. Returns the numbers of
    /// taken and of completed requests.
    fn take(&mut self) -> Result<(usize, usize), DeviceError> {
        let shared = Arc::clone(&self.shared);
        let (mut taken, mut done) = (0, 0);
        while taken < BATCH && shared.limiter.wait().is_none() {
            let chain = next_chain(&mut shared.requests(), &shared.memory, Direction::Both)?;
            let Some(chain) = chain else {
                self.has_waited = false;
                break;
            };
            taken += 1;
            shared.limiter.take(chain.length);
            if self.has_waited {
                self.parallel_left = PARALLEL_REQUESTS;
            }
            let mut request = Request::new(chain.buffers, chain.readable)?;
            match request.try_serve(&shared.image, &shared.counters) {
                Served::Done(written) => {
                    shared.add_used(chain.head, written)?;
                    done += 1;
                }
                Served::InProgress if self.begun.len() < MAX_QUEUE_SIZE.into() => {
                    self.begun.push((chain.head, request));
                }
                Served::InProgress => return Err(DeviceError::Ring),
                Served::WouldBlock => self.serve_blocking(chain.head, request)?,
            }
        }
        Ok((taken, done))
    }

    /// Retries the reads in progress. Returns the number of completed ones.
    fn retry(&mut self) -> Result<usize, DeviceError> {
        let before = self.begun.len();
        let mut at = 0;
        while let Some((_, request)) = self.begun.get_mut(at) {
            match request.try_serve(&self.shared.image, &self.shared.counters) {
                Served::Done(written) => {
                    let (head, _) = self.begun.swap_remove(at);
                    self.shared.add_used(head, written)?;
                }
                Served::InProgress | Served::WouldBlock => at += 1,
            }
        }
        Ok(before - self.begun.len())
    }

    /// Serves a request that waits for storage, or gives it to the pool.
    fn serve_blocking(&mut self, head: u16, request: Request) -> Result<(), DeviceError> {
        if self.parallel_left == 0 && request.is_transfer() {
            self.has_waited = true;
            return self.shared.serve(head, request);
        }
        self.parallel_left = self.parallel_left.saturating_sub(1);
        count(&self.shared.counters.handed_over, 1);
        self.pool.submit(head, request)
    }
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.shared.guest
    }

    fn process(&mut self) -> Result<bool, DeviceError> {
        let retried = self.retry()?;
        let (taken, done) = self.take()?;
        let done = retried + done;
        if done > 0 {
            self.shared.notify_used(&mut self.shared.requests())?;
        }
        Ok(taken + done > 0)
    }

    fn count_poll(&self) {
        count(&self.shared.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        // The reads in progress have outlasted a busy-poll, so others wait for them.
        if self.begun.len() > 1 {
            self.parallel_left = PARALLEL_REQUESTS;
        }
        for (head, request) in mem::take(&mut self.begun) {
            self.serve_blocking(head, request)?;
        }
        let shared = &self.shared;
        let throttled = shared.limiter.wait();
        // If the limits stop the thread, requests in the ring do not keep it awake.
        let mut may_sleep = throttled.is_some();
        if !may_sleep {
            let more =
                self.has_waited || enable_notification(&mut shared.requests(), &shared.memory)?;
            may_sleep = !more;
        }
        if !may_sleep {
            return Ok(());
        }
        count(&shared.counters.throttled, throttled.is_some().into());
        count(&shared.counters.sleeps, 1);
        self.kick.wait(throttled);
        Ok(())
    }
}
