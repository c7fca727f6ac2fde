//! Counters of a console.

use crate::virtio::stats::statistics;

statistics! {
    /// TX chains.
    sent_buffers,
    /// Bytes of TX chains, also those that a closed port dropped.
    sent_bytes,
    /// Interrupts of the guest.
    interrupts,
    /// Notifications of the driver.
    kicks,
    /// Busy-polls of the queues.
    polls,
    /// Times that the thread slept.
    sleeps,
}
