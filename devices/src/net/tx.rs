//! The TX direction of a pair of queues: packets of the guest go to the backend.

use super::backend::{Endpoint, is_disconnect};
use super::shared::Shared;
use super::stats::Counters;
use crate::timeline::{self, Event};
use crate::virtio::stats::count;
use crate::virtio::used_ring::UsedRing;
use crate::virtio::{Chain, DeviceError, Direction, Memory, enable_notification, next_chain};
use hartline_abi::virtio::NetHeader;
use std::io;
use virtio_queue::{Queue, QueueState};

/// Most packets per call.
const BATCH: usize = 64;

/// A TX queue.
#[derive(Debug)]
pub(super) struct Tx {
    queue: Queue,
    used: UsedRing,
}

impl Tx {
    /// The TX side of a queue that was not used yet.
    pub fn new(queue: Queue) -> Self {
        Self {
            used: UsedRing::new(&queue),
            queue,
        }
    }

    /// Transmits a batch of available packets. Returns whether there were any.
    pub fn process(
        &mut self,
        endpoint: &mut Endpoint,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<bool, DeviceError> {
        let Shared {
            memory,
            tx_limiter: limiter,
            ..
        } = shared;
        let mut batch = Vec::new();
        while batch.len() < BATCH
            && limiter.wait().is_none()
            && let Some(chain) = next_chain(&mut self.queue, memory, Direction::Read)?
        {
            limiter.take(chain.length);
            batch.push(chain);
        }
        if batch.is_empty() {
            return Ok(false);
        }
        write(&batch, endpoint, counters);
        let heads = batch.iter().map(|chain| (chain.head, 0));
        self.used.add_used(&mut self.queue, memory, heads)?;
        if self.used.notify_used(&self.queue, memory, &*shared.guest)? {
            count(&counters.interrupts, 1);
        }
        Ok(true)
    }

    /// The queue.
    pub fn state(&self) -> QueueState {
        self.queue.state()
    }

    /// Enables notifications of available packets. Returns whether there are some already.
    pub fn enable_notification(&mut self, memory: &Memory) -> Result<bool, DeviceError> {
        enable_notification(&mut self.queue, memory)
    }
}

/// Writes a batch to the backend. As on a wire, malformed packets, and packets that the host does
/// not take now, are lost.
fn write(batch: &[Chain], endpoint: &mut Endpoint, counters: &Counters) {
    let Endpoint {
        backend,
        is_disconnected,
    } = endpoint;
    // The kernel accepts a header without a packet and transmits nothing.
    let is_whole = |chain: &&Chain| !*is_disconnected && chain.length >= NetHeader::LENGTH;
    let whole: Vec<_> = batch.iter().filter(is_whole).collect();
    let mut lost = batch.len() - whole.len();
    if !whole.is_empty() {
        let packets: Vec<_> = whole.iter().map(|chain| &chain.buffers).collect();
        let mut done = |number: usize, result: io::Result<()>| match result {
            Ok(()) => {
                let length = whole[number].length - NetHeader::LENGTH;
                count(&counters.sent_bytes, length as u64);
                timeline::instant(|| Event::Packet {
                    is_sent: true,
                    length,
                });
            }
            Err(error) => {
                *is_disconnected |= is_disconnect(&error);
                lost += 1;
            }
        };
        backend.write_all(&packets, &mut done);
    }
    count(&counters.sent_packets, (batch.len() - lost) as u64);
    count(&counters.dropped, lost as u64);
}
