//! The console (virtio 1.3, section 5.3). Its ports only send: standard input is read by host calls
//! ([`crate::drivers::streams`]), so the receive queues of the ports are not set up.

use super::mmio::{Registers, Start, StartError};
use super::queue::Queue;
use crate::arch::host::Host;
use crate::drivers::streams::Ports;
use crate::mm::UserSlice;
use alloc::vec::Vec;
use hartline_abi::console::{
    CONTROL_RECEIVE, CONTROL_TRANSMIT, Control, MAX_PORTS, console_feature, event, transmit_queue,
};
use hartline_abi::virtio::{CONSOLE_DEVICE, device, feature};

/// Length of a port's send ring, bytes; it holds at most [`PARTS`] parts.
const ROOM: usize = 256 << 10;
const PARTS: u16 = 256;
/// Smallest part, unless fewer bytes are left, bytes. Less room counts as none.
const MIN_PART: usize = 4096;
/// Size of the control queues, and the longest control message: one with a name.
const CONTROLS: u16 = 16;
const CONTROL: usize = 64;

/// Starts the console.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host) -> Result<Console, StartError> {
    let last = host.boot().console.into_iter().max().unwrap_or(0);
    let ports = (last as usize + 1).min(MAX_PORTS);
    let mut device = Start::of(host, CONSOLE_DEVICE, device::CONSOLE);
    device.need(console_feature::MULTIPORT | feature::IN_ORDER);
    let mut receive = Queue::new(CONTROLS, CONTROL, true);
    let mut transmit = Queue::new(CONTROLS, Control::LENGTH, false);
    let ports: Vec<Port> = (0..ports).map(|_| Port::new()).collect();
    device.set_queue(CONTROL_RECEIVE, &receive);
    device.set_queue(CONTROL_TRANSMIT, &transmit);
    for (number, port) in (0..).zip(&ports) {
        device.set_queue(transmit_queue(number), &port.queue);
    }
    (0..CONTROLS).for_each(|number| receive.add(number));
    receive.publish();
    for queue in [&receive, &transmit] {
        queue.want_no_interrupt();
    }
    // The device answers before the write to the notify register returns.
    let ready = Control {
        port: 0,
        event: event::DEVICE_READY,
        value: 1,
    };
    transmit.buffer_mut(0)[..Control::LENGTH].copy_from_slice(&ready.to_bytes());
    transmit.add_filled(0, Control::LENGTH);
    transmit.publish();
    let registers = device.finish(&[CONTROL_RECEIVE, CONTROL_TRANSMIT])?;
    let mut console = Console {
        registers,
        receive,
        transmit,
        sent_controls: 1,
        ports,
    };
    console.process_controls();
    match console.ports.iter().all(|port| port.is_announced) {
        true => Ok(console),
        false => Err(StartError::Refused),
    }
}

/// The send side of a port.
#[derive(Debug)]
struct Port {
    queue: Queue,
    /// Lengths of the parts in flight, indexed by part number modulo [`PARTS`].
    lengths: Vec<usize>,
    /// Number of the oldest part in flight, and of the next part to send.
    oldest: usize,
    next: usize,
    /// Bytes completed and bytes sent since the start.
    freed: usize,
    filled: usize,
    /// The device has announced the port (`PORT_ADD`).
    is_announced: bool,
    /// The host has opened the port.
    is_open: bool,
}

impl Port {
    fn new() -> Port {
        let queue = Queue::with_buffers(PARTS, 1, ROOM);
        queue.want_no_interrupt();
        Port {
            queue,
            lengths: alloc::vec![0; PARTS.into()],
            oldest: 0,
            next: 0,
            freed: 0,
            filled: 0,
            is_announced: false,
            is_open: false,
        }
    }

    /// Takes completed parts, in order.
    fn reclaim(&mut self) {
        while self.oldest != self.next && self.queue.take().is_some() {
            self.freed += self.lengths[self.oldest % usize::from(PARTS)];
            self.oldest += 1;
        }
        self.queue.want_no_interrupt();
    }

    /// Sends the start of `bytes`. Returns how many bytes; 0 if there is no room.
    fn push(&mut self, bytes: UserSlice<'_>) -> usize {
        let free = ROOM - (self.filled - self.freed);
        if free < bytes.len().min(MIN_PART) || self.next - self.oldest == PARTS.into() {
            return 0;
        }
        let at = self.filled % ROOM;
        let length = bytes.len().min(free).min(ROOM - at);
        self.queue.fill_part(at, bytes.first(length));
        self.queue.add_part(at, length);
        self.lengths[self.next % usize::from(PARTS)] = length;
        self.next += 1;
        self.filled += length;
        length
    }
}

/// The console device.
#[derive(Debug)]
pub struct Console {
    registers: Registers,
    receive: Queue,
    transmit: Queue,
    /// Number of control messages sent.
    sent_controls: u16,
    ports: Vec<Port>,
}

impl Console {
    /// Processes control messages, and answers `PORT_ADD` with `PORT_READY` and `PORT_OPEN`.
    fn process_controls(&mut self) {
        while self.receive.has_used() {
            while let Some((number, written)) = self.receive.take() {
                let message = self.receive.buffer(number)[..written].first_chunk();
                let message = message.map(|bytes| Control::from_bytes(*bytes));
                self.receive.add(number);
                if let Some(message) = message {
                    self.handle_control(message);
                }
            }
            self.receive.want_no_interrupt();
            for (queue, number) in [
                (&mut self.receive, CONTROL_RECEIVE),
                (&mut self.transmit, CONTROL_TRANSMIT),
            ] {
                if queue.publish() {
                    self.registers.notify(number);
                }
            }
        }
    }

    fn handle_control(&mut self, message: Control) {
        let Some(port) = self.ports.get_mut(message.port as usize) else {
            return;
        };
        match message.event {
            event::PORT_ADD => {
                port.is_announced = true;
                self.send_control(message.port, event::PORT_READY);
                self.send_control(message.port, event::PORT_OPEN);
            }
            event::PORT_OPEN => port.is_open = message.value == 1,
            // The boot information says what each port is for.
            _ => {}
        }
    }

    /// Sends a control message about a port. There is room: each port sends two messages, and the
    /// device takes each one when it is notified.
    fn send_control(&mut self, port: u32, event: u16) {
        while self.transmit.take().is_some() {}
        self.transmit.want_no_interrupt();
        let number = self.sent_controls % CONTROLS;
        self.sent_controls = self.sent_controls.wrapping_add(1);
        let message = Control {
            port,
            event,
            value: 1,
        };
        self.transmit.buffer_mut(number)[..Control::LENGTH].copy_from_slice(&message.to_bytes());
        self.transmit.add_filled(number, Control::LENGTH);
    }
}

impl Ports for Console {
    fn is_open(&mut self, port: u32) -> bool {
        self.process_controls();
        self.ports
            .get(port as usize)
            .is_some_and(|port| port.is_open)
    }

    fn send(&mut self, port: u32, bytes: UserSlice<'_>) -> usize {
        let (Ok(number), Some(port)) = (u16::try_from(port), self.ports.get_mut(port as usize))
        else {
            return 0;
        };
        port.reclaim();
        let sent = port.push(bytes);
        if port.queue.publish() {
            self.registers.notify(transmit_queue(number));
        }
        sent
    }
}

const _: () = assert!(2 * MAX_PORTS < CONTROLS as usize);
