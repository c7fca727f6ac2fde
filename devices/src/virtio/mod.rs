//! Common parts of all virtio devices: the guest's memory, the virtqueues, the MMIO transport and
//! the loop of a device's thread. Everything in a ring comes from the guest and is checked.

#[cfg(test)]
mod abi_tests;
mod buffers;
pub(crate) mod constant;
mod device;
pub(crate) mod kick;
mod memory;
pub mod mmio;
pub(crate) mod queue;
pub(crate) mod stats;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod used_ring;
pub(crate) mod worker;

pub use buffers::Buffers;
#[cfg(any(test, kani))]
pub(crate) use buffers::properties;
pub(crate) use device::feature_bit;
pub use device::{ActivateError, Device, DeviceError, Guest, MAX_QUEUE_SIZE, ThreadInit};
pub use memory::{Memory, Owner};
pub(crate) use queue::{
    Chain, Direction, MAX_BUFFERS, add_used, enable_notification, next_chain, notify_used,
};
