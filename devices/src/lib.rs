//! Hartline's devices: virtio devices and volumes, with their backends on the host.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod block;
pub mod console;
pub(crate) mod epoll;
pub mod event;
pub mod lateness;
pub mod limiter;
pub mod net;
pub(crate) mod poll;
pub mod rng;
pub mod timeline;
pub mod virtio;
pub mod volume;
pub mod vsock;
