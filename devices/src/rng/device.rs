//! The virtio-rng device: its one queue, and how the queue is served.

use super::backend::fill;
use super::stats::Counters;
use crate::virtio::stats::count;
use crate::virtio::{
    ActivateError, Device, DeviceError, Direction, Guest, MAX_QUEUE_SIZE, Memory, add_used,
    enable_notification, next_chain, notify_used,
};
use hartline_abi::virtio::RNG_REQUESTS;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;
use virtio_queue::{Queue, QueueState};

const NAME: &str = "virtio-rng";

/// Most chains per notification: as many as a driver can have in the ring. A chain that another
/// vCPU adds meanwhile may wait for the next notification.
const BATCH: u16 = MAX_QUEUE_SIZE;

/// An entropy device.
#[derive(Debug)]
pub struct Rng {
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    /// The request queue. `None` while the device is reset or has stopped.
    requests: Mutex<Option<Queue>>,
}

impl Rng {
    /// A device whose ring and buffers are in `memory`.
    #[must_use]
    pub fn new(memory: Memory, guest: Arc<dyn Guest>) -> Self {
        Self {
            memory,
            guest,
            counters: Arc::default(),
            requests: Mutex::default(),
        }
    }

    /// The counters of the device.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn requests(&self) -> MutexGuard<'_, Option<Queue>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills the available buffers.
    fn serve(&self, queue: &mut Queue) -> Result<(), DeviceError> {
        let mut done = 0;
        loop {
            while done < BATCH
                && let Some(chain) = next_chain(queue, &self.memory, Direction::Write)?
            {
                let length = fill(&chain);
                count(&self.counters.requests, 1);
                count(&self.counters.bytes, length.into());
                add_used(queue, &self.memory, chain.head, length)?;
                done += 1;
            }
            if !enable_notification(queue, &self.memory)? || done == BATCH {
                break;
            }
        }
        if done > 0 && notify_used(queue, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(())
    }
}

impl Device for Rng {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device_id(&self) -> u32 {
        VIRTIO_ID_RNG
    }

    fn features(&self) -> u64 {
        0
    }

    fn queues(&self) -> usize {
        usize::from(RNG_REQUESTS) + 1
    }

    fn config(&self) -> &[u8] {
        &[]
    }

    fn activate(&mut self, _: u64, queues: Vec<Queue>) -> Result<(), ActivateError> {
        let queues = <[Queue; 1]>::try_from(queues);
        let [queue] = queues.map_err(|queues| ActivateError::QueueCount {
            device: NAME,
            found: queues.len(),
            expected: 1,
        })?;
        *self.requests() = Some(queue);
        Ok(())
    }

    fn queue_states(&self) -> Option<Vec<QueueState>> {
        let requests = self.requests();
        requests.as_ref().map(|queue| vec![queue.state()])
    }

    fn notify(&self, _: u32) {
        count(&self.counters.kicks, 1);
        let mut requests = self.requests();
        if let Some(queue) = &mut *requests
            && let Err(error) = self.serve(queue)
        {
            *requests = None;
            self.guest.fail(error);
        }
    }

    fn reset(&mut self) {
        *self.requests() = None;
    }
}
