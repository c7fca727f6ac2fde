//! The network device (virtio 1.3, section 5.1).

use super::interrupt::Interrupt;
use super::mmio::{Registers, StartError};
use super::queue::Queue;
use crate::host::Host;
use crate::net::wire::{Capabilities, Packet, Receive, Transmit};
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::virtio::{
    MAX_FRAME, NET_DEVICE, NET_RECEIVE, NET_TRANSMIT, NetHeader, device, net_feature, register,
};

/// Buffers of each queue.
const BUFFERS: u16 = 128;
/// Length of a buffer: the largest segment, its headers and [`NetHeader`], in whole pages.
const BUFFER: usize = (NetHeader::LENGTH + MAX_FRAME).next_multiple_of(4096);

/// Starts the network device. The results are its two queues and what is known about it.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host) -> Result<(Receiver, Transmitter, Capabilities), StartError> {
    use net_feature::{CHECKSUM, GUEST_CHECKSUM, GUEST_TSO4, GUEST_TSO6, HOST_TSO4, MAC, MTU};
    let registers = Rc::new(Registers::find(NET_DEVICE, device::NET)?);
    let needed = MAC | MTU | CHECKSUM | GUEST_CHECKSUM;
    let features = registers.negotiate(GUEST_TSO4 | GUEST_TSO6 | HOST_TSO4, needed)?;
    let words = [0, 4, 8].map(|at| registers.read(register::CONFIG + at).to_le_bytes());
    let config = words.as_flattened();
    let mut mac = [0; 6];
    mac.copy_from_slice(&config[..6]);
    let mut receive = Queue::new(BUFFERS, BUFFER, true);
    let transmit = Queue::new(BUFFERS, BUFFER, false);
    registers.set_queue(NET_RECEIVE, &receive)?;
    registers.set_queue(NET_TRANSMIT, &transmit)?;
    (0..BUFFERS).for_each(|number| receive.give(number));
    receive.publish();
    transmit.want_no_interrupt();
    registers.start()?;
    registers.write(register::QUEUE_NOTIFY, NET_RECEIVE.into());
    let receiver = Receiver {
        queue: receive,
        registers: Rc::clone(&registers),
        interrupt: Interrupt::of(host, NET_DEVICE),
    };
    let transmitter = Transmitter {
        queue: transmit,
        registers,
        free: (0..BUFFERS).collect(),
    };
    let capabilities = Capabilities {
        mac,
        mtu: u16::from_le_bytes([config[10], config[11]]).into(),
        segments: features & HOST_TSO4 != 0,
    };
    Ok((receiver, transmitter, capabilities))
}

/// The queue of received packets.
#[derive(Debug)]
pub struct Receiver {
    queue: Queue,
    registers: Rc<Registers>,
    interrupt: Interrupt,
}

impl Receive for Receiver {
    #[inline]
    fn is_pending(&self) -> bool {
        self.queue.has_used()
    }

    fn begin(&mut self) {
        self.interrupt.acknowledge();
    }

    fn next(&mut self) -> Option<Packet> {
        let (buffer, length) = self.queue.take()?;
        let flags = self.queue.buffer(buffer)[0];
        Some(Packet {
            buffer,
            length: length.saturating_sub(NetHeader::LENGTH),
            is_verified: flags & (NetHeader::NEEDS_CHECKSUM | NetHeader::DATA_VALID) != 0,
        })
    }

    fn bytes(&self, packet: &Packet) -> &[u8] {
        &self.queue.buffer(packet.buffer)[NetHeader::LENGTH..][..packet.length]
    }

    fn release(&mut self, packet: Packet) {
        self.queue.give(packet.buffer);
    }

    fn rest(&mut self) -> bool {
        if self.queue.publish() {
            self.registers
                .write(register::QUEUE_NOTIFY, NET_RECEIVE.into());
        }
        self.queue.want_interrupt()
    }
}

/// The queue of packets to send.
#[derive(Debug)]
pub struct Transmitter {
    queue: Queue,
    registers: Rc<Registers>,
    free: Vec<u16>,
}

impl Transmit for Transmitter {
    fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            while let Some((number, _)) = self.queue.take() {
                self.free.push(number);
            }
            self.queue.want_no_interrupt();
        }
        !self.free.is_empty()
    }

    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.has_room() {
            return None;
        }
        let number = *self.free.last()?;
        self.queue.buffer_mut(number)[NetHeader::LENGTH..].get_mut(..length)
    }

    fn commit(&mut self, length: usize, header: NetHeader) {
        let Some(number) = self.free.pop() else {
            return;
        };
        let buffer = self.queue.buffer_mut(number);
        buffer[..NetHeader::LENGTH].copy_from_slice(&header.to_bytes());
        self.queue.give_filled(number, NetHeader::LENGTH + length);
    }

    fn flush(&mut self) {
        if self.queue.publish() {
            self.registers
                .write(register::QUEUE_NOTIFY, NET_TRANSMIT.into());
        }
    }

    fn want_room(&mut self) -> bool {
        self.queue.want_interrupt()
    }
}
