//! Block devices (virtio 1.3, section 5.2). One request at a time, and who makes it waits.

use super::mmio::{Registers, StartError};
use super::queue::Queue;
use crate::clock;
use crate::errno::Errno;
use crate::host::Host;
use crate::vfs::disks::{Disk, SECTOR};
use hartline_abi::call::Operation;
use hartline_abi::virtio::{
    BLOCK_REQUESTS, BlockHeader, BlockRange, FIRST_DISK, block_feature, block_request,
    block_status, device, register,
};

/// Buffers of a request: its header, its data, its status.
const HEADER: u16 = 0;
const DATA: u16 = 1;
const STATUS: u16 = 2;
/// Entries of the queue, a power of two.
const ENTRIES: u16 = 4;
/// Length of each buffer, bytes: the longest request.
const BUFFER: usize = 64 << 10;
/// How long the ring is watched before the VM is left, and for how long then, ns. A device that
/// takes longer than that has slow storage behind it.
const WATCH: u64 = 300_000;
const PAUSE: u64 = 100_000;
/// Most sectors of a range to discard.
const MAX_RANGE: u64 = 1 << 19;

/// Starts disk `number`.
///
/// # Errors
/// [`StartError`].
pub fn start(host: Host, number: u64) -> Result<BlockDevice, StartError> {
    use block_feature::{DISCARD, FLUSH, READ_ONLY};
    let registers = Registers::find(FIRST_DISK + number, device::BLOCK)?;
    let features = registers.negotiate(READ_ONLY | DISCARD, FLUSH)?;
    let [low, high] = [0, 4].map(|at| u64::from(registers.read(register::CONFIG + at)));
    let requests = Queue::new(ENTRIES, BUFFER, false);
    registers.set_queue(BLOCK_REQUESTS, &requests)?;
    requests.want_no_interrupt();
    registers.start()?;
    Ok(BlockDevice {
        host,
        requests,
        registers,
        sectors: low | high << 32,
        read_only: features & READ_ONLY != 0,
        discards: features & DISCARD != 0,
    })
}

/// A block device.
#[derive(Debug)]
pub struct BlockDevice {
    host: Host,
    requests: Queue,
    registers: Registers,
    sectors: u64,
    read_only: bool,
    discards: bool,
}

impl BlockDevice {
    /// Makes a request with so many bytes of data, which the device writes (`writable`) or
    /// reads, and waits until it is done.
    fn request(&mut self, header: BlockHeader, length: usize, writable: bool) -> Result<(), Errno> {
        let bytes = header.to_bytes();
        self.requests.buffer_mut(HEADER)[..bytes.len()].copy_from_slice(&bytes);
        self.requests.buffer_mut(STATUS)[0] = block_status::IO_ERROR;
        let parts = [
            (HEADER, bytes.len(), false),
            (DATA, length, writable),
            (STATUS, 1, true),
        ];
        match length {
            0 => self.requests.give_chain(&[parts[0], parts[2]]),
            _ => self.requests.give_chain(&parts),
        }
        if self.requests.publish() {
            self.registers
                .write(register::QUEUE_NOTIFY, BLOCK_REQUESTS.into());
        }
        self.wait();
        self.requests.want_no_interrupt();
        match self.requests.buffer(STATUS)[0] {
            block_status::OK => Ok(()),
            block_status::UNSUPPORTED => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::EIO),
        }
    }

    /// Waits until the device has given the request back.
    fn wait(&mut self) {
        let mut start = clock::since_boot();
        while self.requests.take().is_none() {
            if clock::since_boot().saturating_sub(start) > WATCH {
                // A signal is seen when the call is done, as for disks of Linux.
                let mut args = [0, PAUSE, 0, 0, 0, 0];
                let _ = self.host.call(Operation::Wait, &mut args);
                start = clock::since_boot();
            }
            core::hint::spin_loop();
        }
    }
}

impl Disk for BlockDevice {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&mut self, sector: u64, to: &mut [u8]) -> Result<(), Errno> {
        for (at, part) in (sector..)
            .step_by(BUFFER / SECTOR)
            .zip(to.chunks_mut(BUFFER))
        {
            let header = BlockHeader {
                kind: block_request::IN,
                sector: at,
            };
            self.request(header, part.len(), true)?;
            part.copy_from_slice(&self.requests.buffer(DATA)[..part.len()]);
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), Errno> {
        for (at, part) in (sector..).step_by(BUFFER / SECTOR).zip(from.chunks(BUFFER)) {
            let header = BlockHeader {
                kind: block_request::OUT,
                sector: at,
            };
            self.requests.buffer_mut(DATA)[..part.len()].copy_from_slice(part);
            self.request(header, part.len(), false)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let header = BlockHeader {
            kind: block_request::FLUSH,
            sector: 0,
        };
        self.request(header, 0, false)
    }

    fn discard(&mut self, sector: u64, sectors: u64) -> Result<(), Errno> {
        if !self.discards {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = sector + sectors;
        for at in (sector..end).step_by(MAX_RANGE as usize) {
            let range = BlockRange {
                sector: at,
                sectors: (end - at).min(MAX_RANGE) as u32,
                flags: 0,
            };
            let header = BlockHeader {
                kind: block_request::DISCARD,
                sector: 0,
            };
            let bytes = range.to_bytes();
            self.requests.buffer_mut(DATA)[..bytes.len()].copy_from_slice(&bytes);
            self.request(header, bytes.len(), false)?;
        }
        Ok(())
    }
}
