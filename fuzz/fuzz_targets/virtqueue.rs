//! Registers, rings, descriptors and requests of a hostile guest: the network device, the block
//! device, the entropy device, the socket device and the console go on, or stop and say why. Nothing outside
//! the guest's RAM is read or written.

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

/// Register writes of an input, each of a byte for the register and four for the value.
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
    // Until it has nothing more to do.
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
