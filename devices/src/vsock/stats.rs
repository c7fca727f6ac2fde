//! Counters of a socket device.

use crate::virtio::stats::statistics;

statistics! {
    /// Connections that were established by either end.
    connections,
    /// Connections that were refused by either end.
    refused,
    /// RX packets.
    received_packets,
    /// Bytes of streams in RX packets.
    received_bytes,
    /// TX packets.
    sent_packets,
    /// Bytes of streams in TX packets.
    sent_bytes,
    /// Interrupts of the guest.
    interrupts,
    /// Notifications of the driver.
    kicks,
    /// Busy-polls of the rings.
    polls,
    /// Times that the thread slept.
    sleeps,
}
