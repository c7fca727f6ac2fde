//! The socket device (virtio 1.3, section 5.10).

use super::interrupt::Interrupt;
use super::mmio::{Registers, Start, StartError};
use super::queue::Queue;
use crate::arch::host::Host;
use crate::mm::UserSlice;
use crate::net::vsock::Channel;
use alloc::vec::Vec;
use hartline_abi::virtio::{VSOCK_DEVICE, device};
use hartline_abi::vsock::{VSOCK_EVENT, VSOCK_RECEIVE, VSOCK_TRANSMIT, VsockHeader};

/// Number of buffers of the RX queue and of the TX queue.
const BUFFERS: u16 = 32;
/// Length of each, bytes.
const BUFFER: usize = 64 << 10;
/// Number of event buffers, and their length, bytes.
const EVENTS: u16 = 2;
const EVENT: usize = 8;

/// Starts the socket device. Returns it and the CID of this VM.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host) -> Result<(VsockDevice, u32), StartError> {
    let mut device = Start::of(host, VSOCK_DEVICE, device::VSOCK);
    device.need(0);
    // The upper half of the CID is 0.
    let [cid] = device.config([0])?;
    let mut receive = Queue::new(BUFFERS, BUFFER, true);
    let transmit = Queue::new(BUFFERS, BUFFER, false);
    let mut events = Queue::new(EVENTS, EVENT, true);
    device.set_queue(VSOCK_RECEIVE, &receive);
    device.set_queue(VSOCK_TRANSMIT, &transmit);
    device.set_queue(VSOCK_EVENT, &events);
    (0..BUFFERS).for_each(|number| receive.add(number));
    (0..EVENTS).for_each(|number| events.add(number));
    receive.publish();
    events.publish();
    transmit.want_no_interrupt();
    let device = VsockDevice {
        registers: device.finish(&[VSOCK_RECEIVE])?,
        receive,
        transmit,
        events,
        free: (0..BUFFERS).collect(),
        wants_room: false,
        interrupt: Interrupt::of(host, VSOCK_DEVICE),
    };
    Ok((device, cid))
}

/// A socket device.
#[derive(Debug)]
pub struct VsockDevice {
    registers: Registers,
    receive: Queue,
    transmit: Queue,
    events: Queue,
    /// Free TX buffers.
    free: Vec<u16>,
    /// A connection waits for a TX buffer.
    wants_room: bool,
    interrupt: Interrupt,
}

impl Channel for VsockDevice {
    #[inline]
    fn is_pending(&self) -> bool {
        self.receive.has_used()
            || self.wants_room && self.transmit.has_used()
            || self.events.has_used()
    }

    fn begin(&mut self) {
        self.interrupt.acknowledge();
    }

    fn was_reset(&mut self) -> bool {
        // There is only one kind of event (section 5.10.6.7).
        let mut came = false;
        while let Some((number, _)) = self.events.take() {
            self.events.add(number);
            came = true;
        }
        if self.events.publish() {
            self.registers.notify(VSOCK_EVENT);
        }
        came
    }

    fn next(&mut self) -> Option<(VsockHeader, Vec<u8>)> {
        let (number, written) = self.receive.take()?;
        let buffer = self.receive.buffer(number);
        let packet = buffer[..written].split_first_chunk().map(|(start, rest)| {
            let header = VsockHeader::from_bytes(start);
            let length = rest.len().min(header.length as usize);
            (header, rest[..length].to_vec())
        });
        self.receive.add(number);
        // A packet that is shorter than its header is replaced by an empty one, which is ignored.
        Some(packet.unwrap_or_default())
    }

    fn rest(&mut self) -> bool {
        if self.receive.publish() {
            self.registers.notify(VSOCK_RECEIVE);
        }
        let came = self.receive.want_interrupt();
        // An event ends all connections, and may arrive at any time.
        came | self.events.want_interrupt()
    }

    fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        if self.free.is_empty() {
            self.wants_room = true;
            if self.transmit.want_interrupt() {
                self.reclaim();
            }
        }
        !self.free.is_empty()
    }

    fn most(&self) -> usize {
        BUFFER - VsockHeader::LENGTH
    }

    fn send(&mut self, header: &VsockHeader, bytes: UserSlice<'_>) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(number) = self.free.pop() else {
            return false;
        };
        let length = VsockHeader::LENGTH + bytes.len();
        let buffer = self.transmit.buffer_mut(number);
        buffer[..VsockHeader::LENGTH].copy_from_slice(&header.to_bytes());
        bytes.copy_to(&mut buffer[VsockHeader::LENGTH..length]);
        self.transmit.add_filled(number, length);
        if self.transmit.publish() {
            self.registers.notify(VSOCK_TRANSMIT);
        }
        true
    }
}

impl VsockDevice {
    /// Takes the buffers of packets that were sent.
    fn reclaim(&mut self) {
        while let Some((number, _)) = self.transmit.take() {
            self.free.push(number);
        }
        self.transmit.want_no_interrupt();
        self.wants_room = false;
    }
}
