//! The block device (virtio 1.3, section 5.2): a file or block device of the host. Requests are
//! served with the host's system calls, into and out of the guest's memory as it is.
//!
//! One thread watches the ring, and serves what the host can do in its memory. Reads for which
//! storage has to be waited are begun, and tried again as long as the ring is watched; so those of
//! quick storage need no other thread. For what takes longer, other threads wait (`pool.rs`), unless
//! the guest makes one request at a time: any number of requests can wait at a time, and the quick
//! ones pass them. (`io_uring` would save these threads; but a filter of system
//! calls does not see what is asked for through it. A ring would have to be restricted, as that for
//! packets is.)
//!
//! What is written is in the host's page cache when the guest is told, so it outlives this
//! process; what was flushed outlives the host.

mod image;
mod pool;
mod request;
mod stats;
#[cfg(test)]
mod tests;

pub use image::{Image, ImageError};
pub use stats::{Counters, Statistics};

use crate::limiter::{Limiter, Limits};
use crate::virtio::stats::count;
use crate::virtio::worker::{self, Bell, Thread, Work};
use crate::virtio::{
    Device, DeviceError, Direction, Guest, MAX_BUFFERS, MAX_QUEUE_SIZE, Memory, next_chain,
    want_doorbell,
};
use hartline_abi::virtio::{BLOCK_REQUESTS, BlockConfig, SECTOR, block_feature, device};
use pool::{Common, Pool};
use request::{MAX_RANGE, MAX_RANGES, Request, Served};
use std::io;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use virtio_queue::Queue;

/// Requests that are served before the guest is told.
const BATCH: usize = 32;
/// Requests after one that had to wait for another, which other threads serve.
const CROWD: u32 = 256;

/// A block device.
#[derive(Debug)]
pub struct Block {
    config: [u8; BlockConfig::LENGTH],
    image: Arc<Image>,
    limits: Arc<dyn Limits>,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    /// Longest time that the thread watches the ring before it sleeps.
    polling: Duration,
    thread: Thread<()>,
}

impl Block {
    /// A device with the contents of `image`, whose ring and buffers are in `memory`. Requests of
    /// all kinds together keep to `limits`, which count headers too and may be changed at any time.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new(
        image: Image,
        polling: Duration,
        limits: Arc<dyn Limits>,
        memory: Memory,
        guest: Arc<dyn Guest>,
    ) -> io::Result<Self> {
        let config = BlockConfig {
            sectors: image.sectors(),
            // But for the header and the status.
            segments: MAX_BUFFERS as u32 - 2,
            block_size: SECTOR as u32,
            range_sectors: MAX_RANGE,
            ranges: MAX_RANGES,
        };
        Ok(Self {
            config: config.to_bytes(),
            image: Arc::new(image),
            limits,
            memory,
            guest,
            counters: Arc::default(),
            polling,
            thread: Thread::new()?,
        })
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Device for Block {
    fn kind(&self) -> u32 {
        device::BLOCK
    }

    fn features(&self) -> u64 {
        use block_feature::{BLOCK_SIZE, DISCARD, FLUSH, READ_ONLY, SEGMENTS, WRITE_ZEROES};
        let writing = match self.image.is_read_only() {
            true => READ_ONLY,
            false => DISCARD | WRITE_ZEROES,
        };
        SEGMENTS | BLOCK_SIZE | FLUSH | writing
    }

    fn queues(&self) -> usize {
        usize::from(BLOCK_REQUESTS) + 1
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, _: u64, queues: Vec<Queue>) -> bool {
        let Ok([requests]) = <[Queue; 1]>::try_from(queues) else {
            return false;
        };
        let common = Arc::new(Common {
            image: Arc::clone(&self.image),
            requests: Mutex::new(requests),
            memory: self.memory.clone(),
            guest: Arc::clone(&self.guest),
            counters: Arc::clone(&self.counters),
            limiter: Limiter::new(Arc::clone(&self.limits)),
        });
        let worker = Worker {
            pool: Pool::new(Arc::clone(&common)),
            begun: Vec::new(),
            crowd: 0,
            has_waited: false,
            common,
            bell: Arc::clone(self.thread.bell()),
        };
        let polling = self.polling;
        self.thread.start("block", move || worker.run(polling))
    }

    fn notify(&self, _: u32) {
        count(&self.counters.doorbells, 1);
        self.thread.bell().ring();
    }

    fn reset(&mut self) {
        self.thread.stop();
    }
}

struct Worker {
    pool: Pool,
    /// Reads that storage was asked for.
    begun: Vec<(u16, Request)>,
    /// For how many requests more the guest is taken for one that makes several at a time.
    crowd: u32,
    /// This thread has waited for storage since it last looked into the ring.
    has_waited: bool,
    common: Arc<Common>,
    bell: Arc<Bell>,
}

impl Worker {
    /// Serves requests until the device is reset, or the guest breaks the ring.
    fn run(mut self, polling: Duration) {
        let bell = Arc::clone(&self.bell);
        if let Err(error) = worker::run(&mut self, &bell, polling) {
            self.common.guest.fail(error);
        }
    }
}

impl Worker {
    /// Takes requests out of the ring, and serves those that need not wait. Result: how many were
    /// taken, and how many are done.
    fn take(&mut self) -> Result<(usize, usize), DeviceError> {
        let common = Arc::clone(&self.common);
        let (mut taken, mut done) = (0, 0);
        while taken < BATCH && common.limiter.wait().is_none() {
            let chain = next_chain(&mut common.requests(), &common.memory, Direction::Both)?;
            let Some(chain) = chain else {
                self.has_waited = false;
                break;
            };
            taken += 1;
            common.limiter.take(chain.length);
            if self.has_waited {
                self.crowd = CROWD;
            }
            // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory` lives,
            // which all threads have that serve requests.
            let mut request = unsafe { Request::of(&chain) }?;
            match request.serve_now(&common.image, &common.counters) {
                Served::Done(written) => {
                    common.give_back(chain.head, written)?;
                    done += 1;
                }
                Served::Soon if self.begun.len() < MAX_QUEUE_SIZE.into() => {
                    self.begun.push((chain.head, request));
                }
                Served::Soon => return Err(DeviceError::Ring),
                Served::NotNow => self.wait_for(chain.head, request)?,
            }
        }
        Ok((taken, done))
    }

    /// Looks whether storage has done what was begun. Result: how many reads are done.
    fn retry(&mut self) -> Result<usize, DeviceError> {
        let before = self.begun.len();
        let mut at = 0;
        while let Some((_, request)) = self.begun.get_mut(at) {
            match request.serve_now(&self.common.image, &self.common.counters) {
                Served::Done(written) => {
                    let (head, _) = self.begun.swap_remove(at);
                    self.common.give_back(head, written)?;
                }
                Served::Soon | Served::NotNow => at += 1,
            }
        }
        Ok(before - self.begun.len())
    }

    /// Waits for a request, or lets another thread do that.
    fn wait_for(&mut self, head: u16, request: Request) -> Result<(), DeviceError> {
        if self.crowd == 0 && request.is_transfer() {
            self.has_waited = true;
            return self.common.serve(head, request);
        }
        self.crowd = self.crowd.saturating_sub(1);
        count(&self.common.counters.handed_over, 1);
        self.pool.give(head, request)
    }
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.common.guest
    }

    fn turn(&mut self) -> Result<bool, DeviceError> {
        let begun = self.retry()?;
        let (taken, done) = self.take()?;
        let done = begun + done;
        if done > 0 {
            self.common.tell(&mut self.common.requests())?;
        }
        Ok(taken + done > 0)
    }

    fn watches(&self) {
        count(&self.common.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        // Storage takes longer than it is worth to watch it.
        if self.begun.len() > 1 {
            self.crowd = CROWD;
        }
        for (head, request) in mem::take(&mut self.begun) {
            self.wait_for(head, request)?;
        }
        let common = &self.common;
        let throttled = common.limiter.wait();
        // What may not be served yet is no reason to look again.
        let mut may_sleep = throttled.is_some();
        if !may_sleep {
            let more = self.has_waited || want_doorbell(&mut common.requests(), &common.memory)?;
            may_sleep = !more;
        }
        if !may_sleep {
            return Ok(());
        }
        count(&common.counters.throttled, throttled.is_some().into());
        count(&common.counters.sleeps, 1);
        self.bell.wait(throttled);
        Ok(())
    }
}
