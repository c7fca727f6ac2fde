//! The wire between the hosts, and the simulated clock.

use crate::convert::low_u16;
use crate::net::wire::*;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::ops::Deref;
use hartline_abi::virtio::NetHeader;

std::thread_local! {
    /// Nanoseconds since the test began.
    static TIME: Cell<u64> = const { Cell::new(0) };
}

pub(in crate::net::wire) fn time() -> u64 {
    TIME.get()
}

pub(super) fn advance(milliseconds: u64) {
    TIME.set(TIME.get() + milliseconds * 1_000_000);
}

/// A packet and its metadata.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) header: NetHeader,
}

impl Deref for Frame {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Frame {
        Frame {
            bytes,
            header: NetHeader::default(),
        }
    }
}

/// The packets in one direction.
pub(super) type Pipe = Rc<RefCell<VecDeque<Frame>>>;

#[derive(Debug)]
pub(super) struct In {
    pub(super) pipe: Pipe,
    pub(super) current: Frame,
}

impl Receive for In {
    fn is_pending(&self) -> bool {
        !self.pipe.borrow().is_empty()
    }

    fn begin(&mut self) {}

    fn next(&mut self) -> Option<Packet> {
        self.current = self.pipe.borrow_mut().pop_front()?;
        let packet = Packet::new(self.current.header, self.current.len());
        // The checksum is present but not verified.
        Some(Packet {
            is_verified: false,
            ..packet
        })
    }

    fn bytes(&self, packet: &Packet) -> &[u8] {
        &self.current[..packet.length]
    }

    fn release(&mut self, _: Packet) {}

    fn rest(&mut self) -> bool {
        self.is_pending()
    }

    unsafe fn free(&mut self) {}
}

/// Most packets in the TX queue.
const ROOM: usize = 20;

#[derive(Debug)]
pub(super) struct Out {
    pub(super) pipe: Pipe,
    /// Largest IP packet, bytes.
    pub(super) mtu: usize,
    pub(super) buffer: Vec<u8>,
}

impl Transmit for Out {
    fn is_idle(&mut self) -> bool {
        self.pipe.borrow().is_empty()
    }

    fn has_room(&mut self) -> bool {
        self.pipe.borrow().len() < ROOM
    }

    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.buffer = vec![0; length];
        self.has_room().then_some(&mut self.buffer)
    }

    fn commit(&mut self, length: usize, header: NetHeader, _: u32) {
        self.buffer.truncate(length);
        if header.flags & NetHeader::NEEDS_CHECKSUM != 0 {
            // Simulate the checksum offload of the device.
            let start = usize::from(header.checksum_start);
            let location = start + usize::from(header.checksum_offset);
            let sum = internet_checksum(&self.buffer[start..]);
            self.buffer[location..location + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let segment = usize::from(header.gso_size);
        let headers = usize::from(header.header_length);
        let longest = self.mtu + link::ETHERNET;
        assert!(segment == 0 || segment + headers <= longest && segment < length - headers);
        assert_eq!(header.gso_type == NetHeader::GSO_NONE, segment == 0);
        assert!(segment > 0 || length <= longest);
        let bytes = self.buffer.clone();
        self.pipe.borrow_mut().push_back(Frame { bytes, header });
    }

    fn flush(&mut self) {}

    fn want_room(&mut self) -> bool {
        self.has_room()
    }

    unsafe fn free(&mut self) {}
}

fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !low_u16(sum)
}
