//! Counters of an entropy device.

use crate::virtio::stats::statistics;

statistics! {
    /// Requests.
    requests,
    /// Random bytes that the guest received.
    bytes,
    /// Interrupts of the guest.
    interrupts,
    /// Notifications of the driver.
    kicks,
}
