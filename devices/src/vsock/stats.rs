//! What a socket device did.

use crate::virtio::stats::statistics;

statistics! {
    /// Connections that were made, either way.
    connections,
    /// Connections that were asked for and not made.
    refused,
    /// Packets that the guest received.
    received_packets,
    /// Bytes of streams in them.
    received_bytes,
    /// Packets that the guest sent.
    sent_packets,
    /// Bytes of streams in them.
    sent_bytes,
    /// Interrupts of the guest.
    interrupts,
    /// Doorbells that the guest rang.
    doorbells,
    /// Times that the thread had nothing to do and watched the rings.
    polls,
    /// Times that it slept.
    sleeps,
}
