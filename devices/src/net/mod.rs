//! The network device (virtio 1.3, section 5.1): pairs of an RX and a TX queue. Each pair has a
//! [`Backend`] and a thread that moves packets between the backend and the queues. A backend is a
//! queue of a TAP interface of the host, or a network that ends in this process.
//!
//! With `VIRTIO_NET_F_MRG_RXBUF` a packet fills as many RX buffers as it needs. Without it, each
//! buffer has room for the largest packet. The device does not touch the unused rest of a buffer.

mod backend;
mod control;
mod device;
mod queue_pair;
mod rx;
mod rx_buffers;
mod shared;
mod stats;
mod tap;
#[cfg(test)]
mod tests;
mod tx;
pub mod user;
mod worker;

pub use backend::Backend;
pub use device::Net;
pub use stats::{Counters, Statistics};
pub use tap::{Batch, Tap, TapError};
