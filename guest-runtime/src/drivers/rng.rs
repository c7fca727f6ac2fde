//! The entropy device (virtio 1.3, section 5.4). It has filled a buffer when its doorbell has
//! been rung.

use super::mmio::{Registers, StartError};
use super::queue::Queue;
use crate::random::Source;
use hartline_abi::layout::PAGE_SIZE;
use hartline_abi::virtio::{RNG_DEVICE, RNG_REQUESTS, device, register};

/// Bytes of a request.
const BUFFER: usize = PAGE_SIZE as usize;
const ONLY: u16 = 0;

/// Starts the device.
///
/// # Errors
/// [`StartError`].
pub fn start() -> Result<RngDevice, StartError> {
    let registers = Registers::find(RNG_DEVICE, device::RNG)?;
    registers.negotiate(0, 0)?;
    let requests = Queue::new(1, BUFFER, true);
    registers.set_queue(RNG_REQUESTS, &requests)?;
    requests.want_no_interrupt();
    registers.start()?;
    Ok(RngDevice {
        requests,
        registers,
    })
}

/// An entropy device.
#[derive(Debug)]
pub struct RngDevice {
    requests: Queue,
    registers: Registers,
}

impl Source for RngDevice {
    fn fill(&mut self, to: &mut [u8]) -> usize {
        self.requests.give(ONLY);
        self.requests.publish();
        self.registers
            .write(register::QUEUE_NOTIFY, RNG_REQUESTS.into());
        let written = self.requests.take().map_or(0, |(_, length)| length);
        self.requests.want_no_interrupt();
        let count = written.min(to.len());
        to[..count].copy_from_slice(&self.requests.buffer(ONLY)[..count]);
        // What was not wanted now is not kept.
        self.requests.buffer_mut(ONLY)[..written].fill(0);
        count
    }
}
