//! The registers of a device (virtio 1.3, section 4.2).

use super::{Device, MAX_QUEUE_SIZE, Memory};
use hartline_abi::virtio::{MAGIC, VERSION, feature, register, status};
use virtio_queue::{Queue, QueueT};

/// "HART".
const VENDOR: u32 = 0x5452_4148;

/// One device's registers.
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
}

impl Transport {
    /// The registers of `device`, whose rings are in `memory`. It is reset.
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
        };
        transport.reset();
        transport
    }

    /// Stops the device and forgets what the driver has set.
    pub fn reset(&mut self) {
        self.device.reset();
        self.status = 0;
        self.driver_features = 0;
        (self.device_features_select, self.driver_features_select) = (0, 0);
        self.queue_select = 0;
        self.queues = (0..self.device.queues())
            .filter_map(|_| Queue::new(MAX_QUEUE_SIZE).ok())
            .collect();
    }

    fn features(&self) -> u64 {
        self.device.features() | feature::VERSION_1 | feature::EVENT_INDEX
    }

    /// What the guest reads at an offset of the page. What is not there is zero.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let Some(at) = offset.checked_sub(register::CONFIG) {
            let config = usize::try_from(at)
                .ok()
                .and_then(|at| self.device.config().get(at..));
            for (to, from) in data.iter_mut().zip(config.unwrap_or_default()) {
                *to = *from;
            }
        } else if data.len() == 4 {
            data.copy_from_slice(&self.register(offset).to_le_bytes());
        }
    }

    fn register(&self, offset: u64) -> u32 {
        let queue = || self.queues.get(self.queue_select as usize);
        match offset {
            register::MAGIC => MAGIC,
            register::VERSION => VERSION,
            register::DEVICE_ID => self.device.kind(),
            register::VENDOR_ID => VENDOR,
            register::DEVICE_FEATURES => half(self.features(), self.device_features_select),
            register::QUEUE_SIZE_MAX => queue().map_or(0, |queue| queue.max_size().into()),
            register::QUEUE_READY => queue().map_or(0, |queue| queue.ready().into()),
            register::STATUS => self.status,
            // Interrupts have a word in shared memory.
            register::INTERRUPT_STATUS | register::CONFIG_GENERATION => 0,
            _ => 0,
        }
    }

    /// What the guest writes at an offset of the page. What is wrong has no effect, or
    /// makes the device ask for a reset.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let Ok(bytes) = <[u8; 4]>::try_from(data) else {
            return;
        };
        let value = u32::from_le_bytes(bytes);
        match offset {
            register::DEVICE_FEATURES_SELECT => self.device_features_select = value,
            register::DRIVER_FEATURES_SELECT => self.driver_features_select = value,
            register::QUEUE_SELECT => self.queue_select = value,
            register::STATUS => self.set_status(value),
            register::QUEUE_NOTIFY if self.status & status::DRIVER_OK != 0 => {
                self.device.notify(value);
            }
            register::DRIVER_FEATURES if self.status & status::FEATURES_OK == 0 => {
                set_half(
                    &mut self.driver_features,
                    self.driver_features_select,
                    value,
                );
            }
            _ if self.status & status::DRIVER_OK == 0 => self.set_queue(offset, value),
            _ => {}
        }
    }

    fn set_queue(&mut self, offset: u64, value: u32) {
        let Some(queue) = self.queues.get_mut(self.queue_select as usize) else {
            return;
        };
        let low = Some(value);
        match offset {
            register::QUEUE_SIZE => queue.set_size(u16::try_from(value).unwrap_or(0)),
            register::QUEUE_READY => queue.set_ready(value == 1),
            register::QUEUE_DESCRIPTORS => queue.set_desc_table_address(low, None),
            QUEUE_DESCRIPTORS_HIGH => queue.set_desc_table_address(None, low),
            register::QUEUE_AVAILABLE => queue.set_avail_ring_address(low, None),
            QUEUE_AVAILABLE_HIGH => queue.set_avail_ring_address(None, low),
            register::QUEUE_USED => queue.set_used_ring_address(low, None),
            QUEUE_USED_HIGH => queue.set_used_ring_address(None, low),
            _ => {}
        }
    }

    /// The driver's steps of section 3.1.1.
    fn set_status(&mut self, value: u32) {
        if value == 0 {
            return self.reset();
        }
        let added = value & !self.status;
        self.status |= value & !status::NEEDS_RESET;
        let known = self.driver_features & !self.features() == 0;
        if added & status::FEATURES_OK != 0
            && (!known || self.driver_features & feature::VERSION_1 == 0)
        {
            self.status &= !status::FEATURES_OK;
        }
        if added & status::DRIVER_OK != 0 && !self.activate() {
            self.status |= status::NEEDS_RESET;
            self.status &= !status::DRIVER_OK;
        }
    }

    fn activate(&mut self) -> bool {
        if self.status & status::FEATURES_OK == 0 {
            return false;
        }
        let has_events = self.driver_features & feature::EVENT_INDEX != 0;
        for queue in &mut self.queues {
            queue.set_event_idx(has_events);
        }
        let mut queues = std::mem::take(&mut self.queues);
        queues.truncate(self.device.queues_with(self.driver_features));
        let is_valid = |(number, queue): (usize, &Queue)| {
            queue.is_valid(self.memory.map()) || !queue.ready() && self.device.may_lack(number)
        };
        queues.iter().enumerate().all(is_valid)
            && self.device.activate(self.driver_features, queues)
    }
}

const QUEUE_DESCRIPTORS_HIGH: u64 = register::QUEUE_DESCRIPTORS + 4;
const QUEUE_AVAILABLE_HIGH: u64 = register::QUEUE_AVAILABLE + 4;
const QUEUE_USED_HIGH: u64 = register::QUEUE_USED + 4;

/// 32 bits of a word of features.
fn half(word: u64, select: u32) -> u32 {
    match select {
        0 => word as u32,
        1 => (word >> 32) as u32,
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
