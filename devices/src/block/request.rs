//! A request: a header, data, and a status. The driver chooses where it is cut into buffers.

use super::backend::{Image, TryRead};
use super::stats::Counters;
use crate::timeline::{self, Event, Start};
use crate::virtio::constant::byte;
use crate::virtio::stats::count;
use crate::virtio::{Buffers, DeviceError};
use hartline_abi::virtio::{BlockHeader, BlockRange, SECTOR};
use std::io;
use std::sync::atomic::AtomicU64;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP,
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};

/// Most sectors of a range to discard or to fill with zeros: 256 MiB.
pub(super) const MAX_RANGE: u32 = 1 << 19;
/// Most ranges of a discard or write-zeroes request.
pub(super) const MAX_RANGES: u32 = 16;
/// The values of the status.
pub(super) const OK: u8 = byte(VIRTIO_BLK_S_OK);
pub(super) const IO_ERROR: u8 = byte(VIRTIO_BLK_S_IOERR);
pub(super) const UNSUPPORTED: u8 = byte(VIRTIO_BLK_S_UNSUPP);
/// Length of the device ID string, bytes.
const ID_BYTES: usize = VIRTIO_BLK_ID_BYTES as usize;
/// The device ID string.
const ID: [u8; ID_BYTES] = *b"hartline\0\0\0\0\0\0\0\0\0\0\0\0";

/// Unit of the host's page cache, bytes. If a request writes part of a page, the host has to read
/// the rest first.
const PAGE: u64 = 4096;

/// Result of serving a request without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// The request is complete: the number of bytes that were written to its buffers.
    Done(u32),
    /// Storage works on the request. A retry completes it without waiting.
    InProgress,
    /// The request must wait for storage.
    WouldBlock,
}

/// A request of the guest.
#[derive(Debug)]
pub(super) struct Request {
    header: BlockHeader,
    /// The driver's data, without the header.
    data: Buffers,
    /// The buffers of the response, without the status.
    into: Buffers,
    /// The buffer of the status: one byte.
    status: Buffers,
    /// Start and length of the data, if there is a time line.
    began: Option<(Start, usize)>,
}

impl Request {
    /// Parses the buffers of a chain, of which the first `readable` ones are device-readable.
    ///
    /// # Errors
    /// There is no room for header or status.
    pub fn new(mut buffers: Buffers, readable: usize) -> Result<Self, DeviceError> {
        let writable = buffers.split_off(readable);
        let parts = buffers.split(BlockHeader::LENGTH);
        let (header, data) = parts.ok_or(DeviceError::Buffer)?;
        let room = writable.length().checked_sub(1);
        let parts = room.and_then(|room| writable.split(room));
        let (into, status) = parts.ok_or(DeviceError::Buffer)?;
        let mut bytes = [0; BlockHeader::LENGTH];
        header.copy_from(&mut bytes);
        let began = timeline::start();
        Ok(Self {
            header: BlockHeader::from_bytes(bytes),
            began: began.map(|start| (start, data.length() + into.length())),
            data,
            into,
            status,
        })
    }

    /// Serves the request if it need not wait for storage.
    pub fn try_serve(&mut self, image: &Image, counters: &Counters) -> Served {
        match self.header.kind {
            VIRTIO_BLK_T_IN => {
                let room = self.into.length();
                let Ok(at) = image.position(self.header.sector, room as u64) else {
                    return Served::WouldBlock;
                };
                match image.try_read(at, &self.into) {
                    TryRead::Done => {
                        counted(&counters.reads, &counters.read_bytes, room);
                        Served::Done(self.complete(Ok(room), counters))
                    }
                    TryRead::WouldBlock => Served::InProgress,
                    TryRead::Failed => Served::WouldBlock,
                }
            }
            // Whole pages go to the page cache without waiting.
            VIRTIO_BLK_T_OUT => {
                let (sectors, length) = (PAGE / SECTOR, self.data.length() as u64);
                let is_whole =
                    self.header.sector.is_multiple_of(sectors) && length.is_multiple_of(PAGE);
                match is_whole {
                    true => Served::Done(self.serve(image, counters)),
                    false => Served::WouldBlock,
                }
            }
            VIRTIO_BLK_T_FLUSH | VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
                Served::WouldBlock
            }
            _ => Served::Done(self.serve(image, counters)),
        }
    }

    /// Whether the request is a read or write of data.
    pub fn is_transfer(&self) -> bool {
        matches!(self.header.kind, VIRTIO_BLK_T_IN | VIRTIO_BLK_T_OUT)
    }

    /// Serves the request and waits for storage if need be. Returns the number of bytes that were
    /// written to its buffers.
    pub fn serve(&mut self, image: &Image, counters: &Counters) -> u32 {
        let result = self.dispatch(image, counters);
        self.complete(result, counters)
    }

    /// Writes the status. Returns the number of bytes that were written to all buffers.
    fn complete(&self, result: io::Result<usize>, counters: &Counters) -> u32 {
        let (value, written) = match result {
            Ok(written) => (OK, written),
            Err(error) => {
                count(&counters.errors, 1);
                let value = match error.kind() {
                    io::ErrorKind::Unsupported => UNSUPPORTED,
                    _ => IO_ERROR,
                };
                // The contents of the buffers are undefined after an error.
                (value, 0)
            }
        };
        self.status.copy_to(&[value]);
        if let Some((start, length)) = self.began {
            start.end(Event::Block {
                kind: self.header.kind,
                sector: self.header.sector,
                length,
                is_error: value != OK,
            });
        }
        u32::try_from(written).map_or(u32::MAX, |written| written.saturating_add(1))
    }

    /// Executes the request. Returns the number of bytes that were written to its buffers without
    /// the status.
    fn dispatch(&mut self, image: &Image, counters: &Counters) -> io::Result<usize> {
        match self.header.kind {
            VIRTIO_BLK_T_IN => {
                let room = self.into.length();
                let at = image.position(self.header.sector, room as u64)?;
                image.transfer(at, &mut self.into, false)?;
                counted(&counters.reads, &counters.read_bytes, room);
                Ok(room)
            }
            VIRTIO_BLK_T_OUT => {
                let length = self.data.length();
                let at = image.position(self.header.sector, length as u64)?;
                image.transfer(at, &mut self.data, true)?;
                counted(&counters.writes, &counters.written_bytes, length);
                Ok(0)
            }
            VIRTIO_BLK_T_FLUSH => {
                count(&counters.flushes, 1);
                image.flush().map(|()| 0)
            }
            VIRTIO_BLK_T_GET_ID => {
                let room = self.into.length().min(ID_BYTES);
                self.into.copy_to(&ID[..room]);
                Ok(room)
            }
            kind @ (VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES) => {
                count(&counters.discards, 1);
                for range in self.ranges()? {
                    change(image, range, kind == VIRTIO_BLK_T_WRITE_ZEROES)?;
                }
                Ok(0)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The ranges of a discard or write-zeroes request.
    fn ranges(&self) -> io::Result<Vec<BlockRange>> {
        let length = self.data.length();
        let most = MAX_RANGES as usize * BlockRange::LENGTH;
        if !length.is_multiple_of(BlockRange::LENGTH) || !(1..=most).contains(&length) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut bytes = vec![0; length];
        self.data.copy_from(&mut bytes);
        let (chunks, _) = bytes.as_chunks();
        Ok(chunks.iter().copied().map(BlockRange::from_bytes).collect())
    }
}

/// Counts a request and its bytes.
fn counted(requests: &AtomicU64, bytes: &AtomicU64, length: usize) {
    count(requests, 1);
    count(bytes, length as u64);
}

/// Discards a range, or fills it with zeros.
fn change(image: &Image, range: BlockRange, zero: bool) -> io::Result<()> {
    let length = u64::from(range.sectors) * SECTOR;
    let at = image.position(range.sector, length)?;
    let unknown = if zero {
        !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP
    } else {
        !0
    };
    if range.flags & unknown != 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if image.is_read_only() || range.sectors > MAX_RANGE {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match (range.sectors, zero) {
        (0, _) => Ok(()),
        (_, true) => {
            let unmap = range.flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
            image.zero(at, length, unmap)
        }
        (_, false) => image.discard(at, length),
    }
}
