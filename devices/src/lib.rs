//! The host side of Hartline's devices.

pub mod block;
pub mod console;
pub mod lateness;
pub mod limiter;
pub mod net;
pub mod rng;
pub mod virtio;
pub mod volume;
pub mod vsock;
