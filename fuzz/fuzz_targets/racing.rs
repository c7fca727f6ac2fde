//! Rings, descriptors and requests that a hostile guest changes from another vCPU while the device
//! reads them: the device must use the values that it has checked. Devices and inputs are as in
//! `virtqueue`, with a second thread that writes the guest's RAM.

#![no_main]

#[path = "guest/devices.rs"]
mod devices;
mod guest;

use devices::Bench;
use guest::{QUEUES, Ram, Watcher, begin, read};
use hartline_abi::virtio::{register, status};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of changes in an input, and the bytes of each: two for the word in RAM, two for its
/// other value, and one for the delay before the next change.
const CHANGES: usize = 16;
const CHANGE: usize = 5;
/// How often the driver kicks the queues, and the longest time for all kicks.
const RINGS: u64 = 8;
const PATIENCE: Duration = Duration::from_millis(20);

fuzz_target!(|input: &[u8]| {
    let Some((&kind, input)) = input.split_first() else {
        return;
    };
    let (changes, contents) = input.split_at(input.len().min(CHANGES * CHANGE));
    let ram = Ram::new(contents);
    let changes: Vec<_> = changes
        .chunks_exact(CHANGE)
        .filter_map(|bytes| Change::new(bytes, &ram))
        .collect();
    let watcher = Arc::new(Watcher::default());
    let mut bench = Bench::new(kind, &ram, &watcher);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                changes.iter().for_each(Change::make);
                rounds.fetch_add(1, Ordering::Release);
            }
        });
        begin(&mut bench.transport, kind);
        drive(&mut bench, &watcher, &rounds);
        stop.store(true, Ordering::Relaxed);
    });
    bench.end(&ram);
});

/// Kicks all queues repeatedly, in different rounds of the other thread.
fn drive(bench: &mut Bench, watcher: &Watcher, rounds: &AtomicU64) {
    let start = Instant::now();
    for ring in 0..RINGS {
        for queue in 0..QUEUES as u32 {
            bench
                .transport
                .write(register::QUEUE_NOTIFY, &queue.to_le_bytes());
        }
        while rounds.load(Ordering::Acquire) <= ring && start.elapsed() < PATIENCE {
            thread::yield_now();
        }
        let is_on = read(&bench.transport, register::STATUS) & status::DRIVER_OK != 0;
        let is_over = watcher.failed.load(Ordering::SeqCst) || start.elapsed() >= PATIENCE;
        if !is_on || is_over {
            break;
        }
    }
    // The requests in the rings are processed by then, if the rings are valid.
    let sleeps = bench.sleeps();
    while bench.sleeps() == sleeps
        && !watcher.failed.load(Ordering::SeqCst)
        && start.elapsed() < PATIENCE
    {
        thread::yield_now();
    }
}

/// A word of the RAM that alternates between two values.
struct Change<'a> {
    word: &'a AtomicU16,
    value: AtomicU16,
    pause: u8,
}

impl<'a> Change<'a> {
    fn new(bytes: &[u8], ram: &'a Ram) -> Option<Self> {
        let offset = u16::from_le_bytes([bytes[0], bytes[1]]) & !1;
        let word = ram.word(offset.into())?;
        Some(Self {
            // SAFETY: the word is aligned and inside the RAM, which outlives the change. Devices
            // access it at the same time, as they access a guest's memory.
            word: unsafe { AtomicU16::from_ptr(word.as_ptr()) },
            value: AtomicU16::new(u16::from_le_bytes([bytes[2], bytes[3]])),
            pause: bytes[4],
        })
    }

    fn make(&self) {
        let before = self.word.load(Ordering::Relaxed);
        let value = self.value.swap(before, Ordering::Relaxed);
        self.word.store(value, Ordering::Relaxed);
        (0..self.pause).for_each(|_| std::hint::spin_loop());
    }
}
