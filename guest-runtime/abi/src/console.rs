//! The console's output ring: what the program writes to standard output and
//! standard error, in order, read by a thread of the VMM without an exit per write.
//!
//! A single-producer, single-consumer byte ring of records: a [`RecordHeader`],
//! then `length` bytes, then padding to 8 bytes. Positions count bytes since boot
//! and never wrap (64 bits); the byte at position `p` is `data[p % RING_SIZE]`, and
//! a record may wrap around the end. The producer publishes `written` with release
//! order after the bytes; the consumer publishes `read` with release order after
//! it has used them. A consumer that is about to sleep sets `reader_waits` to 1
//! (sequentially consistent), looks at `written` once more, and sleeps; a producer
//! that published `written` swaps `reader_waits` to 0 and rings
//! [`crate::port::CONSOLE`] if it was 1.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Size of the ring's data, bytes; a power of two.
pub const RING_SIZE: usize = 1 << 20;

/// Longest `length` of a record.
pub const MAX_RECORD: usize = 64 << 10;

/// Start of a record, aligned to 8 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Host descriptor: 1 or 2; 3 is where traces go.
    pub descriptor: u32,
    /// Bytes that follow, 1 to [`MAX_RECORD`].
    pub length: u32,
}

/// The ring.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Console {
    /// Position after the last byte published by the guest.
    pub written: AtomicU64,
    /// Not used: keeps the two positions on their own cache lines.
    pub padding0: [u64; 7],
    /// Position after the last byte used by the host.
    pub read: AtomicU64,
    /// 1 while the host sleeps and wants the doorbell.
    pub reader_waits: AtomicU32,
    /// 1 after writing to descriptor 1 failed on the host (closed pipe): the guest
    /// answers further writes with `EPIPE`. Bit 1: descriptor 2. Bit 2: 3.
    pub broken: AtomicU32,
    /// Not used.
    pub padding1: [u64; 502],
    /// The bytes.
    pub data: [u8; RING_SIZE],
}

const _: () = assert!(core::mem::size_of::<Console>() == 4096 + RING_SIZE);
const _: () = assert!(RING_SIZE.is_power_of_two());
