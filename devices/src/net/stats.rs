//! What a network device did.

use crate::virtio::stats::statistics;

statistics! {
    /// Packets that the guest received.
    received_packets,
    /// Their bytes.
    received_bytes,
    /// Packets that the guest sent.
    sent_packets,
    /// Their bytes.
    sent_bytes,
    /// Packets of the guest that the host did not take.
    dropped,
    /// Times that packets waited for the limits.
    throttled,
    /// Interrupts of the guest.
    interrupts,
    /// Doorbells that the guest rang.
    doorbells,
    /// Times that the thread had nothing to do and watched the rings.
    polls,
    /// Times that it slept.
    sleeps,
}
