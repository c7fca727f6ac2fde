//! Counters of a network device.

use crate::virtio::stats::statistics;

statistics! {
    /// RX packets.
    received_packets,
    /// Bytes of RX packets.
    received_bytes,
    /// TX packets.
    sent_packets,
    /// Bytes of TX packets.
    sent_bytes,
    /// TX packets that were malformed or that the backend did not take.
    dropped,
    /// Times that the limits stopped a direction.
    throttled,
    /// Interrupts of the guest.
    interrupts,
    /// Notifications of the driver.
    kicks,
    /// Busy-polls of the rings.
    polls,
    /// Times that the thread slept.
    sleeps,
}

impl Statistics {
    /// The sum of the counters of pairs of queues.
    #[must_use]
    pub fn sum(pairs: &[Self]) -> Self {
        pairs.iter().copied().fold(Self::default(), Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            received_packets: self.received_packets + other.received_packets,
            received_bytes: self.received_bytes + other.received_bytes,
            sent_packets: self.sent_packets + other.sent_packets,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            dropped: self.dropped + other.dropped,
            throttled: self.throttled + other.throttled,
            interrupts: self.interrupts + other.interrupts,
            kicks: self.kicks + other.kicks,
            polls: self.polls + other.polls,
            sleeps: self.sleeps + other.sleeps,
        }
    }
}
