//! What a block device did.

use crate::virtio::stats::statistics;

statistics! {
    /// Requests to read.
    reads,
    /// Bytes that were read.
    read_bytes,
    /// Requests to write.
    writes,
    /// Bytes that were written.
    written_bytes,
    /// Requests to make durable what was written.
    flushes,
    /// Requests to discard, or to make zero.
    discards,
    /// Requests that other threads served beside one another.
    handed_over,
    /// Times that the limits were reached.
    throttled,
    /// Requests that failed.
    errors,
    /// Interrupts of the guest.
    interrupts,
    /// Doorbells that the guest rang.
    doorbells,
    /// Times that the thread had nothing to do and watched the ring.
    polls,
    /// Times that it slept.
    sleeps,
}
