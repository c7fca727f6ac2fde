//! Disks with a simulated device that completes requests in any order.

use super::*;
use crate::convert::low_u8;
use std::cell::RefCell;
use std::rc::Rc;

const SECTORS: usize = 4096;
const SLOTS: u16 = 4;

/// A device in memory.
#[derive(Debug)]
struct Device {
    contents: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    /// Submitted requests, and results of completed ones.
    submitted: Vec<(u16, Request)>,
    done: Vec<(u16, Result<(), Errno>)>,
    flushes: usize,
}

impl Device {
    fn new() -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            contents: (0..SECTORS * SECTOR)
                .map(|n| low_u8(n as u64 / 7))
                .collect(),
            buffers: vec![vec![0; MAX_LENGTH]; SLOTS.into()],
            submitted: Vec::new(),
            done: Vec::new(),
            flushes: 0,
        }))
    }

    /// Completes one request.
    fn work(&mut self, which: usize) {
        let (slot, request) = self.submitted.remove(which);
        let buffer = &mut self.buffers[usize::from(slot)];
        let bytes =
            |sector: u64, count| to_usize(sector) * SECTOR..(to_usize(sector) + count) * SECTOR;
        match request {
            Request::Read { sector, count } => {
                buffer[..count * SECTOR].copy_from_slice(&self.contents[bytes(sector, count)]);
            }
            Request::Write { sector, count } => {
                self.contents[bytes(sector, count)].copy_from_slice(&buffer[..count * SECTOR]);
            }
            Request::Flush => self.flushes += 1,
            Request::Discard { sector, count } => self.contents[bytes(sector, count)].fill(0),
        }
        self.done.push((slot, Ok(())));
    }
}

/// The driver's side of the device, with the buffer that was requested last.
#[derive(Debug)]
struct Driver(Rc<RefCell<Device>>, Vec<u8>);

impl Disk for Driver {
    fn sectors(&self) -> u64 {
        SECTORS as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn discards(&self) -> bool {
        true
    }

    fn slots(&self) -> u16 {
        SLOTS
    }

    fn buffer(&mut self, slot: u16) -> &mut [u8] {
        self.1
            .clone_from(&self.0.borrow().buffers[usize::from(slot)]);
        &mut self.1
    }

    fn submit(&mut self, slot: u16, request: Request) {
        let mut device = self.0.borrow_mut();
        device.buffers[usize::from(slot)].clone_from(&self.1);
        device.submitted.push((slot, request));
    }

    fn publish(&mut self) {}

    fn has_done(&self) -> bool {
        !self.0.borrow().done.is_empty()
    }

    fn begin(&mut self) {}

    fn take(&mut self) -> Option<(u16, Result<(), Errno>)> {
        let mut device = self.0.borrow_mut();
        (!device.done.is_empty()).then(|| device.done.remove(0))
    }

    fn want_interrupt(&mut self) -> bool {
        self.has_done()
    }
}

fn disk() -> (Disks, Rc<RefCell<Device>>) {
    let device = Device::new();
    let driver = Driver(Rc::clone(&device), Vec::new());
    let units = vec![Requests::new(Box::new(driver))];
    let disks = Disks {
        units,
        ..Disks::default()
    };
    (disks, device)
}

const ONE: u32 = 1;
const TWO: u32 = 2;

/// Repeats a call, as its task would, until it returns a result other than `EAGAIN`.
fn until_done<T>(
    disks: &mut Disks,
    device: &Rc<RefCell<Device>>,
    mut call: impl FnMut(&mut Disks) -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match call(disks) {
            Err(Errno::EAGAIN) => {
                // Complete the last request first.
                let last = device.borrow().submitted.len() - 1;
                device.borrow_mut().work(last);
                disks.poll();
            }
            result => return result,
        }
    }
}

fn read_all(disks: &mut Disks, device: &Rc<RefCell<Device>>, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let at = at + done as u64;
        let read = |disks: &mut Disks| disks.read(0, ONE, at, &mut bytes[done..]);
        done += until_done(disks, device, read).unwrap();
    }
    disks.forget(ONE);
    bytes
}

#[test]
fn long_transfers_are_several_requests() {
    let (mut disks, device) = disk();
    for (at, length) in [(0, 512), (5, 3), (700, 400_000), (0, SECTORS * SECTOR)] {
        let expected = device.borrow().contents[at..at + length].to_vec();
        let got = read_all(&mut disks, &device, at as u64, length);
        assert!(got == expected, "{length} bytes at {at}");
    }
    disks.take_woken();
    let mut bytes = vec![0; 4 * MAX_LENGTH];
    assert_eq!(disks.read(0, ONE, 0, &mut bytes), Err(Errno::EAGAIN));
    assert_eq!(device.borrow().submitted.len(), usize::from(SLOTS));
    // No data can be returned before the first part is complete.
    device.borrow_mut().work(1);
    disks.poll();
    assert_eq!(disks.take_woken(), [ONE]);
    assert_eq!(disks.read(0, ONE, 0, &mut bytes), Err(Errno::EAGAIN));
    device.borrow_mut().work(0);
    disks.poll();
    assert_eq!(disks.read(0, ONE, 0, &mut bytes), Ok(2 * MAX_LENGTH));
}

#[test]
fn bytes_beside_those_that_are_written_stay() {
    let (mut disks, device) = disk();
    for (at, length) in [(0, 512), (1, 1), (511, 2), (700, 5000), (100_000, 300_000)] {
        let mut expected = device.borrow().contents.clone();
        let data: Vec<u8> = (0..length).map(|n| low_u8(n as u64 * 5 + 1)).collect();
        expected[at..at + length].copy_from_slice(&data);
        let mut done = 0;
        while done < length {
            let at = (at + done) as u64;
            let write = |disks: &mut Disks| disks.write(0, ONE, at, &data[done..]);
            done += until_done(&mut disks, &device, write).unwrap();
        }
        disks.forget(ONE);
        assert!(
            device.borrow().contents == expected,
            "{length} bytes at {at}"
        );
    }
    let end = (SECTORS * SECTOR) as u64;
    assert_eq!(disks.write(0, ONE, end, &[1]), Err(Errno::ENOSPC));
}

#[test]
fn two_tasks_change_one_sector() {
    let (mut disks, device) = disk();
    assert_eq!(disks.write(0, ONE, 10, b"one"), Err(Errno::EAGAIN));
    assert_eq!(disks.write(0, TWO, 20, b"two"), Err(Errno::EAGAIN));
    // The second write waits for the first, which reads the sector and then writes it.
    assert_eq!(device.borrow().submitted.len(), 1);
    device.borrow_mut().work(0);
    disks.poll();
    assert!(disks.take_woken().is_empty());
    device.borrow_mut().work(0);
    disks.poll();
    assert_eq!(disks.take_woken(), [TWO, ONE]);
    assert_eq!(disks.write(0, ONE, 10, b"one"), Ok(3));
    let write = |disks: &mut Disks| disks.write(0, TWO, 20, b"two");
    assert_eq!(until_done(&mut disks, &device, write), Ok(3));
    let device = device.borrow();
    assert_eq!(
        (&device.contents[10..13], &device.contents[20..23]),
        (&b"one"[..], &b"two"[..])
    );
}

#[test]
fn who_does_not_come_back_takes_nothing_from_others() {
    let (mut disks, device) = disk();
    let mut bytes = vec![0; 4 * MAX_LENGTH];
    // A task that is stopped when its data arrives.
    assert_eq!(disks.read(0, ONE, 0, &mut bytes), Err(Errno::EAGAIN));
    assert_eq!(disks.read(0, TWO, 0, &mut bytes[..1]), Err(Errno::EAGAIN));
    for _ in 0..SLOTS {
        device.borrow_mut().work(0);
    }
    disks.poll();
    assert!(disks.take_woken().contains(&TWO));
    let read = |disks: &mut Disks| disks.read(0, TWO, 0, &mut bytes[..1]);
    assert_eq!(until_done(&mut disks, &device, read), Ok(1));
    // A task that ends while its request is in flight.
    assert_eq!(disks.flush(0, TWO), Err(Errno::EAGAIN));
    disks.forget(TWO);
    assert!(disks.are_busy());
    device.borrow_mut().work(0);
    disks.poll();
    disks.forget(ONE);
    assert!(!disks.are_busy());
    assert_eq!(disks.units[0].free_slots(), usize::from(SLOTS));
}

#[test]
fn flushes_and_discards_are_waited_for() {
    let (mut disks, device) = disk();
    assert_eq!(
        until_done(&mut disks, &device, |disks| disks.flush(0, ONE)),
        Ok(())
    );
    assert_eq!(
        until_done(&mut disks, &device, |disks| disks.flush_all(ONE)),
        Ok(())
    );
    disks.forget(ONE);
    assert_eq!(device.borrow().flushes, 2);
    let discard = |disks: &mut Disks| disks.discard(0, ONE, 2, 3);
    assert_eq!(until_done(&mut disks, &device, discard), Ok(3));
    let contents = &device.borrow().contents;
    assert!(
        contents[2 * SECTOR..5 * SECTOR]
            .iter()
            .all(|&byte| byte == 0)
    );
    assert!(contents[5 * SECTOR + 100] != 0);
    assert_eq!(disks.flush(1, ONE), Err(Errno::ENXIO));
}
