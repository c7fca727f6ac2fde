//! The RX direction of a pair of queues: packets of the backend go to the guest.

use super::backend::{Endpoint, is_disconnect};
use super::rx_buffers::RxBuffers;
use super::shared::Shared;
use super::stats::Counters;
use crate::timeline::{self, Event};
use crate::virtio::stats::count;
use crate::virtio::used_ring::UsedRing;
use crate::virtio::{DeviceError, Memory, enable_notification};
use hartline_abi::virtio::NetHeader;
use virtio_queue::{Queue, QueueState};

/// Most packets per call.
const BATCH: usize = 64;

/// An RX queue.
#[derive(Debug)]
pub(super) struct Rx {
    queue: Queue,
    used: UsedRing,
    buffers: RxBuffers,
    /// Whether the last call stopped because the driver had no RX buffers left.
    lacks_buffers: bool,
}

impl Rx {
    /// The RX side of a queue that was not used yet. Packets go into `buffers`.
    pub fn new(queue: Queue, buffers: RxBuffers) -> Self {
        Self {
            used: UsedRing::new(&queue),
            queue,
            buffers,
            lacks_buffers: false,
        }
    }

    /// Receives a batch of packets. Returns whether there were any.
    pub fn process(
        &mut self,
        endpoint: &mut Endpoint,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && !endpoint.is_disconnected
            && shared.rx_limiter.wait().is_none()
            && self.receive_one(endpoint, shared, counters)?
        {
            done += 1;
        }
        let (memory, guest) = (&shared.memory, &*shared.guest);
        if done > 0 && self.used.notify_used(&self.queue, memory, guest)? {
            count(&counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    fn receive_one(
        &mut self,
        endpoint: &mut Endpoint,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<bool, DeviceError> {
        self.lacks_buffers = !self.buffers.fill(&mut self.queue, &shared.memory)?;
        if self.lacks_buffers {
            return Ok(false);
        }
        let length = match endpoint.backend.read(self.buffers.pieces()) {
            Ok(length) => length,
            Err(error) => {
                endpoint.is_disconnected |= is_disconnect(&error);
                return Ok(false);
            }
        };
        let bytes = length.saturating_sub(NetHeader::LENGTH);
        shared.rx_limiter.take(length);
        count(&counters.received_packets, 1);
        count(&counters.received_bytes, bytes as u64);
        timeline::instant(|| Event::Packet {
            is_sent: false,
            length: bytes,
        });
        let chains = self.buffers.take(length);
        self.used
            .add_used(&mut self.queue, &shared.memory, chains)?;
        Ok(true)
    }

    /// The queue without the buffers that were taken and have no packet.
    pub fn state(&self) -> QueueState {
        let state = self.queue.state();
        QueueState {
            // Buffers become used in the order in which they were taken.
            next_avail: state.next_used,
            ..state
        }
    }

    /// Whether the driver has no RX buffers left.
    pub fn lacks_buffers(&self) -> bool {
        self.lacks_buffers
    }

    /// Enables notifications of available buffers. Returns whether there are some already.
    pub fn enable_notification(&mut self, memory: &Memory) -> Result<bool, DeviceError> {
        enable_notification(&mut self.queue, memory)
    }
}
