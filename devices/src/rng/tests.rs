//! Requests, good and bad, of a driver that is written here.

use super::*;
use crate::virtio::tests::{BASE, Watcher, memory, queue};
use vm_memory::{Bytes, GuestAddress};

/// Where buffers are.
const BUFFERS: u64 = BASE + 0x4000;
const WRITABLE: u16 = 2;
const NEXT: u16 = 1;

/// Serves a chain of buffers. Result: the memory, what the device counted, and whether it
/// stopped.
fn serve(chain: &[(u64, u32, u16, u16)]) -> (Memory, Statistics, Option<DeviceError>) {
    let memory = memory();
    let watcher = Arc::new(Watcher::default());
    let mut device = Rng::new(memory.clone(), Arc::clone(&watcher) as Arc<dyn Guest>);
    assert!(device.activate(0, vec![queue(&memory, chain, 1)]));
    device.notify(0);
    // Nothing new: nothing happens.
    device.notify(0);
    let counts = device.counters().read();
    device.reset();
    device.notify(0);
    assert_eq!(device.counters().read().requests, counts.requests);
    (memory, counts, watcher.failure())
}

fn bytes(memory: &Memory, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory
        .map()
        .read_slice(&mut bytes, GuestAddress(at))
        .unwrap();
    bytes
}

#[test]
fn buffers_are_filled_to_their_ends_and_no_further() {
    let chain = [
        (BUFFERS, 100, WRITABLE | NEXT, 1),
        (BUFFERS + 256, 50, WRITABLE, 0),
    ];
    let (memory, counts, failure) = serve(&chain);
    assert_eq!((counts.requests, counts.bytes, failure), (1, 150, None));
    // Of 64 random bytes not all are zeros.
    for (at, is_random) in [
        (BUFFERS + 36, true),
        (BUFFERS + 100, false),
        (BUFFERS + 242, true),
        (BUFFERS + 306, false),
    ] {
        let found = bytes(&memory, at, 64).iter().any(|byte| *byte != 0);
        assert_eq!(found, is_random, "{at:#x}");
    }
}

#[test]
fn a_request_has_a_limit() {
    let (memory, counts, failure) = serve(&[(BUFFERS, 0x8000, WRITABLE, 0)]);
    assert_eq!((counts.bytes, failure), (MOST as u64, None));
    let behind = bytes(&memory, BUFFERS + MOST as u64, 0x4000);
    assert!(behind.iter().all(|byte| *byte == 0));
}

#[test]
fn bad_buffers_stop_it() {
    for (address, flags) in [(BUFFERS, 0), (BASE - 16, WRITABLE), (u64::MAX, WRITABLE)] {
        let (_, counts, failure) = serve(&[(address, 64, flags, 0)]);
        assert_eq!(failure, Some(DeviceError::Buffer), "{address:#x}");
        assert_eq!((counts.requests, counts.doorbells), (0, 2));
    }
}
