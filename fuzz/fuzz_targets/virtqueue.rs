//! Registers, rings, descriptors and requests of a hostile guest. The network, block, entropy,
//! socket and console devices go on, or stop and report why. They access nothing outside the
//! guest's RAM.

#![no_main]

#[path = "guest/devices.rs"]
mod devices;
mod guest;

use devices::Bench;
use guest::{Ram, Watcher, begin, read};
use hartline_abi::virtio::{register, status};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The number of register writes in an input, and the bytes of each: one for the register, four for
/// the value.
const WRITES: usize = 8;
const WRITE: usize = 5;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, input)) = input.split_first() else {
        return;
    };
    let (writes, contents) = input.split_at(input.len().min(WRITES * WRITE));
    let ram = Ram::new(contents);
    let watcher = Arc::new(Watcher::default());
    let mut bench = Bench::new(kind, &ram, &watcher);
    begin(&mut bench.transport, kind);
    // Wait until the device has no more work.
    let start = Instant::now();
    let is_on = |bench: &Bench| read(&bench.transport, register::STATUS) & status::DRIVER_OK != 0;
    while is_on(&bench)
        && bench.sleeps() == 0
        && !watcher.failed.load(Ordering::SeqCst)
        && start.elapsed() < Duration::from_millis(100)
    {
        std::thread::yield_now();
    }
    for write in writes.chunks_exact(WRITE) {
        bench.transport.write(u64::from(write[0]) * 4, &write[1..]);
        let mut bytes = [0; 8];
        let read = &mut bytes[..usize::from(write[1] % 9)];
        bench.transport.read(u64::from(write[0]), read);
    }
    bench.end(&ram);
});
