//! One request: a header, data, and a status, in buffers that the guest cut as it liked.

use super::{Counters, Image};
use crate::virtio::buffers::{copy_from, copy_to, length, split};
use crate::virtio::stats::count;
use crate::virtio::{Chain, DeviceError};
use hartline_abi::virtio::{BlockHeader, BlockRange, block_request, block_status};
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

/// Serves a request. Result: bytes written to its buffers.
///
/// # Errors
/// There is no room for header or status. What else is wrong, the status says.
pub(super) fn serve(
    image: &mut Image,
    chain: &Chain,
    counters: &Counters,
) -> Result<u32, DeviceError> {
    let (readable, writable) = chain.buffers.split_at(chain.readable);
    let (header, data) = split(readable, BlockHeader::LENGTH).ok_or(DeviceError::Buffer)?;
    let room = length(writable).checked_sub(1).ok_or(DeviceError::Buffer)?;
    let (into, status) = split(writable, room).ok_or(DeviceError::Buffer)?;
    let mut bytes = [0; BlockHeader::LENGTH];
    // SAFETY: buffers in the guest's RAM, which is mapped as long as the device's thread runs.
    unsafe { copy_from(&header, &mut bytes) };
    let header = BlockHeader::from_bytes(bytes);
    let result = dispatch(image, header, data, into, counters);
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
    // SAFETY: as above.
    unsafe { copy_to(&status, &[value]) };
    Ok(u32::try_from(written).map_or(u32::MAX, |written| written.saturating_add(1)))
}

/// Does what a request asks for, with the data from the guest, or into its buffers. Result:
/// bytes written there.
fn dispatch(
    image: &mut Image,
    header: BlockHeader,
    mut data: Vec<libc::iovec>,
    mut into: Vec<libc::iovec>,
    counters: &Counters,
) -> io::Result<usize> {
    let counted = |requests: &AtomicU64, bytes: &AtomicU64, length: usize| {
        count(requests, 1);
        count(bytes, length as u64);
    };
    match header.kind {
        block_request::IN => {
            let room = length(&into);
            let at = image.position(header.sector, room as u64)?;
            // SAFETY: buffers in the guest's RAM, which is mapped as long as the device's
            // thread runs.
            unsafe { image.transfer(at, &mut into, false) }?;
            counted(&counters.reads, &counters.read_bytes, room);
            Ok(room)
        }
        block_request::OUT => {
            let length = length(&data);
            let at = image.position(header.sector, length as u64)?;
            // SAFETY: as above.
            unsafe { image.transfer(at, &mut data, true) }?;
            counted(&counters.writes, &counters.written_bytes, length);
            Ok(0)
        }
        block_request::FLUSH => {
            count(&counters.flushes, 1);
            image.flush().map(|()| 0)
        }
        block_request::GET_ID => {
            let room = length(&into).min(ID);
            // SAFETY: as above.
            unsafe { copy_to(&into, &NAME[..room]) };
            Ok(room)
        }
        kind @ (block_request::DISCARD | block_request::WRITE_ZEROES) => {
            count(&counters.discards, 1);
            for range in ranges(&data)? {
                change(image, range, kind == block_request::WRITE_ZEROES)?;
            }
            Ok(0)
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
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
fn change(image: &mut Image, range: BlockRange, zero: bool) -> io::Result<()> {
    let length = u64::from(range.sectors) * hartline_abi::virtio::SECTOR;
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
