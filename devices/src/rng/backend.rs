//! The source of random bytes: the host's kernel.

use crate::virtio::Chain;

/// Most bytes of a chain. The vCPU thread fills the chain, so a guest with many large buffers must
/// not keep it for long.
pub(super) const MAX_LENGTH: usize = 4096;

/// Fills the first buffers of a chain with random bytes. Returns the number of bytes.
pub(super) fn fill(chain: &Chain) -> u32 {
    let mut filled = 0;
    for buffer in &chain.buffers {
        let room = buffer.iov_len.min(MAX_LENGTH - filled);
        // SAFETY: `next_chain` has found the buffer in the guest's RAM, which stays mapped as long
        // as the device has its `Memory`, and `room` is not longer than the buffer. The guest may
        // change the bytes meanwhile; the kernel writes them and nobody else here reads them.
        let result = unsafe { libc::getrandom(buffer.iov_base, room, 0) };
        // Up to 256 bytes are always complete. A signal may shorten a longer read.
        let count = usize::try_from(result).unwrap_or(0);
        filled += count;
        if count < room || filled == MAX_LENGTH {
            break;
        }
    }
    filled as u32
}
