//! The registers of a device: the MMIO transport (virtio 1.3, section 4.2).

use super::{ActivateError, Device, MAX_QUEUE_SIZE, Memory, feature_bit};
use hartline_abi::virtio::{MAGIC, VERSION};
use std::time::Duration;
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_DRIVER_OK, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET,
    VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_mmio::*;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueState, QueueT};

/// Value of `VIRTIO_MMIO_VENDOR_ID`: "HART".
const VENDOR: u32 = 0x5452_4148;
/// The features of the transport itself.
const TRANSPORT_FEATURES: u64 =
    feature_bit(VIRTIO_F_VERSION_1) | feature_bit(VIRTIO_RING_F_EVENT_IDX);

/// The state of an active device.
#[derive(Debug, Clone)]
pub struct Saved {
    status: u32,
    driver_features: u64,
    queues: Vec<QueueState>,
}

/// The registers of one device.
#[derive(Debug)]
pub struct Transport {
    device: Box<dyn Device>,
    memory: Memory,
    status: u32,
    device_features_select: u32,
    driver_features_select: u32,
    driver_features: u64,
    queue_select: u32,
    queues: Vec<Queue>,
    activate_error: Option<ActivateError>,
}

impl Transport {
    /// The registers of `device`, whose rings are in `memory`. The device is reset.
    #[must_use]
    pub fn new(device: Box<dyn Device>, memory: Memory) -> Self {
        let mut transport = Self {
            device,
            memory,
            status: 0,
            device_features_select: 0,
            driver_features_select: 0,
            driver_features: 0,
            queue_select: 0,
            queues: Vec::new(),
            activate_error: None,
        };
        transport.reset();
        transport
    }

    /// Stops the device and resets the driver's settings.
    pub fn reset(&mut self) {
        self.device.reset();
        self.status = 0;
        self.driver_features = 0;
        (self.device_features_select, self.driver_features_select) = (0, 0);
        self.queue_select = 0;
        self.queues = (0..self.device.queues())
            .filter_map(|_| Queue::new(MAX_QUEUE_SIZE).ok())
            .collect();
        self.activate_error = None;
    }

    /// Delivers what the guest has given to the device ([`Device::finish`]).
    pub fn finish(&mut self, limit: Duration) {
        self.device.finish(limit);
    }

    /// The state of the device. `None`: the driver has not started it, or its state cannot be saved. The device may
    /// have stopped then, until it is [restored](Self::restore).
    #[must_use]
    pub fn save(&self) -> Option<Saved> {
        Some(Saved {
            status: self.status,
            driver_features: self.driver_features,
            queues: self.device.queue_states()?,
        })
    }

    /// Puts the device into a state of [`save`](Self::save); `None`: resets it. The rings in the guest's memory are as
    /// they were then. Requests in progress are completed or dropped when this returns.
    ///
    /// # Errors
    /// [`ActivateError`]: the device is reset then.
    pub fn restore(&mut self, saved: Option<&Saved>) -> Result<(), ActivateError> {
        self.reset();
        let Some(saved) = saved else { return Ok(()) };
        let queues = saved
            .queues
            .iter()
            .filter_map(|&state| Queue::try_from(state).ok());
        self.device
            .activate(saved.driver_features, queues.collect())?;
        self.queues.clear();
        (self.status, self.driver_features) = (saved.status, saved.driver_features);
        Ok(())
    }

    /// Takes the reason why the device was not activated when the driver last set `DRIVER_OK`. `None`
    /// if it was activated, and after a reset.
    pub fn take_activate_error(&mut self) -> Option<ActivateError> {
        self.activate_error.take()
    }

    fn features(&self) -> u64 {
        self.device.features() | TRANSPORT_FEATURES
    }

    /// Reads from an offset of the register page. Bytes outside the registers are zero.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let Some(at) = offset.checked_sub(VIRTIO_MMIO_CONFIG.into()) {
            let config = usize::try_from(at)
                .ok()
                .and_then(|at| self.device.config().get(at..));
            for (to, from) in data.iter_mut().zip(config.unwrap_or_default()) {
                *to = *from;
            }
        } else if let (4, Ok(offset)) = (data.len(), u32::try_from(offset)) {
            data.copy_from_slice(&self.register(offset).to_le_bytes());
        }
    }

    fn register(&self, offset: u32) -> u32 {
        let queue = || self.queues.get(self.queue_select as usize);
        match offset {
            VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            VIRTIO_MMIO_VERSION => VERSION,
            VIRTIO_MMIO_DEVICE_ID => self.device.device_id(),
            VIRTIO_MMIO_VENDOR_ID => VENDOR,
            VIRTIO_MMIO_DEVICE_FEATURES => half(self.features(), self.device_features_select),
            VIRTIO_MMIO_QUEUE_NUM_MAX => queue().map_or(0, |queue| queue.max_size().into()),
            VIRTIO_MMIO_QUEUE_READY => queue().map_or(0, |queue| queue.ready().into()),
            VIRTIO_MMIO_STATUS => self.status,
            // Interrupts have a word in shared memory, and configurations do not change.
            VIRTIO_MMIO_INTERRUPT_STATUS | VIRTIO_MMIO_CONFIG_GENERATION => 0,
            _ => 0,
        }
    }

    /// Writes to an offset of the register page. A wrong write has no effect, or the device asks
    /// for a reset.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let (Ok(offset), Ok(bytes)) = (u32::try_from(offset), <[u8; 4]>::try_from(data)) else {
            return;
        };
        let value = u32::from_le_bytes(bytes);
        match offset {
            VIRTIO_MMIO_DEVICE_FEATURES_SEL => self.device_features_select = value,
            VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.driver_features_select = value,
            VIRTIO_MMIO_QUEUE_SEL => self.queue_select = value,
            VIRTIO_MMIO_STATUS => self.set_status(value),
            VIRTIO_MMIO_QUEUE_NOTIFY if self.has(VIRTIO_CONFIG_S_DRIVER_OK) => {
                self.device.notify(value);
            }
            VIRTIO_MMIO_DRIVER_FEATURES if !self.has(VIRTIO_CONFIG_S_FEATURES_OK) => {
                set_half(
                    &mut self.driver_features,
                    self.driver_features_select,
                    value,
                );
            }
            _ if !self.has(VIRTIO_CONFIG_S_DRIVER_OK) => self.set_queue(offset, value),
            _ => {}
        }
    }

    /// Whether the status has this bit.
    fn has(&self, bit: u32) -> bool {
        self.status & bit != 0
    }

    fn set_queue(&mut self, offset: u32, value: u32) {
        let Some(queue) = self.queues.get_mut(self.queue_select as usize) else {
            return;
        };
        let half = Some(value);
        match offset {
            VIRTIO_MMIO_QUEUE_NUM => queue.set_size(u16::try_from(value).unwrap_or(0)),
            VIRTIO_MMIO_QUEUE_READY => queue.set_ready(value == 1),
            VIRTIO_MMIO_QUEUE_DESC_LOW => queue.set_desc_table_address(half, None),
            VIRTIO_MMIO_QUEUE_DESC_HIGH => queue.set_desc_table_address(None, half),
            VIRTIO_MMIO_QUEUE_AVAIL_LOW => queue.set_avail_ring_address(half, None),
            VIRTIO_MMIO_QUEUE_AVAIL_HIGH => queue.set_avail_ring_address(None, half),
            VIRTIO_MMIO_QUEUE_USED_LOW => queue.set_used_ring_address(half, None),
            VIRTIO_MMIO_QUEUE_USED_HIGH => queue.set_used_ring_address(None, half),
            _ => {}
        }
    }

    /// Performs the driver's steps of section 3.1.1.
    fn set_status(&mut self, value: u32) {
        if value == 0 {
            return self.reset();
        }
        let added = value & !self.status;
        self.status |= value & !VIRTIO_CONFIG_S_NEEDS_RESET;
        if added & VIRTIO_CONFIG_S_FEATURES_OK != 0 && !self.accepts_features() {
            self.status &= !VIRTIO_CONFIG_S_FEATURES_OK;
        }
        if added & VIRTIO_CONFIG_S_DRIVER_OK != 0 {
            self.activate_error = self.activate().err();
            if self.activate_error.is_some() {
                self.status |= VIRTIO_CONFIG_S_NEEDS_RESET;
                self.status &= !VIRTIO_CONFIG_S_DRIVER_OK;
            }
        }
    }

    /// Whether the driver has accepted `VIRTIO_F_VERSION_1` and only features that are offered.
    fn accepts_features(&self) -> bool {
        let is_offered = self.driver_features & !self.features() == 0;
        is_offered && self.driver_features & feature_bit(VIRTIO_F_VERSION_1) != 0
    }

    fn activate(&mut self) -> Result<(), ActivateError> {
        let device = self.device.name();
        if !self.has(VIRTIO_CONFIG_S_FEATURES_OK) {
            let status = self.status;
            return Err(ActivateError::Status { device, status });
        }
        let has_event_idx = self.driver_features & feature_bit(VIRTIO_RING_F_EVENT_IDX) != 0;
        let mut queues = std::mem::take(&mut self.queues);
        queues.truncate(self.device.queues_with(self.driver_features));
        for (number, queue) in queues.iter_mut().enumerate() {
            queue.set_event_idx(has_event_idx);
            let is_left_out = !queue.ready() && self.device.is_optional(number);
            if !queue.is_valid(self.memory.map()) && !is_left_out {
                return Err(ActivateError::Queue {
                    device,
                    queue: number,
                    size: queue.size(),
                    ready: queue.ready(),
                });
            }
        }
        self.device.activate(self.driver_features, queues)
    }
}

/// The low and the high half of a word.
pub(crate) fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes)
}

/// One of the two 32-bit halves of a word of features.
fn half(word: u64, select: u32) -> u32 {
    let [low, high] = halves(word);
    match select {
        0 => low,
        1 => high,
        _ => 0,
    }
}

fn set_half(word: &mut u64, select: u32, value: u32) {
    match select {
        0 => *word = *word & !u64::from(u32::MAX) | u64::from(value),
        1 => *word = *word & u64::from(u32::MAX) | u64::from(value) << 32,
        _ => {}
    }
}
