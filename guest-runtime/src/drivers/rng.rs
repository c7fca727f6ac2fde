//! The entropy device (virtio 1.3, section 5.4). It fills a buffer before the notification returns.

use super::mmio::{Registers, Start, StartError};
use super::queue::Queue;
use crate::arch::host::Host;
use crate::convert::to_usize;
use hartline_abi::layout::PAGE_SIZE;
use hartline_abi::virtio::{RNG_DEVICE, RNG_REQUESTS, device};

/// Length of a request's buffer, bytes.
const BUFFER: usize = to_usize(PAGE_SIZE);
const ONLY: u16 = 0;

/// Starts the device.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host) -> Result<RngDevice, StartError> {
    let mut device = Start::of(host, RNG_DEVICE, device::RNG);
    device.need(0);
    let requests = Queue::new(1, BUFFER, true);
    device.set_queue(RNG_REQUESTS, &requests);
    requests.want_no_interrupt();
    Ok(RngDevice {
        requests,
        registers: device.finish(&[])?,
    })
}

/// An entropy device.
#[derive(Debug)]
pub struct RngDevice {
    requests: Queue,
    registers: Registers,
}

impl RngDevice {
    /// Fills the start of `to` with random bytes; returns their number.
    pub fn fill(&mut self, to: &mut [u8]) -> usize {
        self.requests.add(ONLY);
        self.requests.publish();
        self.registers.notify(RNG_REQUESTS);
        let written = self.requests.take().map_or(0, |(_, length)| length);
        self.requests.want_no_interrupt();
        let count = written.min(to.len());
        to[..count].copy_from_slice(&self.requests.buffer(ONLY)[..count]);
        // Random bytes that were not asked for are erased.
        self.requests.buffer_mut(ONLY)[..written].fill(0);
        count
    }
}
