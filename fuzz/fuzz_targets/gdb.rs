//! Bytes of a debugger: packets, and the numbers, threads and actions in them.

#![no_main]

use hartline_guest::debugger::packet::{self, Input, MAX_PACKET, Packets};
use hartline_guest::debugger::resume::{actions, from_gdb, to_gdb};
use hartline_guest::debugger::text::{hex, number, pair, threads, unhex};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut packets = Packets::default();
    for &byte in bytes {
        if let Some(Input::Packet(contents)) = packets.take(byte) {
            check(&contents);
        }
    }
    // Without a valid checksum, few inputs are packets.
    check(&bytes[..bytes.len().min(MAX_PACKET)]);
});

/// Parses contents, and checks that they survive a packet.
fn check(contents: &[u8]) {
    assert!(contents.len() <= MAX_PACKET);
    let mut sent = Vec::new();
    packet::put(&mut sent, contents);
    let mut packets = Packets::default();
    let received: Vec<Input> = sent.iter().filter_map(|&byte| packets.take(byte)).collect();
    assert_eq!(received, [Input::Packet(contents.to_vec())]);
    let _ = (pair(contents, b','), threads(contents));
    if let Some(decoded) = unhex(contents) {
        assert!(hex(&decoded).eq_ignore_ascii_case(contents));
    }
    if let Some(signal) = number(contents).and_then(from_gdb) {
        assert_eq!(Some(u64::from(to_gdb(signal))), number(contents));
    }
    for action in actions(contents).into_iter().flatten() {
        assert!(action.signal <= 64);
    }
}
