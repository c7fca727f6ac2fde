//! Virtqueues: descriptor chains that the driver made available, and their return to the driver.

use super::{Buffers, DeviceError, Guest, Memory};
use virtio_queue::{Queue, QueueOwnedT, QueueT};

/// Largest number of buffers of one descriptor chain.
pub(crate) const MAX_BUFFERS: usize = 64;

/// A descriptor chain that the driver made available.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Index of the first descriptor, which identifies the chain in the used ring.
    pub head: u16,
    /// The buffers.
    pub buffers: Buffers,
    /// Number of device-readable buffers. The device-writable ones follow them.
    pub readable: usize,
    /// Length of all buffers, bytes.
    pub length: usize,
}

/// Directions of the buffers that a device accepts in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// All buffers are device-readable.
    Read,
    /// All buffers are device-writable.
    Write,
    /// The first buffers are device-readable and the others device-writable.
    Both,
}

/// Takes the next available chain from a queue.
///
/// # Errors
/// [`DeviceError`]: the ring is broken, or the chain has a bad buffer.
pub(crate) fn next_chain(
    queue: &mut Queue,
    memory: &Memory,
    direction: Direction,
) -> Result<Option<Chain>, DeviceError> {
    let mut available = queue.iter(memory.map()).map_err(|_| DeviceError::Ring)?;
    let Some(descriptors) = available.next() else {
        return Ok(None);
    };
    let mut chain = Chain {
        head: descriptors.head_index(),
        buffers: Buffers::new(memory),
        readable: 0,
        length: 0,
    };
    for descriptor in descriptors {
        let is_allowed = match (direction, descriptor.is_write_only()) {
            (Direction::Read, is_written) => !is_written,
            (Direction::Write, is_written) => is_written,
            (Direction::Both, true) => true,
            (Direction::Both, false) => chain.readable == chain.buffers.count(),
        };
        if !is_allowed || chain.buffers.count() == MAX_BUFFERS {
            return Err(DeviceError::Buffer);
        }
        let length = descriptor.len() as usize;
        chain.buffers.push(descriptor.addr().0, length)?;
        chain.length += length;
        chain.readable += usize::from(!descriptor.is_write_only());
    }
    Ok(Some(chain))
}

/// Puts a chain into the used ring. `length` is the number of bytes that the device has written.
///
/// # Errors
/// [`DeviceError::Ring`]: the ring is broken.
pub(crate) fn add_used(
    queue: &mut Queue,
    memory: &Memory,
    head: u16,
    length: u32,
) -> Result<(), DeviceError> {
    let result = queue.add_used(memory.map(), head, length);
    result.map_err(|_| DeviceError::Ring)
}

/// Interrupts the guest if the driver wants a notification of used buffers. Returns whether the
/// guest was interrupted.
///
/// # Errors
/// [`DeviceError::Ring`]: the ring is broken.
pub(crate) fn notify_used(
    queue: &mut Queue,
    memory: &Memory,
    guest: &dyn Guest,
) -> Result<bool, DeviceError> {
    let is_wanted = queue.needs_notification(memory.map());
    let is_wanted = is_wanted.map_err(|_| DeviceError::Ring)?;
    if is_wanted {
        guest.interrupt();
    }
    Ok(is_wanted)
}

/// Asks the driver to notify the device of available buffers. Returns whether buffers have become
/// available meanwhile.
///
/// # Errors
/// [`DeviceError::Ring`]: the ring is broken.
pub(crate) fn enable_notification(queue: &mut Queue, memory: &Memory) -> Result<bool, DeviceError> {
    let more = queue.enable_notification(memory.map());
    more.map_err(|_| DeviceError::Ring)
}
