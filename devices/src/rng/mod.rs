//! The entropy device (virtio 1.3, section 5.4): random bytes of the host's kernel.
//!
//! The device has no thread. Guests want few bytes and seldom, so the vCPU thread that handles the
//! driver's notification fills the buffers before it returns.

mod backend;
mod device;
mod stats;
#[cfg(test)]
mod tests;

pub use device::Rng;
pub use stats::{Counters, Statistics};
