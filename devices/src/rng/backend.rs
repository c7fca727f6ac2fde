//! The source of random bytes: the host's kernel.

use crate::virtio::Chain;
use rustix::rand::{GetRandomFlags, getrandom};

/// Most bytes of a chain. The vCPU thread fills the chain, so a guest with many large buffers must
/// not keep it for long.
pub(super) const MAX_LENGTH: usize = 4096;

/// Fills the first buffers of a chain with random bytes. Returns the number of bytes.
pub(super) fn fill(chain: &Chain) -> u32 {
    let mut bytes = [0; MAX_LENGTH];
    let room = chain.length.min(MAX_LENGTH);
    let bytes = &mut bytes[..room];
    // Up to 256 bytes are always complete. A signal may shorten a longer read.
    let count = getrandom(&mut *bytes, GetRandomFlags::empty()).unwrap_or(0);
    chain.buffers.copy_to(&bytes[..count]);
    // At most MAX_LENGTH.
    u32::try_from(count).unwrap_or(u32::MAX)
}
