//! Drivers of virtio devices ([`hartline_abi::virtio`]). They poll their rings; the doorbell
//! of a device is rung only when it sleeps.

pub mod block;
pub mod console;
pub(crate) mod interrupt;
mod mmio;
pub mod net;
mod queue;
pub mod rng;
pub mod vectors;
pub mod vsock;

pub use mmio::StartError;
