//! The interfaces between a device, its transport and its guest, and the errors of a device.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use virtio_queue::{Queue, QueueState};

/// Largest number of entries of a queue.
pub const MAX_QUEUE_SIZE: u16 = 256;

/// The mask of a feature bit, which `virtio-bindings` has as a number.
pub(crate) const fn feature_bit(number: u32) -> u64 {
    1 << number
}

/// Why a device stopped: the guest's driver is broken or hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The available index is too far ahead, or a ring is not in RAM.
    #[error("the guest's driver used an invalid ring")]
    Ring,
    /// A buffer is not in RAM, too short, or of the wrong direction.
    #[error("the guest's driver used an invalid buffer")]
    Buffer,
}

/// Why a device was not activated when the driver set `DRIVER_OK`.
///
/// `device` is the device's name and `queue` the number of one of its queues.
#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// The driver has not negotiated the features before.
    #[error("{device}: cannot activate: status {status:#x} lacks FEATURES_OK")]
    Status {
        /// Name of the device.
        device: &'static str,
        /// The device status that the driver has set.
        status: u32,
    },
    /// The driver has not accepted features that this device or another feature needs.
    #[error("{device}: cannot activate: driver features {features:#x} lack {missing:#x}")]
    Features {
        /// Name of the device.
        device: &'static str,
        /// The features that the driver has accepted.
        features: u64,
        /// The features that are missing.
        missing: u64,
    },
    /// A queue is not ready, has a size that is not allowed, or does not lie in RAM.
    #[error(
        "{device}: cannot activate queue {queue} of {size} entries \
         (ready: {ready}): its rings must be aligned and in RAM"
    )]
    Queue {
        /// Name of the device.
        device: &'static str,
        /// Number of the queue.
        queue: usize,
        /// The number of entries that the driver has set.
        size: u16,
        /// Whether the driver has set `QueueReady`.
        ready: bool,
    },
    /// The features need another number of queues.
    #[error("{device}: cannot activate {found} queues: the features need {expected}")]
    QueueCount {
        /// Name of the device.
        device: &'static str,
        /// The number of queues that were passed.
        found: usize,
        /// The number of queues that are needed.
        expected: usize,
    },
    /// The backend does not accept the driver's features or is gone after a panic.
    #[error("{device}: cannot activate the backend of queue {queue}: {source}")]
    Backend {
        /// Name of the device.
        device: &'static str,
        /// Number of the first queue that the backend serves.
        queue: usize,
        /// The reason.
        source: io::Error,
    },
    /// The host has not started the thread of a queue.
    #[error("{device}: cannot start the thread of queue {queue}: {source}")]
    Thread {
        /// Name of the device.
        device: &'static str,
        /// Number of the first queue that the thread serves.
        queue: usize,
        /// The reason.
        source: io::Error,
    },
}

/// The guest of a device.
pub trait Guest: Send + Sync + Debug {
    /// Interrupts the guest: there are used buffers.
    fn interrupt(&self);

    /// Says whether the calling thread calls [`poll`](Self::poll) all the time from now on.
    fn set_polling(&self, _is_polling: bool) {}

    /// Lets the guest's side run what waits for a polling thread. A thread that polls its rings
    /// calls this each time.
    fn poll(&self) {}

    /// Reports that the device has stopped.
    fn fail(&self, error: DeviceError);
}

/// A function that a device's thread calls first, to confine itself.
pub type ThreadInit = Arc<dyn Fn() + Send + Sync>;

/// A device behind a transport.
pub trait Device: Send + Debug {
    /// The name of the device in errors.
    fn name(&self) -> &'static str;

    /// The device ID (`VIRTIO_ID_…`).
    fn device_id(&self) -> u32;

    /// The feature bits that the device offers.
    fn features(&self) -> u64;

    /// The number of queues.
    fn queues(&self) -> usize;

    /// The number of queues, from the first one on, that a driver with these features sets up.
    fn queues_with(&self, features: u64) -> usize {
        let _ = features;
        self.queues()
    }

    /// Whether a driver may leave out a queue. The device never uses such a queue.
    fn is_optional(&self, _queue: usize) -> bool {
        false
    }

    /// The configuration space.
    fn config(&self) -> &[u8];

    /// Starts the device with the features and the [queues](Self::queues_with) that the driver
    /// has set up.
    ///
    /// # Errors
    /// [`ActivateError`]: the device cannot start with these features or queues.
    fn activate(&mut self, features: u64, queues: Vec<Queue>) -> Result<(), ActivateError>;

    /// The queues as [`activate`](Self::activate) takes them, with the positions in their rings. `None`: the device
    /// is not active, or it has other state too. The device may have stopped then, until it is reset and activated
    /// again.
    fn queue_states(&self) -> Option<Vec<QueueState>> {
        None
    }

    /// Handles a notification of the driver: a queue has available buffers.
    fn notify(&self, queue: u32);

    /// Delivers what the guest has given to the device, for at most `limit`, at the end of the VM. The driver does
    /// nothing any more.
    fn finish(&mut self, limit: Duration) {
        let _ = limit;
    }

    /// Stops the device. Requests in progress are completed or dropped when this returns.
    fn reset(&mut self);
}
