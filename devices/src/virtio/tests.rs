//! Correct, wrong and hostile drivers.

use super::mmio::{Transport, halves};
use super::*;
use hartline_abi::virtio::MAGIC;
use std::sync::{Arc, Mutex, OnceLock};
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK,
    VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_mmio::*;
use virtio_bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// Address and length of the guest's memory.
pub const BASE: u64 = 1 << 32;
const LENGTH: usize = 64 << 10;
/// Addresses of the parts of the only queue.
const DESCRIPTORS: u64 = BASE;
pub const AVAILABLE: u64 = BASE + 0x1000;
pub const USED: u64 = BASE + 0x2000;
pub const SIZE: u16 = 8;
/// Flags of descriptors.
pub const NEXT: u16 = half_word(VRING_DESC_F_NEXT);
pub const WRITE: u16 = half_word(VRING_DESC_F_WRITE);

/// A constant of 16 bits.
const fn half_word(number: u32) -> u16 {
    match number.to_le_bytes() {
        [low, high, 0, 0] => u16::from_le_bytes([low, high]),
        _ => panic!("the constant has more than 16 bits"),
    }
}

/// A guest that remembers why the device stopped.
#[derive(Debug, Default)]
pub struct Watcher(OnceLock<DeviceError>);

impl Watcher {
    /// Why the device stopped, if it did.
    pub fn failure(&self) -> Option<DeviceError> {
        self.0.get().copied()
    }
}

impl Guest for Watcher {
    fn interrupt(&self) {}

    fn fail(&self, error: DeviceError) {
        self.0.set(error).expect("the device stops once");
    }
}

pub fn memory() -> Memory {
    Memory::anonymous(LENGTH, BASE).unwrap()
}

/// Buffers with these contents, one after the other in separate memory.
pub fn filled(parts: &[&[u8]]) -> Buffers {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let memory = Memory::anonymous(length + 1, BASE).unwrap();
    let mut buffers = Buffers::new(&memory);
    let mut at = BASE;
    for part in parts {
        buffers.push(at, part.len()).unwrap();
        at += part.len() as u64;
    }
    buffers.copy_to(&parts.concat());
    buffers
}

/// The bytes of buffers.
pub fn contents(buffers: &Buffers) -> Vec<u8> {
    let mut bytes = vec![0; buffers.length()];
    buffers.copy_from(&mut bytes);
    bytes
}

/// A device with one queue that records with which features it was activated.
#[derive(Debug, Default)]
struct Recorder(Arc<Mutex<Option<u64>>>);

impl Device for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn device_id(&self) -> u32 {
        77
    }

    fn features(&self) -> u64 {
        1
    }

    fn queues(&self) -> usize {
        1
    }

    fn config(&self) -> &[u8] {
        &[1, 2, 3]
    }

    fn activate(&mut self, features: u64, _: Vec<Queue>) -> Result<(), ActivateError> {
        *self.0.lock().unwrap() = Some(features);
        Ok(())
    }

    fn notify(&self, _: u32) {}

    fn reset(&mut self) {
        *self.0.lock().unwrap() = None;
    }
}

fn transport() -> (Transport, Arc<Mutex<Option<u64>>>) {
    let device = Recorder::default();
    let started = Arc::clone(&device.0);
    (Transport::new(Box::new(device), memory()), started)
}

fn read(transport: &Transport, offset: u32) -> u32 {
    let mut bytes = [0; 4];
    transport.read(offset.into(), &mut bytes);
    u32::from_le_bytes(bytes)
}

/// The status of a driver before it has settled the features.
const DRIVER: u32 = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER;

/// Sets the device up with a queue at these addresses. Returns its status.
fn start(transport: &mut Transport, features: u64, queue: [u64; 3]) -> u32 {
    let mut write = |offset: u32, value: u64| {
        let [low, _] = halves(value);
        transport.write(offset.into(), &low.to_le_bytes());
    };
    write(VIRTIO_MMIO_STATUS, 0);
    write(VIRTIO_MMIO_STATUS, DRIVER.into());
    for half in 0..2 {
        write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, half);
        write(VIRTIO_MMIO_DRIVER_FEATURES, features >> (32 * half));
    }
    let features_ok = DRIVER | VIRTIO_CONFIG_S_FEATURES_OK;
    write(VIRTIO_MMIO_STATUS, features_ok.into());
    write(VIRTIO_MMIO_QUEUE_NUM, SIZE.into());
    let registers = [
        (VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_DESC_HIGH),
        (VIRTIO_MMIO_QUEUE_AVAIL_LOW, VIRTIO_MMIO_QUEUE_AVAIL_HIGH),
        (VIRTIO_MMIO_QUEUE_USED_LOW, VIRTIO_MMIO_QUEUE_USED_HIGH),
    ];
    for ((low, high), address) in registers.into_iter().zip(queue) {
        write(low, address);
        write(high, address >> 32);
    }
    write(VIRTIO_MMIO_QUEUE_READY, 1);
    write(
        VIRTIO_MMIO_STATUS,
        (features_ok | VIRTIO_CONFIG_S_DRIVER_OK).into(),
    );
    read(transport, VIRTIO_MMIO_STATUS)
}

const QUEUE: [u64; 3] = [DESCRIPTORS, AVAILABLE, USED];

#[test]
fn a_driver_starts_the_device() {
    let (mut transport, started) = transport();
    assert_eq!(read(&transport, VIRTIO_MMIO_MAGIC_VALUE), MAGIC);
    assert_eq!(read(&transport, VIRTIO_MMIO_DEVICE_ID), 77);
    assert_eq!(read(&transport, VIRTIO_MMIO_CONFIG), 0x0003_0201);
    assert_eq!(read(&transport, VIRTIO_MMIO_CONFIG + 4), 0);
    let features = feature_bit(VIRTIO_F_VERSION_1) | feature_bit(VIRTIO_RING_F_EVENT_IDX) | 1;
    let status = start(&mut transport, features, QUEUE);
    assert_ne!(status & VIRTIO_CONFIG_S_DRIVER_OK, 0);
    assert!(transport.take_activate_error().is_none());
    assert_eq!(*started.lock().unwrap(), Some(features));
    transport.write(VIRTIO_MMIO_STATUS.into(), &[0; 4]);
    assert_eq!(*started.lock().unwrap(), None);
}

#[test]
fn wrong_drivers_do_not_start_it() {
    let (mut transport, started) = transport();
    let version = feature_bit(VIRTIO_F_VERSION_1);
    for (features, queue) in [
        (1, QUEUE),
        (version | 2, QUEUE),
        (version, [BASE + LENGTH as u64 - 16, AVAILABLE, USED]),
        (version, [DESCRIPTORS, u64::MAX - 1, USED]),
        (version, [DESCRIPTORS, AVAILABLE, 0]),
    ] {
        let status = start(&mut transport, features, queue);
        assert_eq!(
            status & VIRTIO_CONFIG_S_DRIVER_OK,
            0,
            "{features:#x} {queue:x?}"
        );
        let error = transport.take_activate_error().unwrap();
        assert_eq!(
            matches!(
                error,
                ActivateError::Queue {
                    queue: 0,
                    size: SIZE,
                    ..
                }
            ),
            features == version,
            "{error}"
        );
        assert_eq!(*started.lock().unwrap(), None);
    }
    for offset in (0..0x200).step_by(1) {
        transport.write(offset, &[0xff; 4]);
        transport.write(offset, &[0xff; 8]);
        transport.read(offset, &mut [0; 8]);
    }
}

/// A queue with the descriptors of `chain`, whose driver has set this available index.
pub fn queue(memory: &Memory, chain: &[(u64, u32, u16, u16)], index: u16) -> Queue {
    let map = memory.map();
    for (n, &(address, length, flags, next)) in chain.iter().enumerate() {
        let at = GuestAddress(DESCRIPTORS + 16 * n as u64);
        map.write_obj(address, at).unwrap();
        map.write_obj(length, GuestAddress(at.0 + 8)).unwrap();
        map.write_obj(flags, GuestAddress(at.0 + 12)).unwrap();
        map.write_obj(next, GuestAddress(at.0 + 14)).unwrap();
    }
    map.write_obj(index, GuestAddress(AVAILABLE + 2)).unwrap();
    queue_at(QUEUE, SIZE)
}

/// A queue of `size` entries with its descriptors and rings at these addresses.
pub fn queue_at([descriptors, available, used]: [u64; 3], size: u16) -> Queue {
    let mut queue = Queue::new(MAX_QUEUE_SIZE).unwrap();
    queue.set_size(size);
    let [low, high] = halves(descriptors).map(Some);
    queue.set_desc_table_address(low, high);
    let [low, high] = halves(available).map(Some);
    queue.set_avail_ring_address(low, high);
    let [low, high] = halves(used).map(Some);
    queue.set_used_ring_address(low, high);
    queue.set_ready(true);
    queue
}

#[test]
fn chains_are_followed_and_become_used() {
    let memory = memory();
    let chain = [(BASE + 0x4000, 100, NEXT, 1), (BASE + 0x5000, 50, 0, 0)];
    let mut queue = queue(&memory, &chain, 1);
    let chain = next_chain(&mut queue, &memory, Direction::Read)
        .unwrap()
        .unwrap();
    assert_eq!(
        (chain.head, chain.length, chain.buffers.count()),
        (0, 150, 2)
    );
    assert!(
        next_chain(&mut queue, &memory, Direction::Read)
            .unwrap()
            .is_none()
    );
    add_used(&mut queue, &memory, chain.head, 7).unwrap();
    let used: u32 = memory.map().read_obj(GuestAddress(USED + 8)).unwrap();
    assert_eq!(used, 7);
}

#[test]
fn bad_chains_are_errors() {
    let memory = memory();
    let inside = BASE + 0x4000;
    for (chain, index, expected) in [
        // Outside RAM, across its end, across the end of the address space.
        (vec![(0x1000, 10, 0, 0)], 1, DeviceError::Buffer),
        (
            vec![(BASE + LENGTH as u64 - 9, 10, 0, 0)],
            1,
            DeviceError::Buffer,
        ),
        (vec![(u64::MAX - 3, 10, 0, 0)], 1, DeviceError::Buffer),
        // Device-writable where the device reads.
        (vec![(inside, 10, WRITE, 0)], 1, DeviceError::Buffer),
        // More buffers available than there are.
        (vec![(inside, 10, 0, 0)], SIZE + 1, DeviceError::Ring),
    ] {
        let mut queue = queue(&memory, &chain, index);
        let result = next_chain(&mut queue, &memory, Direction::Read);
        assert_eq!(result.unwrap_err(), expected, "{chain:x?}");
    }
    // A device-readable buffer behind a device-writable one.
    let chain = [(inside, 10, WRITE | NEXT, 1), (inside, 10, 0, 0)];
    let mut mixed = queue(&memory, &chain, 1);
    let result = next_chain(&mut mixed, &memory, Direction::Both);
    assert_eq!(result.unwrap_err(), DeviceError::Buffer);
    // A loop of descriptors ends.
    let mut queue = queue(&memory, &[(inside, 10, NEXT, 0)], 1);
    let chain = next_chain(&mut queue, &memory, Direction::Read)
        .unwrap()
        .unwrap();
    assert!(chain.buffers.count() <= SIZE.into());
}

#[test]
fn activate_errors_name_device_queue_and_value() {
    let (mut transport, _) = transport();
    let version = feature_bit(VIRTIO_F_VERSION_1);
    start(&mut transport, version, [DESCRIPTORS, AVAILABLE, 0]);
    let error = transport.take_activate_error().unwrap().to_string();
    assert!(
        error.starts_with("recorder: cannot activate queue 0 of 8 entries (ready: true)"),
        "{error}"
    );
    // Without VIRTIO_F_VERSION_1, FEATURES_OK is refused.
    start(&mut transport, 1, QUEUE);
    let error = transport.take_activate_error().unwrap().to_string();
    assert!(error.contains("lacks FEATURES_OK"), "{error}");
    transport.reset();
    assert!(transport.take_activate_error().is_none());
}
