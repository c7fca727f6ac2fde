//! The block device (virtio 1.3, section 5.2): a file or block device of the host, and one
//! thread that serves requests with the host's system calls, into and out of the guest's memory
//! as it is.
//!
//! What is written is in the host's page cache when the guest is told, so it outlives this
//! process; what was flushed outlives the host.

mod image;
mod request;
mod stats;
#[cfg(test)]
mod tests;

pub use image::{Image, ImageError};
pub use stats::{Counters, Statistics};

use crate::virtio::stats::count;
use crate::virtio::worker::{self, Bell, Work};
use crate::virtio::{
    Device, DeviceError, Direction, Guest, MAX_BUFFERS, Memory, give_back, interrupt_for,
    next_chain, want_doorbell,
};
use hartline_abi::virtio::{BLOCK_REQUESTS, BlockConfig, SECTOR, block_feature, device};
use request::{MAX_RANGE, MAX_RANGES};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use virtio_queue::Queue;

/// Requests that are served before the guest is told.
const BATCH: usize = 32;

/// A block device.
#[derive(Debug)]
pub struct Block {
    config: [u8; BlockConfig::LENGTH],
    read_only: bool,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
    /// Longest time that the thread watches the ring before it sleeps.
    polling: Duration,
    /// None while the thread has it.
    image: Option<Image>,
    worker: Option<JoinHandle<Image>>,
}

impl Block {
    /// A device with the contents of `image`, whose ring and buffers are in `memory`.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new(
        image: Image,
        polling: Duration,
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
            read_only: image.is_read_only(),
            memory,
            guest,
            counters: Arc::default(),
            bell: Arc::new(Bell::new()?),
            polling,
            image: Some(image),
            worker: None,
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
        let writing = match self.read_only {
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
        let (Some(image), Ok([requests])) = (self.image.take(), <[Queue; 1]>::try_from(queues))
        else {
            return false;
        };
        self.bell.stop(false);
        let worker = Worker {
            image,
            requests,
            memory: self.memory.clone(),
            guest: Arc::clone(&self.guest),
            counters: Arc::clone(&self.counters),
            bell: Arc::clone(&self.bell),
        };
        let polling = self.polling;
        let thread = thread::Builder::new().name("block".into());
        self.worker = thread.spawn(move || worker.run(polling)).ok();
        self.worker.is_some()
    }

    fn notify(&self, _: u32) {
        count(&self.counters.doorbells, 1);
        self.bell.ring();
    }

    fn reset(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.bell.stop(true);
            // After a panic there is no image any more, and no second start.
            self.image = worker.join().ok();
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.reset();
    }
}

struct Worker {
    image: Image,
    requests: Queue,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
}

impl Worker {
    /// Serves requests until the device is reset, or the guest breaks the ring. Result: the
    /// image.
    fn run(mut self, polling: Duration) -> Image {
        let bell = Arc::clone(&self.bell);
        if let Err(error) = worker::run(&mut self, &bell, polling) {
            self.guest.fail(error);
        }
        self.image
    }
}

impl Work for Worker {
    fn turn(&mut self) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && let Some(chain) = next_chain(&mut self.requests, &self.memory, Direction::Both)?
        {
            let written = request::serve(&mut self.image, &chain, &self.counters)?;
            give_back(&mut self.requests, &self.memory, chain.head, written)?;
            done += 1;
        }
        if done > 0 && interrupt_for(&mut self.requests, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    fn watches(&self) {
        count(&self.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        if want_doorbell(&mut self.requests, &self.memory)? {
            return Ok(());
        }
        count(&self.counters.sleeps, 1);
        let mut poll = libc::pollfd {
            fd: self.bell.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry. Interrupted: the next turn finds nothing.
        unsafe { libc::poll(&raw mut poll, 1, -1) };
        if poll.revents != 0 {
            self.bell.quiet();
        }
        Ok(())
    }
}
