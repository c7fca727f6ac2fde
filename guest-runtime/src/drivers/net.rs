//! The network device (virtio 1.3, section 5.1).

use super::interrupt::Interrupt;
use super::mmio::{Registers, Start, StartError};
use super::queue::{PARTS, Queue};
use crate::host::Host;
use crate::net::wire::{Capabilities, Packet, Receive, Transmit};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::iter;
use hartline_abi::virtio::{
    MAX_FRAME, MAX_QUEUE_PAIRS, NET_DEVICE, NetHeader, device, net_command, net_control,
    net_feature, net_receive, net_transmit,
};

/// Buffers for packets of each direction, of all its queues together: several take no more memory
/// unless each for received packets had fewer than [`LEAST`] then.
const BUFFERS: u16 = 128;
/// Least buffers of a queue for received packets: some of the largest segments.
const LEAST: u16 = 32;
/// Length of a buffer: the largest segment, its headers and [`NetHeader`], in whole pages.
const BUFFER: usize = (NetHeader::LENGTH + MAX_FRAME).next_multiple_of(4096);
/// Length of the buffer for commands, and its parts: class and command, data, answer.
const COMMAND: usize = 8;

/// Starts the network device. The results are its queues and what is known about it.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host) -> Result<(Receiver, Transmitter, Capabilities), StartError> {
    use net_feature::{CHECKSUM, CONTROL_QUEUE, GUEST_CHECKSUM, GUEST_TSO4, GUEST_TSO6};
    use net_feature::{HOST_TSO4, MAC, MTU, MULTIQUEUE};
    let mut device = Start::of(host, NET_DEVICE, device::NET);
    let needed = MAC | MTU | CHECKSUM | GUEST_CHECKSUM;
    let several = CONTROL_QUEUE | MULTIQUEUE;
    let features = device.negotiate(GUEST_TSO4 | GUEST_TSO6 | HOST_TSO4 | several, needed)?;
    let words = device.config([0, 4, 8])?.map(u32::to_le_bytes);
    let config = words.as_flattened();
    let mut mac = [0; 6];
    mac.copy_from_slice(&config[..6]);
    let pairs = match features & several == several {
        true => u16::from_le_bytes([config[8], config[9]]).clamp(1, MAX_QUEUE_PAIRS),
        false => 1,
    };
    let size = (BUFFERS / pairs.next_power_of_two()).max(LEAST);
    let first = Queue::new(BUFFERS, BUFFER, false);
    let others = (1..pairs).map(|_| first.sharing()).collect::<Vec<_>>();
    let transmit: Vec<Queue> = iter::once(first).chain(others).collect();
    let mut receive: Vec<Queue> = (0..pairs).map(|_| Queue::new(size, BUFFER, true)).collect();
    for (pair, (receive, transmit)) in (0..).zip(receive.iter_mut().zip(&transmit)) {
        device.set_queue(net_receive(pair), receive);
        device.set_queue(net_transmit(pair), transmit);
        (0..size).for_each(|number| receive.give(number));
        receive.publish();
        transmit.want_no_interrupt();
    }
    let mut control = Queue::with_buffers(PARTS.next_power_of_two(), 1, COMMAND);
    if features & CONTROL_QUEUE != 0 {
        device.set_queue(net_control(pairs), &control);
        control.want_no_interrupt();
    }
    let registers = Rc::new(device.finish(&[])?);
    let used = match pairs > 1 && set_pairs(&registers, &mut control, pairs) {
        true => pairs,
        false => 1,
    };
    for pair in 0..used {
        registers.ring(net_receive(pair));
    }
    let receiver = Receiver {
        queues: receive,
        current: 0,
        size,
        registers: Rc::clone(&registers),
        interrupt: Interrupt::of(host, NET_DEVICE),
    };
    let transmitter = Transmitter {
        queues: transmit,
        used: used.into(),
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

/// Asks the device to use so many pairs. Result: whether it does.
fn set_pairs(registers: &Registers, control: &mut Queue, pairs: u16) -> bool {
    const ONLY: u16 = 0;
    const ANSWER: usize = 4;
    let [low, high] = pairs.to_le_bytes();
    let command = [net_command::MULTIQUEUE, net_command::SET_PAIRS, low, high];
    let buffer = control.buffer_mut(ONLY);
    buffer[..ANSWER].copy_from_slice(&command);
    buffer[ANSWER] = net_command::ERROR;
    control.give_parts(ONLY, &[(0, 2, false), (2, 2, false), (ANSWER, 1, true)]);
    control.publish();
    // It is done when the doorbell was rung.
    registers.ring(net_control(pairs));
    control.take().is_some() && control.buffer(ONLY)[ANSWER] == net_command::OK
}

/// The queues of received packets. All end here, whichever vCPU looks: the stack is one.
#[derive(Debug)]
pub struct Receiver {
    /// By pair.
    queues: Vec<Queue>,
    /// The queue that packets are taken from, until it has none.
    current: usize,
    /// Buffers of each. Those of later queues have numbers behind those of earlier ones.
    size: u16,
    registers: Rc<Registers>,
    interrupt: Interrupt,
}

impl Receiver {
    /// The queue that has a buffer, and its number there.
    fn place(&self, buffer: u16) -> (usize, u16) {
        ((buffer / self.size).into(), buffer % self.size)
    }
}

impl Receive for Receiver {
    #[inline]
    fn is_pending(&self) -> bool {
        self.queues.iter().any(Queue::has_used)
    }

    fn begin(&mut self) {
        self.interrupt.acknowledge();
    }

    fn next(&mut self) -> Option<Packet> {
        // The device has its buffers back only later, so each queue has its turn.
        for _ in 0..self.queues.len() {
            let queue = &mut self.queues[self.current];
            if let Some((number, length)) = queue.take() {
                let flags = queue.buffer(number)[0];
                return Some(Packet {
                    buffer: self.current as u16 * self.size + number,
                    length: length.saturating_sub(NetHeader::LENGTH),
                    is_verified: flags & (NetHeader::NEEDS_CHECKSUM | NetHeader::DATA_VALID) != 0,
                });
            }
            self.current = (self.current + 1) % self.queues.len();
        }
        None
    }

    fn bytes(&self, packet: &Packet) -> &[u8] {
        let (pair, number) = self.place(packet.buffer);
        &self.queues[pair].buffer(number)[NetHeader::LENGTH..][..packet.length]
    }

    fn release(&mut self, packet: Packet) {
        let (pair, number) = self.place(packet.buffer);
        self.queues[pair].give(number);
    }

    fn rest(&mut self) -> bool {
        let mut more = false;
        for (pair, queue) in (0..).zip(&mut self.queues) {
            if queue.publish() {
                self.registers.ring(net_receive(pair));
            }
            more |= queue.want_interrupt();
        }
        more
    }
}

/// The queues of packets to send. The packets of a connection, which any vCPU may send, all go
/// the same way: on several they would overtake each other. What the host answers comes by the
/// same pair.
#[derive(Debug)]
pub struct Transmitter {
    /// By pair. A buffer that is not free is in one of them.
    queues: Vec<Queue>,
    /// How many of them the device takes packets from.
    used: usize,
    registers: Rc<Registers>,
    free: Vec<u16>,
}

impl Transmit for Transmitter {
    fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            for queue in &mut self.queues {
                while let Some((number, _)) = queue.take() {
                    self.free.push(number);
                }
                queue.want_no_interrupt();
            }
        }
        !self.free.is_empty()
    }

    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.has_room() {
            return None;
        }
        let number = *self.free.last()?;
        self.queues[0].buffer_mut(number)[NetHeader::LENGTH..].get_mut(..length)
    }

    fn commit(&mut self, length: usize, header: NetHeader, flow: u32) {
        let Some(number) = self.free.pop() else {
            return;
        };
        let queue = &mut self.queues[flow as usize % self.used];
        let buffer = queue.buffer_mut(number);
        buffer[..NetHeader::LENGTH].copy_from_slice(&header.to_bytes());
        queue.give_filled(number, NetHeader::LENGTH + length);
    }

    fn flush(&mut self) {
        for (pair, queue) in (0..).zip(&mut self.queues) {
            if queue.publish() {
                self.registers.ring(net_transmit(pair));
            }
        }
    }

    fn want_room(&mut self) -> bool {
        let mut came = false;
        for queue in &self.queues {
            came |= queue.want_interrupt();
        }
        came
    }
}
