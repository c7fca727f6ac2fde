//! One request: a header, data, and a status, in buffers that the guest cut as it liked.

use super::image::ReadNow;
use super::{Counters, Image};
use crate::virtio::buffers::{copy_from, copy_to, length, split};
use crate::virtio::stats::count;
use crate::virtio::{Chain, DeviceError};
use hartline_abi::virtio::{BlockHeader, BlockRange, SECTOR, block_request, block_status};
use std::io;
use std::sync::atomic::AtomicU64;

/// Most sectors of a range to discard or to make zero: a quarter of a GiB.
pub(super) const MAX_RANGE: u32 = 1 << 19;
/// Most ranges of a request.
pub(super) const MAX_RANGES: u32 = 16;
/// Length of a device's name, bytes.
const ID: usize = 20;
/// The name.
const NAME: [u8; ID] = *b"hartline\0\0\0\0\0\0\0\0\0\0\0\0";
/// Flag of a range: zeros may be a hole.
const UNMAP: u32 = 1;

/// Units of the host's page cache, bytes. Of a page that is written in part, the rest has to
/// be read first.
const PAGE: u64 = 4096;

/// How far a request got without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// It is done: bytes written to its buffers.
    Done(u32),
    /// It was begun, and is done without waiting when storage is.
    Soon,
    /// Somebody has to wait for it.
    NotNow,
}

/// A request as it came from the guest.
#[derive(Debug)]
pub(super) struct Request {
    header: BlockHeader,
    /// What the guest gives, without the header.
    data: Vec<libc::iovec>,
    /// Where the answer goes.
    into: Vec<libc::iovec>,
    /// Where the status goes: one byte.
    status: Vec<libc::iovec>,
}

impl Request {
    /// The request that a chain is.
    ///
    /// # Errors
    /// There is no room for header or status.
    ///
    /// # Safety
    /// The buffers of the chain are memory that may be read and written, now and as long as
    /// the result lives.
    pub unsafe fn of(chain: &Chain) -> Result<Self, DeviceError> {
        let (readable, writable) = chain.buffers.split_at(chain.readable);
        let (header, data) = split(readable, BlockHeader::LENGTH).ok_or(DeviceError::Buffer)?;
        let room = length(writable).checked_sub(1).ok_or(DeviceError::Buffer)?;
        let (into, status) = split(writable, room).ok_or(DeviceError::Buffer)?;
        let mut bytes = [0; BlockHeader::LENGTH];
        // SAFETY: the caller's contract.
        unsafe { copy_from(&header, &mut bytes) };
        Ok(Self {
            header: BlockHeader::from_bytes(bytes),
            data,
            into,
            status,
        })
    }

    /// Serves it if storage need not be waited for.
    pub fn serve_now(&mut self, image: &Image, counters: &Counters) -> Served {
        match self.header.kind {
            block_request::IN => {
                let room = length(&self.into);
                let Ok(at) = image.position(self.header.sector, room as u64) else {
                    return Served::NotNow;
                };
                // SAFETY: buffers of the guest, as `of` was promised.
                match unsafe { image.read_now(at, &self.into) } {
                    ReadNow::Done => {
                        counted(&counters.reads, &counters.read_bytes, room);
                        Served::Done(self.answer(Ok(room), counters))
                    }
                    ReadNow::Waits => Served::Soon,
                    ReadNow::Fails => Served::NotNow,
                }
            }
            // They go to the page cache.
            block_request::OUT => {
                let (sectors, length) = (PAGE / SECTOR, length(&self.data) as u64);
                let is_whole =
                    self.header.sector.is_multiple_of(sectors) && length.is_multiple_of(PAGE);
                match is_whole {
                    true => Served::Done(self.serve(image, counters)),
                    false => Served::NotNow,
                }
            }
            block_request::FLUSH | block_request::DISCARD | block_request::WRITE_ZEROES => {
                Served::NotNow
            }
            _ => Served::Done(self.serve(image, counters)),
        }
    }

    /// Whether it moves data, which takes no longer than storage needs for that.
    pub fn is_transfer(&self) -> bool {
        matches!(self.header.kind, block_request::IN | block_request::OUT)
    }

    /// Serves it. Result: bytes written to its buffers.
    pub fn serve(&mut self, image: &Image, counters: &Counters) -> u32 {
        let result = self.dispatch(image, counters);
        self.answer(result, counters)
    }

    /// Writes the status. Result: bytes written to all buffers.
    fn answer(&self, result: io::Result<usize>, counters: &Counters) -> u32 {
        let (value, written) = match result {
            Ok(written) => (block_status::OK, written),
            Err(error) => {
                count(&counters.errors, 1);
                let value = match error.kind() {
                    io::ErrorKind::Unsupported => block_status::UNSUPPORTED,
                    _ => block_status::IO_ERROR,
                };
                // What is in the buffers counts for nothing.
                (value, 0)
            }
        };
        // SAFETY: buffers of the guest, as `of` was promised.
        unsafe { copy_to(&self.status, &[value]) };
        u32::try_from(written).map_or(u32::MAX, |written| written.saturating_add(1))
    }

    /// Does what it asks for. Result: bytes written to its buffers but for the status.
    fn dispatch(&mut self, image: &Image, counters: &Counters) -> io::Result<usize> {
        match self.header.kind {
            block_request::IN => {
                let room = length(&self.into);
                let at = image.position(self.header.sector, room as u64)?;
                // SAFETY: buffers of the guest, as `of` was promised.
                unsafe { image.transfer(at, &mut self.into, false) }?;
                counted(&counters.reads, &counters.read_bytes, room);
                Ok(room)
            }
            block_request::OUT => {
                let length = length(&self.data);
                let at = image.position(self.header.sector, length as u64)?;
                // SAFETY: as above.
                unsafe { image.transfer(at, &mut self.data, true) }?;
                counted(&counters.writes, &counters.written_bytes, length);
                Ok(0)
            }
            block_request::FLUSH => {
                count(&counters.flushes, 1);
                image.flush().map(|()| 0)
            }
            block_request::GET_ID => {
                let room = length(&self.into).min(ID);
                // SAFETY: as above.
                unsafe { copy_to(&self.into, &NAME[..room]) };
                Ok(room)
            }
            kind @ (block_request::DISCARD | block_request::WRITE_ZEROES) => {
                count(&counters.discards, 1);
                for range in ranges(&self.data)? {
                    change(image, range, kind == block_request::WRITE_ZEROES)?;
                }
                Ok(0)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

// SAFETY: the buffers are the guest's RAM, which belongs to no thread.
unsafe impl Send for Request {}

/// Counts a request and its bytes.
fn counted(requests: &AtomicU64, bytes: &AtomicU64, length: usize) {
    count(requests, 1);
    count(bytes, length as u64);
}

/// The ranges of a request.
fn ranges(data: &[libc::iovec]) -> io::Result<Vec<BlockRange>> {
    let length = length(data);
    let most = MAX_RANGES as usize * BlockRange::LENGTH;
    if !length.is_multiple_of(BlockRange::LENGTH) || !(1..=most).contains(&length) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = vec![0; length];
    // SAFETY: buffers in the guest's RAM, which is mapped as long as the device's thread runs.
    unsafe { copy_from(data, &mut bytes) };
    let (chunks, _) = bytes.as_chunks();
    Ok(chunks.iter().copied().map(BlockRange::from_bytes).collect())
}

/// Discards a range, or makes it zero.
fn change(image: &Image, range: BlockRange, zero: bool) -> io::Result<()> {
    let length = u64::from(range.sectors) * SECTOR;
    let at = image.position(range.sector, length)?;
    let unknown = if zero { !UNMAP } else { !0 };
    if range.flags & unknown != 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if image.is_read_only() || range.sectors > MAX_RANGE {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match (range.sectors, zero) {
        (0, _) => Ok(()),
        (_, true) => image.zero(at, length, range.flags & UNMAP != 0),
        (_, false) => image.discard(at, length),
    }
}
