//! The control queue of a network device (virtio 1.3, section 5.1.6.5). It has no thread: who
//! rings its doorbell has the answers when that returns, since commands are seldom.

use crate::virtio::buffers::{copy_from, copy_to, length};
use crate::virtio::{
    DeviceError, Direction, Guest, MAX_QUEUE_SIZE, Memory, give_back, interrupt_for, next_chain,
    want_doorbell,
};
use hartline_abi::virtio::net_command::{ERROR, MULTIQUEUE, OK, SET_PAIRS};
use virtio_queue::Queue;

/// Most commands for a doorbell: as many as a driver can have waiting.
const BATCH: u16 = MAX_QUEUE_SIZE;
/// Length of the command for several pairs, bytes: class, command, and 16 bits of data.
const LENGTH: usize = 4;

/// Does what the guest has asked for. `set_pairs` is told how many pairs are to be used, which
/// may be any number; its result is whether they are. Result: whether the guest was interrupted.
///
/// # Errors
/// A broken ring, or a command without room for the answer.
pub(super) fn serve(
    queue: &mut Queue,
    memory: &Memory,
    guest: &dyn Guest,
    mut set_pairs: impl FnMut(u16) -> bool,
) -> Result<bool, DeviceError> {
    let mut done = 0;
    loop {
        while done < BATCH
            && let Some(chain) = next_chain(queue, memory, Direction::Both)?
        {
            let (command, answer) = chain.buffers.split_at(chain.readable);
            if length(answer) == 0 {
                return Err(DeviceError::Buffer);
            }
            let result = match pairs(command) {
                Some(pairs) if set_pairs(pairs) => OK,
                _ => ERROR,
            };
            // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
            unsafe { copy_to(answer, &[result]) };
            give_back(queue, memory, chain.head, 1)?;
            done += 1;
        }
        if !want_doorbell(queue, memory)? || done == BATCH {
            break;
        }
    }
    Ok(done > 0 && interrupt_for(queue, memory, guest)?)
}

/// How many pairs a command wants; none if it is another one, or not as long as it has to be.
fn pairs(command: &[libc::iovec]) -> Option<u16> {
    if length(command) != LENGTH {
        return None;
    }
    let mut bytes = [0; LENGTH];
    // SAFETY: buffers in the guest's RAM, which is mapped as long as the device.
    unsafe { copy_from(command, &mut bytes) };
    match bytes {
        [MULTIQUEUE, SET_PAIRS, low, high] => Some(u16::from_le_bytes([low, high])),
        _ => None,
    }
}
