//! Hartline's devices: virtio devices and volumes, with their backends on the host.

pub mod block;
pub mod console;
pub(crate) mod epoll;
pub mod event;
pub mod lateness;
pub mod limiter;
pub mod net;
pub(crate) mod poll;
pub mod rng;
pub mod virtio;
pub mod volume;
pub mod vsock;
