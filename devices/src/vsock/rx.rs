//! The RX queue: packets for the guest.

use super::connections::Connections;
use super::stats::Counters;
use crate::virtio::stats::count;
use crate::virtio::{
    Chain, DeviceError, Direction, Guest, Memory, add_used, enable_notification, next_chain,
    notify_used,
};
use hartline_abi::vsock::VsockHeader;
use virtio_queue::Queue;

/// Most packets per call.
const BATCH: usize = 64;
/// Length of a header, bytes.
pub(super) const HEADER: u32 = 44;
const _: () = assert!(HEADER as usize == VsockHeader::LENGTH);

/// An RX queue.
pub(super) struct Rx {
    queue: Queue,
    /// An RX buffer that was taken from the ring and has no packet yet.
    buffer: Option<Chain>,
    /// Whether the last call stopped because the driver had no RX buffers left.
    lacks_buffers: bool,
}

impl Rx {
    /// The RX side of a queue.
    pub fn new(queue: Queue) -> Self {
        Self {
            queue,
            buffer: None,
            lacks_buffers: false,
        }
    }

    /// Passes a batch of packets to the guest. Returns whether there were any.
    pub fn process(
        &mut self,
        connections: &mut Connections,
        (memory, guest): (&Memory, &dyn Guest),
        counters: &Counters,
    ) -> Result<bool, DeviceError> {
        let mut done = 0;
        self.lacks_buffers = false;
        while done < BATCH && connections.has_packets() {
            let chain = match self.buffer.take() {
                Some(chain) => Some(chain),
                None => next_chain(&mut self.queue, memory, Direction::Write)?,
            };
            let Some(chain) = chain else {
                self.lacks_buffers = true;
                break;
            };
            done += usize::from(self.fill(chain, connections, memory, counters)?);
        }
        if done > 0 && notify_used(&mut self.queue, memory, guest)? {
            count(&counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    /// Fills an RX buffer with the next packet, if there is one. Returns whether there was.
    fn fill(
        &mut self,
        chain: Chain,
        connections: &mut Connections,
        memory: &Memory,
        counters: &Counters,
    ) -> Result<bool, DeviceError> {
        let parts = chain.buffers.split(VsockHeader::LENGTH);
        let (start, room) = parts.ok_or(DeviceError::Buffer)?;
        if room.count() == 0 {
            return Err(DeviceError::Buffer);
        }
        let Some(header) = connections.next_packet(&room) else {
            self.buffer = Some(chain);
            return Ok(false);
        };
        start.copy_to(&header.to_bytes());
        count(&counters.received_packets, 1);
        count(&counters.received_bytes, header.length.into());
        let length = HEADER + header.length;
        add_used(&mut self.queue, memory, chain.head, length)?;
        Ok(true)
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
