//! A guest of the ring, honest and hostile.

use super::*;
use hartline_abi::console::{Console as Shared, MAX_RECORD, RING_SIZE, RecordHeader};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::os::fd::FromRawFd;
use std::ptr::{NonNull, addr_of, addr_of_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The shared memory and the producer's position.
struct Guest {
    console: NonNull<Shared>,
    written: u64,
}

// SAFETY: plain memory.
unsafe impl Send for Guest {}

impl Guest {
    fn new() -> Self {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(Layout::new::<Shared>()) };
        Self {
            console: NonNull::new(memory.cast()).unwrap(),
            written: 0,
        }
    }

    fn ring(&self) -> Ring {
        // SAFETY: every test drops the ring before the guest.
        unsafe { Ring::new(self.console) }
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let at = (self.written % RING_SIZE as u64) as usize;
            // SAFETY: inside the data.
            unsafe { addr_of_mut!((*self.console.as_ptr()).data[at]).write_volatile(byte) };
            self.written += 1;
        }
    }

    fn put(&mut self, descriptor: u32, length: u32, data: &[u8]) {
        // SAFETY: mapped as long as the guest.
        let read = unsafe { &(*addr_of!((*self.console.as_ptr()).read)) };
        let total = (size_of::<RecordHeader>() + data.len().next_multiple_of(8)) as u64;
        while self.written + total - read.load(Ordering::Acquire) > RING_SIZE as u64 {
            thread::yield_now();
        }
        self.put_bytes(&descriptor.to_le_bytes());
        self.put_bytes(&length.to_le_bytes());
        self.put_bytes(data);
        self.written = self.written.next_multiple_of(8);
    }

    /// Publishes; rings `console`'s doorbell if it is asked for.
    fn publish(&self, console: Option<&Console>) {
        // SAFETY: mapped as long as the guest.
        let shared = unsafe { self.console.as_ref() };
        shared.written.store(self.written, Ordering::SeqCst);
        if shared.reader_waits.swap(0, Ordering::SeqCst) == 1 {
            console.unwrap().ring_doorbell();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.console.as_ptr().cast(), Layout::new::<Shared>()) };
    }
}

/// A file in memory without a name.
fn memory_file() -> File {
    // SAFETY: a valid name; a fresh descriptor.
    unsafe { File::from_raw_fd(libc::memfd_create(c"out".as_ptr(), libc::MFD_CLOEXEC)) }
}

fn contents(file: &File) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn megabytes_pass_in_order_through_sleeps_and_wraps() {
    let mut guest = Guest::new();
    let ring = guest.ring();
    let console = Arc::new(Console::default());
    let (out, err) = (memory_file(), memory_file());
    let descriptors = [
        out.try_clone().unwrap().into(),
        err.try_clone().unwrap().into(),
        memory_file().into(),
    ];
    let server = Arc::clone(&console);
    let worker = thread::spawn(move || server.serve(ring, descriptors, u64::MAX));
    let mut expected = [Vec::new(), Vec::new()];
    for n in 0..3000u32 {
        let length = (n * 7919) % 4000 + 1;
        let data: Vec<u8> = (0..length).map(|i| (i * 31 + n) as u8).collect();
        let descriptor = 1 + (n % 5 == 0) as u32;
        expected[descriptor as usize - 1].extend_from_slice(&data);
        guest.put(descriptor, length, &data);
        guest.publish(Some(&console));
        if n % 500 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
    }
    console.flush(&|| false).unwrap();
    assert!(contents(&out) == expected[0], "after flush");
    guest.put(1, 4, b"last");
    guest.publish(Some(&console));
    console.finish(None).unwrap();
    worker.join().unwrap().unwrap();
    expected[0].extend_from_slice(b"last");
    assert!(contents(&out) == expected[0], "standard output");
    assert!(contents(&err) == expected[1], "standard error");
}

#[test]
fn closed_output_is_told_to_the_guest() {
    let mut guest = Guest::new();
    let ring = guest.ring();
    let console = Arc::new(Console::default());
    let full: OwnedFd = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into();
    let err = memory_file();
    let other = err.try_clone().unwrap().into();
    guest.put(1, 5, b"hello");
    guest.put(2, 5, b"error");
    guest.publish(None);
    let server = Arc::clone(&console);
    let worker =
        thread::spawn(move || server.serve(ring, [full, other, memory_file().into()], u64::MAX));
    console.finish(None).unwrap();
    worker.join().unwrap().unwrap();
    // SAFETY: mapped as long as the guest.
    let broken = unsafe { guest.console.as_ref() }
        .broken
        .load(Ordering::SeqCst);
    assert_eq!(broken, 1);
    assert_eq!(contents(&err), b"error");
}

#[test]
fn an_output_gets_no_more_than_its_limit() {
    let mut guest = Guest::new();
    let ring = guest.ring();
    let console = Arc::new(Console::default());
    let (out, err) = (memory_file(), memory_file());
    let descriptors = [
        out.try_clone().unwrap().into(),
        err.try_clone().unwrap().into(),
        memory_file().into(),
    ];
    for text in [b"hello", b"world", b"never"] {
        guest.put(1, 5, text);
        guest.publish(None);
    }
    guest.put(2, 9, b"all of it");
    guest.publish(None);
    let server = Arc::clone(&console);
    let worker = thread::spawn(move || server.serve(ring, descriptors, 8));
    console.finish(None).unwrap();
    worker.join().unwrap().unwrap();
    // SAFETY: mapped as long as the guest.
    let shared = unsafe { guest.console.as_ref() };
    // Neither gets all.
    assert_eq!(shared.broken.load(Ordering::SeqCst), 3);
    assert_eq!(contents(&out), b"hellowor");
    assert_eq!(contents(&err), b"all of i");
}

#[test]
fn hostile_positions_and_headers_are_named() {
    let next = |prepare: &dyn Fn(&mut Guest)| {
        let mut guest = Guest::new();
        prepare(&mut guest);
        guest.publish(None);
        guest
            .ring()
            .next_batch()
            .map(|batch| batch.map(|b| b.pieces))
            .unwrap_err()
    };
    let too_far = RING_SIZE as u64 + 8;
    assert_eq!(
        next(&|g| g.written = too_far),
        RingError::Position {
            written: too_far,
            read: 0
        }
    );
    assert_eq!(
        next(&|g| g.written = u64::MAX - 7),
        RingError::Position {
            written: u64::MAX - 7,
            read: 0
        }
    );
    assert_eq!(
        next(&|g| g.written = 12),
        RingError::Position {
            written: 12,
            read: 0
        }
    );
    assert_eq!(next(&|g| g.put(4, 1, b"x")), RingError::Descriptor(4));
    assert_eq!(next(&|g| g.put(0, 1, b"x")), RingError::Descriptor(0));
    assert_eq!(next(&|g| g.put(1, 0, b"")), RingError::Length(0));
    assert_eq!(next(&|g| g.put(1, 9, b"x")), RingError::Length(9));
    assert_eq!(
        next(&|g| g.put(1, u32::MAX, b"x")),
        RingError::Length(u32::MAX)
    );
    let long = MAX_RECORD as u32 + 1;
    assert_eq!(
        next(&|g| g.put(1, long, &vec![0; long as usize])),
        RingError::Length(long)
    );
}

#[test]
fn batches_end_at_a_change_of_descriptor() {
    let mut guest = Guest::new();
    guest.put(1, 3, b"one");
    guest.put(1, 3, b"two");
    guest.put(2, 5, b"three");
    guest.publish(None);
    let mut ring = guest.ring();
    let batch = ring.next_batch().unwrap().unwrap();
    assert_eq!(
        (batch.descriptor, batch.pieces.as_slice()),
        (1, [(8, 3), (24, 3)].as_slice())
    );
    ring.release(&batch);
    let batch = ring.next_batch().unwrap().unwrap();
    assert_eq!(
        (batch.descriptor, batch.pieces.as_slice()),
        (2, [(40, 5)].as_slice())
    );
    ring.release(&batch);
    assert!(ring.next_batch().unwrap().is_none());
}
