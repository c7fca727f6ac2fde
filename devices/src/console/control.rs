//! The control queues (virtio 1.3, section 5.3.6.2): the device announces ports and reports when one
//! closes, and the driver says that it is ready for them.
//!
//! The vCPU thread that handles the driver's notification sends the replies before it returns, so
//! the driver need not sleep when it starts.

use super::ports::Port;
use crate::virtio::{
    DeviceError, Direction, Guest, MAX_QUEUE_SIZE, Memory, add_used, enable_notification,
    next_chain, notify_used,
};
use hartline_abi::console::{Control, event};
use std::collections::VecDeque;
use virtio_queue::{Queue, QueueState};

/// Most messages of the driver per notification: as many as a driver can have in the ring.
const BATCH: u16 = MAX_QUEUE_SIZE;
/// Most pending messages for the driver. At this limit, the device takes no messages from the
/// driver.
const MAX_PENDING: usize = 64;

/// The two control queues.
#[derive(Debug)]
pub(super) struct Controls {
    rx: Queue,
    tx: Queue,
    /// Pending messages for the driver.
    pending: VecDeque<Vec<u8>>,
}

impl Controls {
    /// The RX and the TX control queue, without pending messages.
    pub fn new(rx: Queue, tx: Queue) -> Self {
        Self {
            rx,
            tx,
            pending: VecDeque::new(),
        }
    }

    /// The states of the RX and the TX control queue. `None`: there are pending messages.
    pub fn queue_states(&self) -> Option<[QueueState; 2]> {
        let is_idle = self.pending.is_empty();
        is_idle.then(|| [self.rx.state(), self.tx.state()])
    }

    /// Reports to the driver that the host's end of a port is closed.
    pub fn close(&mut self, port: u32) {
        self.push(port, event::PORT_OPEN, 0, &[]);
    }

    /// Handles the driver's messages and sends replies. Returns the number of interrupts.
    ///
    /// # Errors
    /// The guest broke a queue, or a message has no room.
    pub fn serve(
        &mut self,
        memory: &Memory,
        guest: &dyn Guest,
        (ports, closed): (&[Port], &[bool]),
    ) -> Result<u64, DeviceError> {
        let (mut taken, mut sent) = (0, self.deliver(memory)?);
        loop {
            while taken < BATCH
                && self.pending.len() < MAX_PENDING
                && let Some(chain) = next_chain(&mut self.tx, memory, Direction::Read)?
            {
                let mut bytes = [0; Control::LENGTH];
                if chain.length < bytes.len() {
                    return Err(DeviceError::Buffer);
                }
                chain.buffers.copy_from(&mut bytes);
                add_used(&mut self.tx, memory, chain.head, 0)?;
                taken += 1;
                self.reply(Control::from_bytes(bytes), ports, closed);
            }
            sent |= self.deliver(memory)?;
            let is_full = taken == BATCH || self.pending.len() >= MAX_PENDING;
            if !enable_notification(&mut self.tx, memory)? || is_full {
                break;
            }
        }
        let mut interrupts = 0;
        for (queue, is_used) in [(&mut self.tx, taken > 0), (&mut self.rx, sent)] {
            if is_used && notify_used(queue, memory, guest)? {
                interrupts += 1;
            }
        }
        Ok(interrupts)
    }

    /// Queues the replies to a message. Unknown messages and ports are ignored.
    fn reply(&mut self, message: Control, ports: &[Port], closed: &[bool]) {
        let Control { port, event, value } = message;
        let number = port as usize;
        match (event, value) {
            (event::DEVICE_READY, 1) => {
                for (_, port) in ports.iter().zip(0..) {
                    self.push(port, event::PORT_ADD, 0, &[]);
                }
            }
            (event::PORT_READY, 1) => {
                let (Some(found), Some(closed)) = (ports.get(number), closed.get(number)) else {
                    return;
                };
                if found.is_terminal {
                    self.push(port, event::CONSOLE_PORT, 1, &[]);
                }
                self.push(port, event::PORT_NAME, 1, found.name.as_bytes());
                self.push(port, event::PORT_OPEN, (!closed).into(), &[]);
            }
            _ => {}
        }
    }

    fn push(&mut self, port: u32, event: u16, value: u16, name: &[u8]) {
        let control = Control { port, event, value };
        self.pending
            .push_back([&control.to_bytes()[..], name].concat());
    }

    /// Sends pending messages that the driver has buffers for. Returns whether there were any.
    fn deliver(&mut self, memory: &Memory) -> Result<bool, DeviceError> {
        let mut any = false;
        while let Some(message) = self.pending.front() {
            let Some(chain) = next_chain(&mut self.rx, memory, Direction::Write)? else {
                // A notification of the driver brings new buffers.
                match enable_notification(&mut self.rx, memory)? {
                    true => continue,
                    false => break,
                }
            };
            if chain.length < message.len() {
                return Err(DeviceError::Buffer);
            }
            chain.buffers.copy_to(message);
            let length = u32::try_from(message.len()).map_err(|_| DeviceError::Buffer)?;
            add_used(&mut self.rx, memory, chain.head, length)?;
            self.pending.pop_front();
            any = true;
        }
        Ok(any)
    }
}
