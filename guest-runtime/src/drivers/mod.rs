//! Drivers of virtio devices ([`hartline_abi::virtio`]). They poll their rings, and notify a device
//! only when it sleeps.

pub mod block;
pub mod console;
pub(crate) mod exports;
pub(crate) mod interrupt;
mod mmio;
pub mod net;
mod queue;
pub mod rng;
pub mod spawn;
pub mod streams;
pub mod tree_reader;
pub mod vectors;
pub mod volume;
pub mod vsock;

pub use mmio::StartError;
