//! Block devices (virtio 1.3, section 5.2).

use super::interrupt::Interrupt;
use super::mmio::{Registers, Start, StartError};
use super::queue::{PARTS, Queue};
use crate::arch::host::Host;
use crate::convert::to_usize;
use crate::fs::disks::{Disk, MAX_LENGTH, Request, SECTOR};
use hartline_abi::layout::PAGE_SIZE;
use hartline_abi::virtio::{
    BLOCK_REQUESTS, BlockHeader, BlockRange, FIRST_DISK, block_feature, block_request,
    block_status, device,
};
use hartline_linux::errno::Errno;

/// Most requests in flight.
const SLOTS: u16 = 32;
/// Queue size: the descriptors of all requests, rounded up to a power of two.
const DESCRIPTORS: u16 = (SLOTS * PARTS).next_power_of_two();
/// Offset of a request's header in its buffer, after the data. The status follows.
const HEADER: usize = MAX_LENGTH;
const STATUS: usize = HEADER + BlockHeader::LENGTH;
/// Length of a buffer, bytes.
const BUFFER: usize = (STATUS + 1).next_multiple_of(to_usize(PAGE_SIZE));

/// Starts disk `number`.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host, number: u64) -> Result<BlockDevice, StartError> {
    use block_feature::{DISCARD, FLUSH, READ_ONLY};
    let mut device = Start::of(host, FIRST_DISK + number, device::BLOCK);
    let features = device.negotiate(READ_ONLY | DISCARD, FLUSH)?;
    let [low, high] = device.config([0, 4])?.map(u64::from);
    let requests = Queue::with_buffers(DESCRIPTORS, SLOTS, BUFFER);
    device.set_queue(BLOCK_REQUESTS, &requests);
    requests.want_no_interrupt();
    Ok(BlockDevice {
        requests,
        registers: device.finish(&[])?,
        interrupt: Interrupt::of(host, FIRST_DISK + number),
        sectors: low | high << 32,
        read_only: features & READ_ONLY != 0,
        discards: features & DISCARD != 0,
    })
}

/// A block device.
#[derive(Debug)]
pub struct BlockDevice {
    requests: Queue,
    registers: Registers,
    interrupt: Interrupt,
    sectors: u64,
    read_only: bool,
    discards: bool,
}

impl Disk for BlockDevice {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn discards(&self) -> bool {
        self.discards
    }

    fn slots(&self) -> u16 {
        SLOTS
    }

    fn buffer(&mut self, slot: u16) -> &mut [u8] {
        &mut self.requests.buffer_mut(slot)[..MAX_LENGTH]
    }

    fn submit(&mut self, slot: u16, request: Request) {
        let (kind, sector, data) = match request {
            Request::Read { sector, count } => {
                (block_request::IN, sector, Some((count * SECTOR, true)))
            }
            Request::Write { sector, count } => {
                (block_request::OUT, sector, Some((count * SECTOR, false)))
            }
            Request::Flush => (block_request::FLUSH, 0, None),
            Request::Discard { sector, count } => {
                let range = BlockRange {
                    sector,
                    sectors: u32::try_from(count).unwrap_or(u32::MAX),
                    flags: 0,
                };
                self.buffer(slot)[..BlockRange::LENGTH].copy_from_slice(&range.to_bytes());
                (block_request::DISCARD, 0, Some((BlockRange::LENGTH, false)))
            }
        };
        let buffer = self.requests.buffer_mut(slot);
        buffer[HEADER..STATUS].copy_from_slice(&BlockHeader { kind, sector }.to_bytes());
        buffer[STATUS] = block_status::IO_ERROR;
        let header = (HEADER, BlockHeader::LENGTH, false);
        let status = (STATUS, 1, true);
        match data {
            Some((length, writable)) => {
                (self.requests).add_parts(slot, &[header, (0, length, writable), status]);
            }
            None => self.requests.add_parts(slot, &[header, status]),
        }
    }

    fn publish(&mut self) {
        if self.requests.publish() {
            self.registers.notify(BLOCK_REQUESTS);
        }
    }

    #[inline]
    fn has_done(&self) -> bool {
        self.requests.has_used()
    }

    fn begin(&mut self) {
        self.interrupt.acknowledge();
    }

    fn take(&mut self) -> Option<(u16, Result<(), Errno>)> {
        let (descriptor, _) = self.requests.take()?;
        let slot = descriptor / PARTS;
        let result = match self.requests.buffer(slot)[STATUS] {
            block_status::OK => Ok(()),
            block_status::UNSUPPORTED => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::EIO),
        };
        Some((slot, result))
    }

    fn want_interrupt(&mut self) -> bool {
        self.requests.want_interrupt()
    }
}
