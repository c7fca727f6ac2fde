//! What an entropy device did.

use crate::virtio::stats::statistics;

statistics! {
    /// Requests.
    requests,
    /// Random bytes that the guest was given.
    bytes,
    /// Interrupts of the guest.
    interrupts,
    /// Doorbells that the guest rang.
    doorbells,
}
