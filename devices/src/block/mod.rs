//! The block device (virtio 1.3, section 5.2): a file or block device of the host. Requests are
//! served with the host's system calls, directly from and to the guest's memory.
//!
//! One thread polls the ring and serves requests that the host can complete from its page cache.
//! If a read must wait for storage, the thread starts it and retries it while it polls the ring, so
//! reads of fast storage need no other thread. Other threads wait for slower requests
//! (`pool.rs`), unless the guest makes one request at a time: then many requests can wait together,
//! and fast requests overtake them. (`io_uring` would save these threads, but a seccomp filter does
//! not see the operations of a ring. The ring would have to be restricted, as the ring for packets
//! is.)
//!
//! Written data is in the host's page cache when the request completes, so it survives the end of
//! this process. Flushed data survives the host.

mod backend;
mod device;
mod pool;
mod request;
mod shared;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

pub use backend::{Image, ImageError};
pub use device::Block;
pub use stats::{Counters, Statistics};
