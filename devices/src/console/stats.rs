//! What a console did.

use crate::virtio::stats::statistics;

statistics! {
    /// Buffers that the guest has sent.
    sent_buffers,
    /// Their bytes, those that a closed port swallowed too.
    sent_bytes,
    /// Interrupts of the guest.
    interrupts,
    /// Doorbells that the guest rang.
    doorbells,
    /// Times that the thread had nothing to do and began to watch the queues.
    polls,
    /// Times that it slept.
    sleeps,
}
