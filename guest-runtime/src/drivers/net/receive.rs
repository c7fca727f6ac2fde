//! The RX queues. A packet occupies as many buffers as it needs (virtio 1.3, section 5.1.6.4).

use crate::convert::low_u16;
use crate::drivers::interrupt::Interrupt;
use crate::drivers::mmio::Registers;
use crate::drivers::queue::Queue;
use crate::net::wire::{Packet, Receive};
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::virtio::{MAX_FRAME, NetHeader, net_receive};

/// Number of RX buffers, shared by all queues, unless each queue would have fewer than [`LEAST`].
const BUFFERS: u16 = 256;
/// Fewest buffers of a queue: enough for some of the largest packets.
const LEAST: u16 = 64;
/// Length of a buffer, bytes; a small packet touches one page of it. The same number of buffers of
/// 2, 4 or 8 KiB received large segments at 0.9 of the rate.
const BUFFER: usize = 16 << 10;
/// Most buffers of a packet.
const MOST: u16 = low_u16((NetHeader::LENGTH + MAX_FRAME).div_ceil(BUFFER) as u64);

const _: () = assert!(LEAST > 4 * MOST);

/// Creates the queues of the pairs, with all buffers available to the device.
pub(super) fn queues(pairs: u16) -> Vec<Queue> {
    let size = (BUFFERS / pairs.next_power_of_two()).max(LEAST);
    let queue = |_| {
        let mut queue = Queue::new(size, BUFFER, true);
        (0..size).for_each(|number| queue.add(number));
        queue.publish();
        queue
    };
    (0..pairs).map(queue).collect()
}

/// All RX queues. Every vCPU processes all of them, because there is one network stack.
#[derive(Debug)]
pub struct Receiver {
    /// The RX queues by pair.
    rings: Vec<Ring>,
    /// Index of the queue that packets are taken from until it is empty.
    current: usize,
    registers: Rc<Registers>,
    interrupt: Interrupt,
}

impl Receiver {
    pub(super) fn new(
        queues: Vec<Queue>,
        registers: Rc<Registers>,
        interrupt: Interrupt,
    ) -> Receiver {
        Receiver {
            rings: queues.into_iter().map(Ring::new).collect(),
            current: 0,
            registers,
            interrupt,
        }
    }

    /// Makes the released buffers of a queue available to the device.
    fn publish(&mut self, pair: usize) {
        if self.rings[pair].queue.publish() {
            self.registers.notify(net_receive(low_u16(pair as u64)));
        }
    }
}

impl Receive for Receiver {
    #[inline]
    fn is_pending(&self) -> bool {
        self.rings.iter().any(|ring| ring.queue.has_used())
    }

    fn begin(&mut self) {
        self.interrupt.acknowledge();
    }

    fn next(&mut self) -> Option<Packet> {
        for _ in 0..self.rings.len() {
            let packet = self.rings[self.current].next();
            if packet.is_some() {
                return packet;
            }
            self.current = (self.current + 1) % self.rings.len();
        }
        None
    }

    fn bytes(&self, packet: &Packet) -> &[u8] {
        self.rings[self.current].bytes(packet)
    }

    fn release(&mut self, _: Packet) {
        let ring = &mut self.rings[self.current];
        ring.release();
        // The device may need buffers before all received packets are processed.
        if ring.queue.unpublished() >= ring.queue.size() / 4 {
            self.publish(self.current);
        }
    }

    fn rest(&mut self) -> bool {
        let mut more = false;
        for pair in 0..self.rings.len() {
            self.publish(pair);
            more |= self.rings[pair].queue.want_interrupt();
        }
        more
    }

    unsafe fn free(&mut self) {
        for ring in &self.rings {
            // SAFETY: the device is gone, and this is the only owner of the queues.
            unsafe {
                ring.queue.free_rings();
                ring.queue.free_buffers();
            }
        }
    }
}

/// An RX queue and the packet that was taken from it.
#[derive(Debug)]
struct Ring {
    queue: Queue,
    /// The header of the packet.
    header: NetHeader,
    /// Its used buffers, in order, with their lengths.
    taken: Vec<(u16, usize)>,
    /// The packet, if its buffers are not adjacent in memory. With a device that uses buffers in
    /// order, they are adjacent except at the end of the ring.
    copy: Vec<u8>,
}

impl Ring {
    fn new(queue: Queue) -> Ring {
        Ring {
            queue,
            header: NetHeader::default(),
            taken: Vec::with_capacity(MOST.into()),
            copy: Vec::new(),
        }
    }

    /// Number of buffers of the packet, from its first buffer. An invalid number counts as 1.
    fn wanted(&self) -> usize {
        match self.header.buffers {
            count @ 1..=MOST => count.into(),
            _ => 1,
        }
    }

    /// Takes the next packet, once all of its buffers are used.
    fn next(&mut self) -> Option<Packet> {
        while self.taken.is_empty() || self.taken.len() < self.wanted() {
            let (number, length) = self.queue.take()?;
            if self.taken.is_empty() {
                let header = self.queue.buffer(number).first_chunk();
                self.header = NetHeader::from_bytes(*header?);
            }
            self.taken.push((number, length));
        }
        let length: usize = self.taken.iter().map(|(_, length)| length).sum();
        self.copy.clear();
        if !self.is_together() {
            for &(number, length) in &self.taken {
                let bytes = self.queue.buffer(number);
                self.copy.extend_from_slice(&bytes[..length]);
            }
        }
        let is_right = (1..=MOST).contains(&self.header.buffers);
        let length = length.saturating_sub(NetHeader::LENGTH);
        Some(Packet::new(self.header, if is_right { length } else { 0 }))
    }

    /// Whether the buffers of the packet are adjacent in memory.
    fn is_together(&self) -> bool {
        let follows = |pair: &[(u16, usize)]| pair[0].0 + 1 == pair[1].0 && pair[0].1 == BUFFER;
        self.taken.windows(2).all(follows)
    }

    fn bytes(&self, packet: &Packet) -> &[u8] {
        let length = NetHeader::LENGTH + packet.length;
        let bytes = match (self.taken.first(), self.copy.is_empty()) {
            (Some(&(first, _)), true) => self.queue.bytes(first, length),
            _ => &self.copy,
        };
        bytes.get(NetHeader::LENGTH..length).unwrap_or_default()
    }

    /// Releases the buffers of the packet.
    fn release(&mut self) {
        for (number, _) in self.taken.drain(..) {
            self.queue.add(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::low_u32;
    use alloc::vec;

    const LENGTH: u32 = low_u32(BUFFER as u64);

    /// A queue in which the device has used these buffers for a packet with this header.
    fn ring(buffers: &[(u32, u32)], header: NetHeader) -> Ring {
        let mut queue = queues(1).remove(0);
        for (at, &(number, _)) in (1u8..).zip(buffers) {
            queue.buffer_mut(low_u16(number.into())).fill(at);
        }
        let first = queue.buffer_mut(low_u16(buffers[0].0.into()));
        first[..NetHeader::LENGTH].copy_from_slice(&header.to_bytes());
        queue.use_all(buffers);
        Ring::new(queue)
    }

    fn of(buffers: u16) -> NetHeader {
        NetHeader {
            buffers,
            ..NetHeader::default()
        }
    }

    /// The bytes that [`ring`] has written to buffers with these lengths.
    fn expected(lengths: &[usize]) -> Vec<u8> {
        let pieces = (1u8..).zip(lengths);
        let all: Vec<u8> = pieces.flat_map(|(at, &length)| vec![at; length]).collect();
        all[NetHeader::LENGTH..].to_vec()
    }

    #[test]
    fn packets_span_buffers() {
        for (numbers, is_copied) in [([3, 4, 5], false), ([254, 255, 0], true), ([9, 8, 7], true)] {
            let used = [
                (numbers[0], LENGTH),
                (numbers[1], LENGTH),
                (numbers[2], 100),
            ];
            let mut ring = ring(&used, of(3));
            let packet = ring.next().unwrap();
            assert_eq!(ring.bytes(&packet), expected(&[BUFFER, BUFFER, 100]));
            assert_eq!(!ring.copy.is_empty(), is_copied);
            ring.release();
            assert!(ring.next().is_none());
            assert_eq!(ring.queue.unpublished(), 3);
            ring.queue.publish();
            assert_eq!(
                ring.queue.available(),
                (BUFFERS + 3, low_u16(numbers[2].into()))
            );
        }
    }

    #[test]
    fn a_packet_waits_for_its_last_buffer() {
        let mut ring = ring(&[(0, LENGTH), (1, LENGTH)], of(3));
        assert!(ring.next().is_none());
        // The incomplete packet is not reported again.
        assert!(!ring.queue.has_used() && !ring.queue.want_interrupt());
        ring.queue.use_all(&[(2, 50)]);
        let packet = ring.next().unwrap();
        assert_eq!(packet.length, 2 * BUFFER + 50 - NetHeader::LENGTH);
        assert_eq!(ring.bytes(&packet).len(), packet.length);
    }

    #[test]
    fn devices_that_lie() {
        // Partly filled buffers, nonexistent buffers, repeated buffers, and invalid lengths.
        let mut odd = ring(&[(3, 20), (4, u32::MAX)], of(2));
        odd.queue.use_all(&[(256 + 7, 30), (7, 0)]);
        let packet = odd.next().unwrap();
        assert_eq!(odd.bytes(&packet), expected(&[20, BUFFER]));
        odd.release();
        while let Some(packet) = odd.next() {
            assert_eq!(odd.bytes(&packet).len(), packet.length);
            odd.release();
        }
        // Invalid numbers of buffers, and a packet without room for the header.
        for (header, length) in [
            (of(0), 100),
            (of(MOST + 1), 100),
            (of(u16::MAX), 9),
            (of(1), 3),
        ] {
            let mut bad = ring(&[(255, length)], header);
            let packet = bad.next().unwrap();
            assert_eq!((packet.length, bad.bytes(&packet).len()), (0, 0));
            bad.release();
            assert_eq!(bad.queue.unpublished(), 1);
        }
    }

    #[test]
    fn large_segments_say_how_large() {
        for (gso_type, gso_size, length, segment) in [
            (NetHeader::GSO_NONE, 7, 88, None),
            (NetHeader::GSO_TCP4, 7, 88, None),
            (NetHeader::GSO_UDP, 7, 88, Some(7)),
            (NetHeader::GSO_TCP6, 0, 0, None),
            (NetHeader::GSO_UDP, 0, 0, Some(0)),
            (99, 7, 0, None),
        ] {
            let header = NetHeader {
                gso_type,
                gso_size,
                ..of(1)
            };
            let packet = ring(&[(0, 100)], header).next().unwrap();
            assert_eq!((packet.length, packet.segment), (length, segment));
        }
    }
}
