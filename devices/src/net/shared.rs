//! The state that all pairs of queues of a network device share.

use crate::limiter::Limiter;
use crate::virtio::{Guest, Memory, ThreadInit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The state that all pairs of queues share.
pub(super) struct Shared {
    /// The memory of the rings and buffers.
    pub memory: Memory,
    pub guest: Arc<dyn Guest>,
    /// Longest busy-poll of a thread before it sleeps.
    pub polling: Duration,
    pub rx_limiter: Limiter,
    pub tx_limiter: Limiter,
    /// The function that each thread calls first.
    pub init_thread: ThreadInit,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("rx_limiter", &self.rx_limiter)
            .field("tx_limiter", &self.tx_limiter)
            .finish_non_exhaustive()
    }
}
