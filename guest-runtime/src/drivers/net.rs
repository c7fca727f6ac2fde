//! The network device (virtio 1.3, section 5.1).

mod receive;

pub use receive::Receiver;

use super::interrupt::Interrupt;
use super::mmio::{Registers, Start, StartError};
use super::queue::{PARTS, Queue};
use crate::arch::host::Host;
use crate::net::wire::{Capabilities, Transmit};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::iter;
use hartline_abi::virtio::{
    MAX_FRAME, MAX_QUEUE_PAIRS, NET_DEVICE, NetHeader, device, net_command, net_control,
    net_feature, net_receive, net_transmit,
};

/// Number of TX buffers, shared by all queues.
const BUFFERS: u16 = 128;
/// Length of a TX buffer: the largest segment with headers and [`NetHeader`], rounded up to pages.
const BUFFER: usize = (NetHeader::LENGTH + MAX_FRAME).next_multiple_of(4096);
/// Length of the control buffer, and the offsets of its parts: class and command, data, answer.
const COMMAND: usize = 8;

/// Starts the network device. Returns its queues and its capabilities.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host) -> Result<(Receiver, Transmitter, Capabilities), StartError> {
    use net_feature::{CHECKSUM, CONTROL_QUEUE, GUEST_CHECKSUM, MAC, MERGEABLE, MTU, MULTIQUEUE};
    use net_feature::{
        GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_TSO4, HOST_TSO6, HOST_USO,
    };
    let mut device = Start::of(host, NET_DEVICE, device::NET);
    let needed = MAC | MTU | CHECKSUM | GUEST_CHECKSUM | MERGEABLE;
    let several = CONTROL_QUEUE | MULTIQUEUE;
    let come = GUEST_TSO4 | GUEST_TSO6 | GUEST_USO4 | GUEST_USO6;
    let large = come | HOST_TSO4 | HOST_TSO6 | HOST_USO;
    let features = device.negotiate(large | several, needed)?;
    let words = device.config([0, 4, 8])?.map(u32::to_le_bytes);
    let config = words.as_flattened();
    let mut mac = [0; 6];
    mac.copy_from_slice(&config[..6]);
    let pairs = match features & several == several {
        true => u16::from_le_bytes([config[8], config[9]]).clamp(1, MAX_QUEUE_PAIRS),
        false => 1,
    };
    let first = Queue::new(BUFFERS, BUFFER, false);
    let others = (1..pairs).map(|_| first.sharing()).collect::<Vec<_>>();
    let transmit: Vec<Queue> = iter::once(first).chain(others).collect();
    let receive = receive::queues(pairs);
    for (pair, (receive, transmit)) in (0..).zip(receive.iter().zip(&transmit)) {
        device.set_queue(net_receive(pair), receive);
        device.set_queue(net_transmit(pair), transmit);
        transmit.want_no_interrupt();
    }
    let mut control = (features & CONTROL_QUEUE != 0).then(|| {
        let control = Queue::with_buffers(PARTS.next_power_of_two(), 1, COMMAND);
        device.set_queue(net_control(pairs), &control);
        control.want_no_interrupt();
        control
    });
    let registers = Rc::new(device.finish(&[])?);
    let control = control.as_mut().filter(|_| pairs > 1);
    let used = match control.is_some_and(|control| set_pairs(&registers, control, pairs)) {
        true => pairs,
        false => 1,
    };
    for pair in 0..used {
        registers.notify(net_receive(pair));
    }
    let interrupt = Interrupt::of(host, NET_DEVICE);
    let receiver = Receiver::new(receive, Rc::clone(&registers), interrupt);
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
        segments6: features & HOST_TSO6 != 0,
        datagrams: features & HOST_USO != 0,
    };
    Ok((receiver, transmitter, capabilities))
}

/// Sets the number of queue pairs. Returns whether the device accepts it.
fn set_pairs(registers: &Registers, control: &mut Queue, pairs: u16) -> bool {
    const ONLY: u16 = 0;
    const ANSWER: usize = 4;
    let [low, high] = pairs.to_le_bytes();
    let command = [net_command::MULTIQUEUE, net_command::SET_PAIRS, low, high];
    let buffer = control.buffer_mut(ONLY);
    buffer[..ANSWER].copy_from_slice(&command);
    buffer[ANSWER] = net_command::ERROR;
    control.add_parts(ONLY, &[(0, 2, false), (2, 2, false), (ANSWER, 1, true)]);
    control.publish();
    // The device completes the command before the notification returns.
    registers.notify(net_control(pairs));
    control.take().is_some() && control.buffer(ONLY)[ANSWER] == net_command::OK
}

/// The TX queues. All packets of a connection use one queue, whichever vCPU sends them, so that
/// they stay in order. The host's answers arrive on the same queue pair.
#[derive(Debug)]
pub struct Transmitter {
    /// TX queues by pair. Each buffer in flight is in one of them.
    queues: Vec<Queue>,
    /// Number of pairs that the device uses.
    used: usize,
    registers: Rc<Registers>,
    free: Vec<u16>,
}

impl Transmitter {
    /// Takes the buffers that the device does not need any more.
    fn take_back(&mut self) {
        for queue in &mut self.queues {
            while let Some((number, _)) = queue.take() {
                self.free.push(number);
            }
            queue.want_no_interrupt();
        }
    }
}

impl Transmit for Transmitter {
    fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.take_back();
        }
        !self.free.is_empty()
    }

    fn is_idle(&mut self) -> bool {
        self.take_back();
        self.free.len() == BUFFERS.into()
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
        queue.add_filled(number, NetHeader::LENGTH + length);
    }

    fn flush(&mut self) {
        for (pair, queue) in (0..).zip(&mut self.queues) {
            if queue.publish() {
                self.registers.notify(net_transmit(pair));
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

    unsafe fn free(&mut self) {
        for queue in &self.queues {
            // SAFETY: the device is gone, and this is the only owner of the queues.
            unsafe { queue.free_rings() };
        }
        if let Some(first) = self.queues.first() {
            // SAFETY: as above; all queues share these buffers.
            unsafe { first.free_buffers() };
        }
    }
}
