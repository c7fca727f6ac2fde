//! Drivers that are wrong, or hostile.

use super::mmio::Transport;
use super::*;
use hartline_abi::virtio::{MAGIC, feature, register, status};
use std::sync::{Mutex, OnceLock};
use vm_memory::Bytes;

/// Where the guest has its memory, and how much.
pub const BASE: u64 = 1 << 32;
const LENGTH: usize = 64 << 10;
/// Parts of the only queue.
const DESCRIPTORS: u64 = BASE;
pub const AVAILABLE: u64 = BASE + 0x1000;
pub const USED: u64 = BASE + 0x2000;
pub const SIZE: u16 = 8;

/// A page, which is only reached by its address.
#[derive(Debug, Clone)]
#[repr(align(4096))]
struct Page {
    _bytes: [u8; 4096],
}

/// Remembers why the device stopped.
#[derive(Debug, Default)]
pub struct Watcher(OnceLock<DeviceError>);

impl Watcher {
    /// Why it stopped, if it did.
    pub fn failure(&self) -> Option<DeviceError> {
        self.0.get().copied()
    }
}

impl Guest for Watcher {
    fn interrupt(&self) {}

    fn fail(&self, error: DeviceError) {
        self.0.set(error).expect("it stops once");
    }
}

pub fn memory() -> Memory {
    let pages = Arc::new(Mutex::new(vec![
        Page { _bytes: [0; 4096] };
        LENGTH / size_of::<Page>()
    ]));
    let base = NonNull::new(pages.lock().unwrap().as_mut_ptr().cast()).unwrap();
    // SAFETY: the vector is not changed while the memory has it.
    unsafe { Memory::new(base, LENGTH, BASE, pages) }.unwrap()
}

/// A device with one queue, which tells whether it was started.
#[derive(Debug, Default)]
struct Recorder(Arc<Mutex<Option<u64>>>);

impl Device for Recorder {
    fn kind(&self) -> u32 {
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

    fn activate(&mut self, features: u64, _: Vec<Queue>) -> bool {
        *self.0.lock().unwrap() = Some(features);
        true
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

fn read(transport: &Transport, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    transport.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// Sets the device up with a queue at these addresses; the result is its status.
fn start(transport: &mut Transport, features: u64, queue: [u64; 3]) -> u32 {
    let mut write = |offset, value: u64| transport.write(offset, &(value as u32).to_le_bytes());
    write(register::STATUS, 0);
    write(register::STATUS, 3);
    for half in 0..2 {
        write(register::DRIVER_FEATURES_SELECT, half);
        write(register::DRIVER_FEATURES, features >> (32 * half));
    }
    write(register::STATUS, 3 | u64::from(status::FEATURES_OK));
    write(register::QUEUE_SIZE, SIZE.into());
    let places = [
        register::QUEUE_DESCRIPTORS,
        register::QUEUE_AVAILABLE,
        register::QUEUE_USED,
    ];
    for (place, address) in places.into_iter().zip(queue) {
        write(place, address);
        write(place + 4, address >> 32);
    }
    write(register::QUEUE_READY, 1);
    let all = 3 | status::FEATURES_OK | status::DRIVER_OK;
    write(register::STATUS, all.into());
    read(transport, register::STATUS)
}

const QUEUE: [u64; 3] = [DESCRIPTORS, AVAILABLE, USED];

#[test]
fn a_driver_starts_the_device() {
    let (mut transport, started) = transport();
    assert_eq!(read(&transport, register::MAGIC), MAGIC);
    assert_eq!(read(&transport, register::DEVICE_ID), 77);
    assert_eq!(read(&transport, register::CONFIG), 0x0003_0201);
    assert_eq!(read(&transport, register::CONFIG + 4), 0);
    let features = feature::VERSION_1 | feature::EVENT_INDEX | 1;
    let status = start(&mut transport, features, QUEUE);
    assert_eq!(status & status::DRIVER_OK, status::DRIVER_OK);
    assert_eq!(*started.lock().unwrap(), Some(features));
    transport.write(register::STATUS, &[0; 4]);
    assert_eq!(*started.lock().unwrap(), None);
}

#[test]
fn wrong_drivers_do_not_start_it() {
    let (mut transport, started) = transport();
    let version = feature::VERSION_1;
    for (features, queue) in [
        (1, QUEUE),
        (version | 2, QUEUE),
        (version, [BASE + LENGTH as u64 - 16, AVAILABLE, USED]),
        (version, [DESCRIPTORS, u64::MAX - 1, USED]),
        (version, [DESCRIPTORS, AVAILABLE, 0]),
    ] {
        let status = start(&mut transport, features, queue);
        assert_eq!(status & status::DRIVER_OK, 0, "{features:#x} {queue:x?}");
        assert_eq!(*started.lock().unwrap(), None);
    }
    for offset in (0..0x200).step_by(1) {
        transport.write(offset, &[0xff; 4]);
        transport.write(offset, &[0xff; 8]);
        transport.read(offset, &mut [0; 8]);
    }
}

/// A queue whose driver has made the descriptors of `chain` available.
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

/// A queue of so many entries whose descriptors and rings are at these addresses.
pub fn queue_at([descriptors, available, used]: [u64; 3], size: u16) -> Queue {
    let mut queue = Queue::new(MAX_QUEUE_SIZE).unwrap();
    queue.set_size(size);
    let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
    let (low, high) = halves(descriptors);
    queue.set_desc_table_address(low, high);
    let (low, high) = halves(available);
    queue.set_avail_ring_address(low, high);
    let (low, high) = halves(used);
    queue.set_used_ring_address(low, high);
    queue.set_ready(true);
    queue
}

const NEXT: u16 = 1;
const WRITE: u16 = 2;

#[test]
fn chains_are_followed_and_given_back() {
    let memory = memory();
    let chain = [(BASE + 0x4000, 100, NEXT, 1), (BASE + 0x5000, 50, 0, 0)];
    let mut queue = queue(&memory, &chain, 1);
    let chain = next_chain(&mut queue, &memory, Direction::Read)
        .unwrap()
        .unwrap();
    assert_eq!((chain.head, chain.length, chain.buffers.len()), (0, 150, 2));
    assert!(
        next_chain(&mut queue, &memory, Direction::Read)
            .unwrap()
            .is_none()
    );
    give_back(&mut queue, &memory, chain.head, 7).unwrap();
    let used: u32 = memory.map().read_obj(GuestAddress(USED + 8)).unwrap();
    assert_eq!(used, 7);
}

#[test]
fn bad_chains_are_errors() {
    let memory = memory();
    let inside = BASE + 0x4000;
    for (chain, index, expected) in [
        // Outside RAM, over its end, around the end of addresses.
        (vec![(0x1000, 10, 0, 0)], 1, DeviceError::Buffer),
        (
            vec![(BASE + LENGTH as u64 - 9, 10, 0, 0)],
            1,
            DeviceError::Buffer,
        ),
        (vec![(u64::MAX - 3, 10, 0, 0)], 1, DeviceError::Buffer),
        // For writing, where the device reads.
        (vec![(inside, 10, WRITE, 0)], 1, DeviceError::Buffer),
        // More buffers available than there are.
        (vec![(inside, 10, 0, 0)], SIZE + 1, DeviceError::Ring),
    ] {
        let mut queue = queue(&memory, &chain, index);
        let result = next_chain(&mut queue, &memory, Direction::Read);
        assert_eq!(result.unwrap_err(), expected, "{chain:x?}");
    }
    // Behind one that the device writes, none that it reads.
    let chain = [(inside, 10, WRITE | NEXT, 1), (inside, 10, 0, 0)];
    let mut mixed = queue(&memory, &chain, 1);
    let result = next_chain(&mut mixed, &memory, Direction::Both);
    assert_eq!(result.unwrap_err(), DeviceError::Buffer);
    // A circle ends.
    let mut queue = queue(&memory, &[(inside, 10, NEXT, 0)], 1);
    let chain = next_chain(&mut queue, &memory, Direction::Read)
        .unwrap()
        .unwrap();
    assert!(chain.buffers.len() <= SIZE.into());
}
