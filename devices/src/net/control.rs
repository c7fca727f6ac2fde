//! The control queue of a network device (virtio 1.3, section 5.1.6.5).
//!
//! The queue has no thread. Commands are rare, so the vCPU thread that handles the driver's
//! notification executes them before it returns.

use crate::virtio::constant::byte;
use crate::virtio::{
    Buffers, DeviceError, Direction, Guest, MAX_QUEUE_SIZE, Memory, add_used, enable_notification,
    next_chain, notify_used,
};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_ERR, VIRTIO_NET_OK,
};
use virtio_queue::Queue;

/// Most commands per notification: as many as a driver can have in the ring.
const BATCH: u16 = MAX_QUEUE_SIZE;
/// Length of `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`, bytes: class, command, and 16 bits of data.
const LENGTH: usize = 4;
/// The answers to commands.
pub(super) const OK: u8 = byte(VIRTIO_NET_OK);
pub(super) const ERROR: u8 = byte(VIRTIO_NET_ERR);
/// Class and command of `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`.
pub(super) const SET_PAIRS: [u8; 2] = [
    byte(VIRTIO_NET_CTRL_MQ),
    byte(VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET),
];

/// Executes the available commands. `set_pairs` sets the number of active pairs, which may be any
/// value, and returns whether that was possible. Returns whether the guest was interrupted.
///
/// # Errors
/// The guest broke the ring, or a command has no room for the answer.
pub(super) fn serve(
    queue: &mut Queue,
    memory: &Memory,
    guest: &dyn Guest,
    mut set_pairs: impl FnMut(u16) -> bool,
) -> Result<bool, DeviceError> {
    let mut done = 0;
    loop {
        while done < BATCH
            && let Some(mut chain) = next_chain(queue, memory, Direction::Both)?
        {
            let ack = chain.buffers.split_off(chain.readable);
            if ack.length() == 0 {
                return Err(DeviceError::Buffer);
            }
            let result = match pairs(&chain.buffers) {
                Some(pairs) if set_pairs(pairs) => OK,
                _ => ERROR,
            };
            ack.copy_to(&[result]);
            add_used(queue, memory, chain.head, 1)?;
            done += 1;
        }
        if !enable_notification(queue, memory)? || done == BATCH {
            break;
        }
    }
    Ok(done > 0 && notify_used(queue, memory, guest)?)
}

/// The number of pairs that a command sets. `None` if it is another command or has a wrong length.
fn pairs(command: &Buffers) -> Option<u16> {
    if command.length() != LENGTH {
        return None;
    }
    let mut bytes = [0; LENGTH];
    command.copy_from(&mut bytes);
    let [class, command, low, high] = bytes;
    ([class, command] == SET_PAIRS).then(|| u16::from_le_bytes([low, high]))
}
