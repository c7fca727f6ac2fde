//! Counters of a block device.

use crate::virtio::stats::statistics;

statistics! {
    /// Read requests.
    reads,
    /// Bytes that were read.
    read_bytes,
    /// Write requests.
    writes,
    /// Bytes that were written.
    written_bytes,
    /// Flush requests.
    flushes,
    /// Discard and write-zeroes requests.
    discards,
    /// Requests that threads of the pool served.
    handed_over,
    /// Times that the limits stopped the thread.
    throttled,
    /// Requests that failed.
    errors,
    /// Interrupts of the guest.
    interrupts,
    /// Notifications of the driver.
    kicks,
    /// Busy-polls of the ring.
    polls,
    /// Times that the thread slept.
    sleeps,
}
