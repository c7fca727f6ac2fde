//! The TX queue: packets of the guest.

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
pub(super) const BATCH: usize = 64;

/// A TX queue.
pub(super) struct Tx {
    queue: Queue,
}

impl Tx {
    /// The TX side of a queue.
    pub fn new(queue: Queue) -> Self {
        Self { queue }
    }

    /// Handles a batch of available packets. Returns whether there were any.
    pub fn process(
        &mut self,
        connections: &mut Connections,
        (memory, guest): (&Memory, &dyn Guest),
        counters: &Counters,
    ) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && connections.has_room()
            && let Some(chain) = next_chain(&mut self.queue, memory, Direction::Read)?
        {
            handle(&chain, connections, counters)?;
            add_used(&mut self.queue, memory, chain.head, 0)?;
            done += 1;
        }
        if done > 0 && notify_used(&mut self.queue, memory, guest)? {
            count(&counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    /// Enables notifications of available packets. Returns whether there are some already.
    pub fn enable_notification(&mut self, memory: &Memory) -> Result<bool, DeviceError> {
        enable_notification(&mut self.queue, memory)
    }
}

/// Handles one packet.
fn handle(
    chain: &Chain,
    connections: &mut Connections,
    counters: &Counters,
) -> Result<(), DeviceError> {
    let parts = chain.buffers.split(VsockHeader::LENGTH);
    let (start, data) = parts.ok_or(DeviceError::Buffer)?;
    let mut bytes = [0; VsockHeader::LENGTH];
    start.copy_from(&mut bytes);
    let header = VsockHeader::from_bytes(&bytes);
    let parts = data.split(header.length as usize);
    let (data, _) = parts.ok_or(DeviceError::Buffer)?;
    count(&counters.sent_packets, 1);
    count(&counters.sent_bytes, header.length.into());
    connections.handle_packet(&header, &data);
    Ok(())
}
