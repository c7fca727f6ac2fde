//! The control queues: the device tells which ports there are and when one closes, the driver
//! that it is ready for them (virtio 1.3, section 5.3.6.2). What the driver asks is answered
//! before its doorbell returns, so that starting takes no sleep.

use super::ports::Port;
use crate::virtio::buffers::{copy_from, copy_to};
use crate::virtio::{
    DeviceError, Direction, Guest, MAX_QUEUE_SIZE, Memory, give_back, interrupt_for, next_chain,
    want_doorbell,
};
use hartline_abi::console::{Control, event};
use std::collections::VecDeque;
use virtio_queue::Queue;

/// Most messages of the driver for a doorbell, which takes the host's time: as many as can wait.
const BATCH: u16 = MAX_QUEUE_SIZE;
/// Messages that wait for the driver to have room for them. While there are so many none is
/// taken from it.
const MOST_ANSWERS: usize = 64;

/// Both control queues.
#[derive(Debug)]
pub(super) struct Controls {
    receive: Queue,
    transmit: Queue,
    /// Messages for the driver.
    answers: VecDeque<Vec<u8>>,
}

impl Controls {
    /// Nothing was said yet.
    pub fn new(receive: Queue, transmit: Queue) -> Self {
        Self {
            receive,
            transmit,
            answers: VecDeque::new(),
        }
    }

    /// Says that the host's end of a port is closed.
    pub fn close(&mut self, port: u32) {
        self.say(port, event::PORT_OPEN, 0, &[]);
    }

    /// Takes what the driver says, and answers. Result: how often the guest was interrupted.
    pub fn serve(
        &mut self,
        memory: &Memory,
        guest: &dyn Guest,
        (ports, closed): (&[Port], &[bool]),
    ) -> Result<u64, DeviceError> {
        let (mut taken, mut told) = (0, self.deliver(memory)?);
        loop {
            while taken < BATCH
                && self.answers.len() < MOST_ANSWERS
                && let Some(chain) = next_chain(&mut self.transmit, memory, Direction::Read)?
            {
                let mut bytes = [0; Control::LENGTH];
                if chain.length < bytes.len() {
                    return Err(DeviceError::Buffer);
                }
                // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
                unsafe { copy_from(&chain.buffers, &mut bytes) };
                give_back(&mut self.transmit, memory, chain.head, 0)?;
                taken += 1;
                self.answer(Control::from_bytes(bytes), ports, closed);
            }
            told |= self.deliver(memory)?;
            let is_full = taken == BATCH || self.answers.len() >= MOST_ANSWERS;
            if !want_doorbell(&mut self.transmit, memory)? || is_full {
                break;
            }
        }
        let mut interrupts = 0;
        for (queue, is_used) in [(&mut self.transmit, taken > 0), (&mut self.receive, told)] {
            if is_used && interrupt_for(queue, memory, guest)? {
                interrupts += 1;
            }
        }
        Ok(interrupts)
    }

    /// What the device has to say to a message. What it does not know, or about a port that is
    /// not there, means nothing to it.
    fn answer(&mut self, message: Control, ports: &[Port], closed: &[bool]) {
        let Control { port, event, value } = message;
        let number = port as usize;
        match (event, value) {
            (event::DEVICE_READY, 1) => {
                for (_, port) in ports.iter().zip(0..) {
                    self.say(port, event::PORT_ADD, 0, &[]);
                }
            }
            (event::PORT_READY, 1) => {
                let (Some(found), Some(closed)) = (ports.get(number), closed.get(number)) else {
                    return;
                };
                if found.is_terminal {
                    self.say(port, event::CONSOLE_PORT, 1, &[]);
                }
                self.say(port, event::PORT_NAME, 1, found.name.as_bytes());
                self.say(port, event::PORT_OPEN, (!closed).into(), &[]);
            }
            _ => {}
        }
    }

    fn say(&mut self, port: u32, event: u16, value: u16, name: &[u8]) {
        let control = Control { port, event, value };
        self.answers
            .push_back([&control.to_bytes()[..], name].concat());
    }

    /// Gives the driver the messages that it has room for. Result: whether there were any.
    fn deliver(&mut self, memory: &Memory) -> Result<bool, DeviceError> {
        let mut any = false;
        while let Some(answer) = self.answers.front() {
            let Some(chain) = next_chain(&mut self.receive, memory, Direction::Write)? else {
                // Room for them comes with the doorbell.
                match want_doorbell(&mut self.receive, memory)? {
                    true => continue,
                    false => break,
                }
            };
            if chain.length < answer.len() {
                return Err(DeviceError::Buffer);
            }
            // SAFETY: as in `serve`.
            unsafe { copy_to(&chain.buffers, answer) };
            // A few bytes.
            let length = answer.len() as u32;
            give_back(&mut self.receive, memory, chain.head, length)?;
            self.answers.pop_front();
            any = true;
        }
        Ok(any)
    }
}
