//! Honest and hostile drivers of the console.

use super::*;
use crate::virtio::tests::{BASE, WRITE, Watcher, memory, queue_at};
use crate::virtio::{ActivateError, Device, DeviceError, Guest, Memory, ThreadInit, feature_bit};
use hartline_abi::console::{
    CONTROL_RECEIVE, CONTROL_TRANSMIT, Control, console_feature, event, transmit_queue,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{File, OpenOptions};
use std::io::{Read, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use virtio_bindings::virtio_config::{VIRTIO_F_IN_ORDER, VIRTIO_F_VERSION_1};
use vm_memory::{Bytes, GuestAddress};

/// Entries of a queue, and offsets of its parts. Queues are in pages from the start of RAM on.
const SIZE: u16 = 8;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
/// Address of the buffers, behind eight queues.
const BUFFERS: u64 = BASE + 0x8000;
/// Length of a buffer for a control message, bytes.
const ROOM: u32 = 64;
const FEATURES: u64 =
    feature_bit(VIRTIO_F_VERSION_1) | console_feature::MULTIPORT | feature_bit(VIRTIO_F_IN_ORDER);

struct Driver {
    console: Console,
    device: Box<dyn Device>,
    memory: Memory,
    watcher: Arc<Watcher>,
    /// Number of chains that were made available, by queue.
    available: [u16; 8],
    /// Number of control messages that were taken.
    taken: u16,
}

/// The guest-physical address of a part of a queue.
fn gpa(queue: u16, part: u64) -> GuestAddress {
    GuestAddress(BASE + u64::from(queue) * 0x1000 + part)
}

impl Driver {
    /// A driver that has activated the device.
    fn new(outputs: [OwnedFd; 3], limit: u64) -> Self {
        let memory = memory();
        let watcher = Arc::new(Watcher::default());
        let parts = (memory.clone(), Arc::clone(&watcher) as Arc<dyn Guest>);
        let init_thread: ThreadInit = Arc::new(|| ());
        let console = Console::new(Outputs::new(outputs), limit, init_thread, parts).unwrap();
        let mut driver = Self {
            device: console.device(),
            console,
            memory,
            watcher,
            available: [0; 8],
            taken: 0,
        };
        driver.start().unwrap();
        driver
    }

    fn start(&mut self) -> Result<(), ActivateError> {
        (self.available, self.taken) = ([0; 8], 0);
        let queues = 0..self.device.queues().try_into().unwrap();
        let queue = |number: u16| {
            let clear = self.memory.map().write_slice(&[0; 0x1000], gpa(number, 0));
            clear.unwrap();
            queue_at([0, AVAILABLE, USED].map(|part| gpa(number, part).0), SIZE)
        };
        let queues = queues.map(queue).collect();
        self.device.activate(FEATURES, queues)
    }

    /// Makes a buffer available.
    fn give(&mut self, queue: u16, address: u64, length: u32, flags: u16) {
        let map = self.memory.map();
        let available = &mut self.available[usize::from(queue)];
        let slot = *available % SIZE;
        let at = 16 * u64::from(slot);
        map.write_obj(address, gpa(queue, at)).unwrap();
        map.write_obj(length, gpa(queue, at + 8)).unwrap();
        map.write_obj(flags, gpa(queue, at + 12)).unwrap();
        let entry = AVAILABLE + 4 + 2 * u64::from(slot);
        map.write_obj(slot, gpa(queue, entry)).unwrap();
        *available += 1;
        map.write_obj(*available, gpa(queue, AVAILABLE + 2))
            .unwrap();
    }

    fn used(&self, queue: u16) -> u16 {
        self.memory.map().read_obj(gpa(queue, USED + 2)).unwrap()
    }

    /// Sends text through a port, as soon as its queue has room.
    fn send(&mut self, port: u16, text: &[u8]) {
        let queue = transmit_queue(port);
        while self.available[usize::from(queue)] - self.used(queue) == SIZE {
            thread::yield_now();
        }
        let slot = u64::from(self.available[usize::from(queue)] % SIZE);
        let at = BUFFERS + 0x4000 * u64::from(port) + 0x400 * slot;
        self.memory
            .map()
            .write_slice(text, GuestAddress(at))
            .unwrap();
        self.give(queue, at, text.len().try_into().unwrap(), 0);
        self.device.notify(queue.into());
    }

    /// Sends a control message.
    fn post(&mut self, port: u32, event: u16) {
        let value = 1;
        let bytes = Control { port, event, value }.to_bytes();
        let map = self.memory.map();
        map.write_slice(&bytes, GuestAddress(BUFFERS)).unwrap();
        let length = bytes.len().try_into().unwrap();
        self.give(CONTROL_TRANSMIT, BUFFERS, length, 0);
        self.device.notify(CONTROL_TRANSMIT.into());
    }

    /// Sends a control message, and takes all replies.
    fn say(&mut self, port: u32, event: u16) -> Vec<(Control, Vec<u8>)> {
        self.post(port, event);
        self.answers()
    }

    /// Takes the device's messages, with a buffer for one message at a time.
    fn answers(&mut self) -> Vec<(Control, Vec<u8>)> {
        const QUEUE: u16 = CONTROL_RECEIVE;
        let at = BUFFERS + 0x100;
        let mut answers = Vec::new();
        loop {
            if self.available[usize::from(QUEUE)] == self.taken {
                self.give(QUEUE, at, ROOM, WRITE);
                self.device.notify(QUEUE.into());
            }
            if self.used(QUEUE) == self.taken {
                return answers;
            }
            let element = USED + 4 + 8 * u64::from(self.taken % SIZE);
            self.taken += 1;
            let map = self.memory.map();
            let length: u32 = map.read_obj(gpa(QUEUE, element + 4)).unwrap();
            let mut bytes = vec![0; length as usize];
            map.read_slice(&mut bytes, GuestAddress(at)).unwrap();
            let (control, name) = bytes.split_first_chunk().unwrap();
            answers.push((Control::from_bytes(*control), name.to_vec()));
        }
    }

    /// Waits for the device to stop.
    fn failure(&self) -> DeviceError {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if let Some(error) = self.watcher.failure() {
                return error;
            }
            thread::yield_now();
        }
        panic!("the device still works");
    }
}

/// A file in memory without a name.
fn memory_file() -> File {
    memfd_create(c"out", MemfdFlags::CLOEXEC).unwrap().into()
}

fn copy(file: &File) -> OwnedFd {
    file.try_clone().unwrap().into()
}

fn null() -> OwnedFd {
    OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .unwrap()
        .into()
}

fn contents(file: &File) -> Vec<u8> {
    let length = file.metadata().unwrap().len();
    let mut bytes = vec![0; length.try_into().unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn megabytes_pass_in_order_through_sleeps_and_wraps() {
    let (out, err) = (memory_file(), memory_file());
    let mut driver = Driver::new([copy(&out), copy(&err), null()], u64::MAX);
    let mut expected = [Vec::new(), Vec::new()];
    for n in 0..3000u32 {
        let length = n * 7919 % 1024 + 1;
        let text: Vec<u8> = (0..length).map(|i| (i * 31 + n).to_le_bytes()[0]).collect();
        let port = u16::from(n % 5 == 0);
        expected[usize::from(port)].extend_from_slice(&text);
        driver.send(port, &text);
        if n % 500 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
    }
    driver.console.flush(&|| false).unwrap();
    assert!(contents(&out) == expected[0], "after flush");
    driver.send(0, b"last");
    driver.console.stop();
    // As at the end of a VM: the device still writes bytes from before the reset.
    driver.device.reset();
    driver.console.finish(None).unwrap();
    expected[0].extend_from_slice(b"last");
    assert!(contents(&out) == expected[0], "standard output");
    assert!(contents(&err) == expected[1], "standard error");
    let counts = driver.console.counters().read();
    assert_eq!(counts.sent_buffers, 3001);
    let bytes = expected.concat().len() as u64;
    assert_eq!(counts.sent_bytes, bytes);
}

#[test]
fn ports_are_announced() {
    let mut driver = Driver::new([null(), memory_file().into(), null()], u64::MAX);
    assert_eq!(driver.device.config(), [0, 0, 0, 0, 2, 0, 0, 0]);
    let control = |port, event, value| Control { port, event, value };
    let added = [0, 1].map(|port| (control(port, event::PORT_ADD, 0), Vec::new()));
    assert_eq!(driver.say(0, event::DEVICE_READY), added);
    let ready = [
        (control(1, event::PORT_NAME, 1), b"stderr".to_vec()),
        (control(1, event::PORT_OPEN, 1), Vec::new()),
    ];
    assert_eq!(driver.say(1, event::PORT_READY), ready);
    assert_eq!(driver.say(1, event::PORT_OPEN), []);
    // Ports and events that do not exist.
    assert_eq!(driver.say(2, event::PORT_READY), []);
    assert_eq!(driver.say(u32::MAX, event::PORT_READY), []);
    assert_eq!(driver.say(0, 999), []);
    assert!(driver.watcher.failure().is_none());
}

#[test]
fn a_closed_output_is_reported_to_the_guest() {
    let full: OwnedFd = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into();
    let err = memory_file();
    let mut driver = Driver::new([full, copy(&err), null()], u64::MAX);
    driver.send(0, b"hello");
    driver.send(0, b"world");
    driver.send(1, b"error");
    driver.console.flush(&|| false).unwrap();
    assert_eq!(driver.used(transmit_queue(0)), 2, "dropped");
    let closed = Control {
        event: event::PORT_OPEN,
        ..Control::default()
    };
    assert_eq!(driver.answers(), [(closed, Vec::new())], "once");
    driver.console.finish(None).unwrap();
    assert_eq!(contents(&err), b"error");
}

#[test]
fn a_file_of_limited_length_keeps_the_newest_output() {
    const LIMIT: u64 = log::TRAILER + 8;
    let (out, err) = (memory_file(), memory_file());
    let mut driver = Driver::new([copy(&out), copy(&err), null()], LIMIT);
    for text in [b"hello", b"world", b"again"] {
        driver.send(0, text);
    }
    driver.send(1, b"all of i");
    driver.console.finish(None).unwrap();
    let read = |file, from| {
        let mut bytes = [0; 8];
        let (at, count) = log::read(file, LIMIT, from, &mut bytes).unwrap();
        (at, String::from_utf8(bytes[..count].to_vec()).unwrap())
    };
    assert_eq!(
        read(&out, 0),
        (7, "r".to_owned()),
        "up to the end of the file"
    );
    assert_eq!(read(&out, 8), (8, "ldagain".to_owned()));
    assert_eq!(read(&err, 0), (0, "all of i".to_owned()));
    assert_eq!(contents(&out).len(), 32);
    // Both accept more.
    assert_eq!(driver.console.shared.lock().closed, [false; 3]);
}

#[test]
fn a_slow_reader_blocks_neither_flush_nor_reset() {
    let (mut reader, writer) = pipe().unwrap();
    let room = 64 << 10;
    let mut driver = Driver::new([writer.into(), null(), null()], u64::MAX);
    let queue = transmit_queue(0);
    for _ in 0..3 {
        driver.give(queue, BASE, room / 4 * 3, 0);
    }
    driver.device.notify(queue.into());
    let mut waiting = 0;
    while waiting < u64::from(room) {
        waiting = rustix::io::ioctl_fionread(&reader).unwrap();
    }
    assert!(driver.console.flush(&|| true).is_ok(), "flush gives up");
    // A reset does not wait for the reader either.
    driver.device.reset();
    let used = driver.used(queue);
    let patience = Some(Duration::from_millis(20));
    driver.console.finish(patience).unwrap();
    let reader = thread::spawn(move || reader.read_to_end(&mut Vec::new()));
    driver.console.finish(None).unwrap();
    assert!(reader.join().unwrap().unwrap() >= room as usize);
    assert_eq!(
        driver.used(queue),
        used,
        "no chain becomes used after a reset"
    );
}

#[test]
fn hostile_buffers_stop_the_device() {
    let stops = |queue, address, length, flags| {
        let mut driver = Driver::new([null(), memory_file().into(), null()], u64::MAX);
        driver.give(queue, address, length, flags);
        driver.device.notify(queue.into());
        if queue == CONTROL_RECEIVE {
            driver.post(0, event::DEVICE_READY);
        }
        driver.failure()
    };
    for (queue, address, length, flags) in [
        // Outside RAM, device-writable, too long.
        (transmit_queue(0), BASE - 16, 32, 0),
        (transmit_queue(1), u64::MAX - 8, 32, 0),
        (transmit_queue(0), BUFFERS, 32, WRITE),
        (transmit_queue(0), BASE, u32::MAX, 0),
        // Not a whole message, and no room for one.
        (CONTROL_TRANSMIT, BUFFERS, 7, 0),
        (CONTROL_TRANSMIT, BUFFERS, 8, WRITE),
        (CONTROL_RECEIVE, BUFFERS, 7, WRITE),
        (CONTROL_RECEIVE, BUFFERS, 64, 0),
    ] {
        let error = stops(queue, address, length, flags);
        assert_eq!(error, DeviceError::Buffer, "{queue} {address:#x} {length}");
    }
    let mut driver = Driver::new([null(), memory_file().into(), null()], u64::MAX);
    driver.available[usize::from(transmit_queue(1))] = SIZE + 1;
    driver.give(transmit_queue(1), BUFFERS, 1, 0);
    driver.device.notify(transmit_queue(1).into());
    assert_eq!(driver.failure(), DeviceError::Ring);
    assert_eq!(driver.console.finish(None), Err(DeviceError::Ring));
}

#[test]
fn the_device_starts_again_after_a_reset() {
    let out = memory_file();
    let mut driver = Driver::new([copy(&out), null(), null()], u64::MAX);
    driver.send(0, b"one ");
    driver.console.flush(&|| false).unwrap();
    driver.device.reset();
    driver.device.notify(transmit_queue(0).into());
    driver.device.notify(CONTROL_TRANSMIT.into());
    driver.start().unwrap();
    driver.send(0, b"two");
    driver.console.finish(None).unwrap();
    assert_eq!(contents(&out), b"one two");
    let version = feature_bit(VIRTIO_F_VERSION_1);
    let error = driver.device.activate(version, Vec::new()).unwrap_err();
    assert!(matches!(error, ActivateError::Features { .. }), "{error}");
    let error = driver.device.activate(FEATURES, Vec::new()).unwrap_err();
    assert!(
        matches!(error, ActivateError::QueueCount { found: 0, .. }),
        "{error}"
    );
}
