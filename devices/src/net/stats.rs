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

impl Statistics {
    /// What pairs of queues did together.
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
            doorbells: self.doorbells + other.doorbells,
            polls: self.polls + other.polls,
            sleeps: self.sleeps + other.sleeps,
        }
    }
}
