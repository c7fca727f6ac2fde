//! The entropy device (virtio 1.3, section 5.4): random bytes of the host's kernel. It has no
//! thread: who rings its doorbell has the bytes when that returns, since guests want few and
//! seldom.

mod stats;
#[cfg(test)]
mod tests;

pub use stats::{Counters, Statistics};

use crate::virtio::stats::count;
use crate::virtio::{
    Chain, Device, DeviceError, Direction, Guest, MAX_QUEUE_SIZE, Memory, give_back, interrupt_for,
    next_chain, want_doorbell,
};
use hartline_abi::virtio::{RNG_REQUESTS, device};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use virtio_queue::Queue;

/// Most bytes for a chain of buffers: a doorbell takes the host's time, which a guest with many
/// large buffers must not have for long.
const MOST: usize = 4096;
/// Most chains for a doorbell, likewise: as many as a driver can have waiting. What another vCPU
/// adds meanwhile may have to wait for the next doorbell.
const BATCH: u16 = MAX_QUEUE_SIZE;

/// An entropy device.
#[derive(Debug)]
pub struct Rng {
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    /// None while it is reset, or has stopped.
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

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn requests(&self) -> MutexGuard<'_, Option<Queue>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills buffers that the guest has made available.
    fn serve(&self, queue: &mut Queue) -> Result<(), DeviceError> {
        let mut done = 0;
        loop {
            while done < BATCH
                && let Some(chain) = next_chain(queue, &self.memory, Direction::Write)?
            {
                let length = fill(&chain);
                count(&self.counters.requests, 1);
                count(&self.counters.bytes, length.into());
                give_back(queue, &self.memory, chain.head, length)?;
                done += 1;
            }
            if !want_doorbell(queue, &self.memory)? || done == BATCH {
                break;
            }
        }
        if done > 0 && interrupt_for(queue, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(())
    }
}

/// Random bytes for the first buffers of a chain. Result: how many.
fn fill(chain: &Chain) -> u32 {
    let mut filled = 0;
    for buffer in &chain.buffers {
        let room = buffer.iov_len.min(MOST - filled);
        // SAFETY: a buffer in the guest's RAM, which is mapped as long as the device.
        let result = unsafe { libc::getrandom(buffer.iov_base, room, 0) };
        // Up to 256 bytes always come; what a signal cut short is short.
        let count = usize::try_from(result).unwrap_or(0);
        filled += count;
        if count < room || filled == MOST {
            break;
        }
    }
    filled as u32
}

impl Device for Rng {
    fn kind(&self) -> u32 {
        device::RNG
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

    fn activate(&mut self, _: u64, queues: Vec<Queue>) -> bool {
        let Ok([queue]) = <[Queue; 1]>::try_from(queues) else {
            return false;
        };
        *self.requests() = Some(queue);
        true
    }

    fn notify(&self, _: u32) {
        count(&self.counters.doorbells, 1);
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
