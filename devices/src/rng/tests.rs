//! Good and bad requests of a test driver.

use super::backend::MAX_LENGTH;
use super::*;
use crate::virtio::tests::{BASE, NEXT, WRITE, Watcher, memory, queue};
use crate::virtio::{Device, DeviceError, Guest, Memory};
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress};

/// Address of the buffers.
const BUFFERS: u64 = BASE + 0x4000;

/// Serves a chain of buffers. Returns the memory, the counters, and the error that stopped the
/// device.
fn serve(chain: &[(u64, u32, u16, u16)]) -> (Memory, Statistics, Option<DeviceError>) {
    let memory = memory();
    let watcher = Arc::new(Watcher::default());
    let mut device = Rng::new(memory.clone(), Arc::clone(&watcher) as Arc<dyn Guest>);
    device.activate(0, vec![queue(&memory, chain, 1)]).unwrap();
    device.notify(0);
    // Without a new chain nothing happens.
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
        (BUFFERS, 100, WRITE | NEXT, 1),
        (BUFFERS + 256, 50, WRITE, 0),
    ];
    let (memory, counts, failure) = serve(&chain);
    assert_eq!((counts.requests, counts.bytes, failure), (1, 150, None));
    // Not all of 64 random bytes are zero.
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
    let (memory, counts, failure) = serve(&[(BUFFERS, 0x8000, WRITE, 0)]);
    assert_eq!((counts.bytes, failure), (MAX_LENGTH as u64, None));
    let behind = bytes(&memory, BUFFERS + MAX_LENGTH as u64, 0x4000);
    assert!(behind.iter().all(|byte| *byte == 0));
}

#[test]
fn bad_buffers_stop_the_device() {
    for (address, flags) in [(BUFFERS, 0), (BASE - 16, WRITE), (u64::MAX, WRITE)] {
        let (_, counts, failure) = serve(&[(address, 64, flags, 0)]);
        assert_eq!(failure, Some(DeviceError::Buffer), "{address:#x}");
        assert_eq!((counts.requests, counts.kicks), (0, 2));
    }
}
