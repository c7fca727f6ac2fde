//! The virtio-blk device: features, configuration space, queue and activation.

use super::backend::Image;
use super::pool::Pool;
use super::request::{MAX_RANGE, MAX_RANGES};
use super::shared::Shared;
use super::stats::Counters;
use super::worker::Worker;
use crate::limiter::{Limiter, Limits};
use crate::virtio::stats::count;
use crate::virtio::worker::WorkerThread;
use crate::virtio::{ActivateError, Device, Guest, MAX_BUFFERS, Memory, feature_bit};
use hartline_abi::virtio::{BLOCK_REQUESTS, BlockConfig, SECTOR};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_queue::Queue;

const NAME: &str = "virtio-blk";
/// Most buffers of data in a request: those of a chain without the header and the status.
const SEGMENTS: u32 = 62;
const _: () = assert!(SEGMENTS as usize + 2 == MAX_BUFFERS);
/// Size of a block, bytes: a sector.
const BLOCK_SIZE: u32 = 512;
const _: () = assert!(BLOCK_SIZE as u64 == SECTOR);

/// A block device.
#[derive(Debug)]
pub struct Block {
    config: [u8; BlockConfig::LENGTH],
    image: Arc<Image>,
    limits: Arc<dyn Limits>,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    /// Longest busy-poll of the thread before it sleeps.
    polling: Duration,
    thread: WorkerThread<()>,
}

impl Block {
    /// A device with the contents of `image`, whose ring and buffers are in `memory`. `limits`
    /// hold for all requests together, count headers too, and may change at any time.
    ///
    /// # Errors
    /// The host has no event descriptor left.
    pub fn new(
        image: Image,
        polling: Duration,
        limits: Arc<dyn Limits>,
        memory: Memory,
        guest: Arc<dyn Guest>,
    ) -> io::Result<Self> {
        let config = BlockConfig {
            sectors: image.sectors(),
            segments: SEGMENTS,
            block_size: BLOCK_SIZE,
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
            thread: WorkerThread::new()?,
        })
    }

    /// The counters of the device.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Device for Block {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device_id(&self) -> u32 {
        VIRTIO_ID_BLOCK
    }

    fn features(&self) -> u64 {
        let writing = match self.image.is_read_only() {
            true => feature_bit(VIRTIO_BLK_F_RO),
            false => feature_bit(VIRTIO_BLK_F_DISCARD) | feature_bit(VIRTIO_BLK_F_WRITE_ZEROES),
        };
        let always = [
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_FLUSH,
        ];
        always
            .map(feature_bit)
            .into_iter()
            .fold(writing, |set, bit| set | bit)
    }

    fn queues(&self) -> usize {
        usize::from(BLOCK_REQUESTS) + 1
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, _: u64, queues: Vec<Queue>) -> Result<(), ActivateError> {
        let queues = <[Queue; 1]>::try_from(queues);
        let [requests] = queues.map_err(|queues| ActivateError::QueueCount {
            device: NAME,
            found: queues.len(),
            expected: 1,
        })?;
        let shared = Arc::new(Shared {
            image: Arc::clone(&self.image),
            requests: Mutex::new(requests),
            memory: self.memory.clone(),
            guest: Arc::clone(&self.guest),
            counters: Arc::clone(&self.counters),
            limiter: Limiter::new(Arc::clone(&self.limits)),
        });
        let kick = Arc::clone(self.thread.kick());
        let worker = Worker::new(Pool::new(Arc::clone(&shared)), shared, kick);
        let polling = self.polling;
        let started = self.thread.start("block", move || worker.run(polling));
        started.map_err(|source| ActivateError::Thread {
            device: NAME,
            queue: BLOCK_REQUESTS.into(),
            source,
        })
    }

    fn notify(&self, _: u32) {
        count(&self.counters.kicks, 1);
        self.thread.kick().notify();
    }

    fn reset(&mut self) {
        self.thread.stop();
    }
}
