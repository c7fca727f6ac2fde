//! Block devices as files: byte ranges over sectors.
//!
//! Nothing here blocks. A call submits its requests to the device and returns [`Errno::EAGAIN`].
//! Its task waits until some of the requests complete, and repeats the call, which then finds their
//! results. So any number of tasks can wait for one disk, and a long transfer has several requests
//! in flight.

mod requests;
#[cfg(test)]
mod tests;

pub use requests::Request;

use super::volume::{Transport, Waiting};
use crate::convert::to_usize;
use crate::mm::{UserSlice, UserSliceMut};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::fmt::Debug;
use hartline_linux::errno::Errno;
use requests::{Requests, State};

/// Unit of positions and lengths, bytes.
pub const SECTOR: usize = to_usize(hartline_abi::virtio::SECTOR);
/// Most bytes that one request moves.
pub const MAX_LENGTH: usize = 64 << 10;
/// Most bytes of one call that are in flight: half of the device's slots.
pub const WINDOW: usize = 16 * MAX_LENGTH;
/// Major number of the device nodes.
pub const MAJOR: u64 = 254;
/// Minor numbers reserved for each disk. Partitions are not supported.
pub const MINORS: u64 = 16;
/// Most sectors that one request discards.
const MAX_DISCARD: u64 = 1 << 19;

/// A disk: a device with several requests in flight. Each request has a slot with a buffer.
pub trait Disk: Debug {
    /// Length, sectors.
    fn sectors(&self) -> u64;

    /// Whether the disk is read-only.
    fn is_read_only(&self) -> bool;

    /// Whether the disk supports discard.
    fn discards(&self) -> bool;

    /// Number of slots.
    fn slots(&self) -> u16;

    /// Returns the buffer of a slot, [`MAX_LENGTH`] bytes. No request of the device may use it.
    fn buffer(&mut self, slot: u16) -> &mut [u8];

    /// Submits a request in a slot; its buffer holds or receives the data.
    fn submit(&mut self, slot: u16, request: Request);

    /// Makes submitted requests visible to the device.
    fn publish(&mut self);

    /// Whether there are completed requests that were not taken.
    fn has_done(&self) -> bool;

    /// Begins a batch of completions: the device need not interrupt for later ones.
    fn begin(&mut self);

    /// Takes a completion: its slot and its result (`EIO`, `EOPNOTSUPP`).
    fn take(&mut self) -> Option<(u16, Result<(), Errno>)>;

    /// Asks for an interrupt at the next completion. Returns whether there is one already.
    fn want_interrupt(&mut self) -> bool;
}

/// The disks, by the number that an open file of a disk has, and the requests to volumes that tasks
/// wait for.
#[derive(Debug, Default)]
pub struct Disks {
    units: Vec<Requests>,
    volumes: Option<Waiting>,
}

/// A byte range, split into one request each; `at` is the first byte.
#[derive(Debug, Clone, Copy)]
struct Parts {
    at: u64,
    end: u64,
    /// Whether partially covered sectors have a request of their own.
    whole: bool,
}

/// A part of a byte range: one request.
#[derive(Debug, Clone, Copy)]
struct Part {
    sector: u64,
    /// Number of sectors.
    count: usize,
    /// The bytes within these sectors.
    from: usize,
    length: usize,
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let left = self.end.saturating_sub(self.at);
        if left == 0 {
            return None;
        }
        let sector = self.at / SECTOR as u64;
        let from = to_usize(self.at % SECTOR as u64);
        let most = match self.whole {
            false => MAX_LENGTH - from,
            true if from > 0 || left < SECTOR as u64 => SECTOR - from,
            true => MAX_LENGTH,
        };
        let mut length = to_usize(left.min(most as u64));
        if self.whole && length > SECTOR {
            length -= length % SECTOR;
        }
        self.at += length as u64;
        Some(Part {
            sector,
            count: (from + length).div_ceil(SECTOR),
            from,
            length,
        })
    }
}

impl Disks {
    fn unit(&mut self, number: u32) -> Result<&mut Requests, Errno> {
        self.units.get_mut(number as usize).ok_or(Errno::ENXIO)
    }

    /// Returns a disk.
    ///
    /// # Errors
    /// `ENXIO` if there is no disk with this number.
    pub fn get(&mut self, number: u32) -> Result<&dyn Disk, Errno> {
        Ok(self.unit(number)?.disk())
    }

    /// Length of a disk, bytes.
    ///
    /// # Errors
    /// `ENXIO`.
    pub fn size(&mut self, number: u32) -> Result<u64, Errno> {
        Ok(self.get(number)?.sectors() * SECTOR as u64)
    }

    /// Reads for `task`, up to the end of the disk: as many bytes as are complete.
    ///
    /// # Errors
    /// `EAGAIN` if no request is complete; `EIO`, `ENXIO`.
    pub fn read<'a>(
        &mut self,
        number: u32,
        task: u32,
        at: u64,
        to: impl Into<UserSliceMut<'a>>,
    ) -> Result<usize, Errno> {
        let mut to = to.into();
        let parts = self.parts(number, at, to.len(), false)?;
        let unit = self.unit(number)?;
        for part in parts {
            let (sector, count) = (part.sector, part.count);
            let request = Request::Read { sector, count };
            if !unit.begin(task, request, |_| (State::Runs, request)) {
                break;
            }
        }
        unit.publish();
        let mut done = 0;
        for part in parts {
            let (sector, count) = (part.sector, part.count);
            let mut to = to.part(done, part.length);
            let copy = |buffer: &[u8]| to.copy_from(&buffer[part.from..][..part.length]);
            match unit.finish(task, Request::Read { sector, count }, copy) {
                Ok(()) => done += part.length,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes for `task`, up to the end of the disk. Returns how many bytes are complete.
    ///
    /// # Errors
    /// `EAGAIN` if no request is complete; `ENOSPC` at the end of the disk, `EIO`, `ENXIO`.
    pub fn write<'a>(
        &mut self,
        number: u32,
        task: u32,
        at: u64,
        from: impl Into<UserSlice<'a>>,
    ) -> Result<usize, Errno> {
        let from = from.into();
        let parts = self.parts(number, at, from.len(), true)?;
        if parts.at == parts.end && !from.is_empty() {
            return Err(Errno::ENOSPC);
        }
        let unit = self.unit(number)?;
        let mut rest = from;
        for part in parts {
            let (data, later) = rest.split_at(part.length);
            rest = later;
            let (sector, count) = (part.sector, part.count);
            let request = Request::Write { sector, count };
            let fill = |buffer: &mut [u8]| match data.len() % SECTOR {
                0 => {
                    data.copy_to(&mut buffer[..data.len()]);
                    (State::Runs, request)
                }
                // The rest of the sector must be read first.
                _ => {
                    data.copy_to(&mut buffer[SECTOR + part.from..][..data.len()]);
                    let state = State::Fills(part.from, data.len());
                    (state, Request::Read { sector, count })
                }
            };
            if !unit.begin(task, request, fill) {
                break;
            }
        }
        unit.publish();
        let mut done = 0;
        for part in parts {
            let (sector, count) = (part.sector, part.count);
            match unit.finish(task, Request::Write { sector, count }, |_| {}) {
                Ok(()) => done += part.length,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Splits the part of a byte range that is within the disk and within [`WINDOW`].
    fn parts(&mut self, number: u32, at: u64, length: usize, whole: bool) -> Result<Parts, Errno> {
        let left = self.size(number)?.saturating_sub(at);
        // A cut range ends at a sector boundary.
        let most = WINDOW as u64 - at % SECTOR as u64;
        let end = at + left.min(length as u64).min(most);
        Ok(Parts { at, end, whole })
    }

    /// Flushes earlier writes, for `task`.
    ///
    /// # Errors
    /// `EAGAIN` if the flush is not complete; `EIO`, `ENXIO`.
    pub fn flush(&mut self, number: u32, task: u32) -> Result<(), Errno> {
        let unit = self.unit(number)?;
        unit.begin(task, Request::Flush, |_| (State::Runs, Request::Flush));
        unit.publish();
        unit.finish(task, Request::Flush, |_| {})
    }

    /// Flushes earlier writes to all disks, for `task`. If one disk fails, the call still waits
    /// for the others.
    ///
    /// # Errors
    /// `EAGAIN` if a flush is not complete.
    pub fn flush_all(&mut self, task: u32) -> Result<(), Errno> {
        let mut waits = false;
        for unit in self
            .units
            .iter_mut()
            .filter(|unit| !unit.disk().is_read_only())
        {
            unit.begin(task, Request::Flush, |_| (State::Runs, Request::Flush));
            unit.publish();
            waits |= !unit.is_done(task, Request::Flush);
        }
        match waits {
            true => Err(Errno::EAGAIN),
            // The end of the call drops the requests.
            false => Ok(()),
        }
    }

    /// Discards the contents of sectors for `task`. Returns the number of discarded sectors.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; `EOPNOTSUPP`, `EIO`, `ENXIO`.
    pub fn discard(
        &mut self,
        number: u32,
        task: u32,
        sector: u64,
        sectors: u64,
    ) -> Result<u64, Errno> {
        let unit = self.unit(number)?;
        if !unit.disk().discards() {
            return Err(Errno::EOPNOTSUPP);
        }
        let count = to_usize(sectors.min(MAX_DISCARD));
        if count == 0 {
            return Ok(0);
        }
        let request = Request::Discard { sector, count };
        unit.begin(task, request, |_| (State::Runs, request));
        unit.publish();
        unit.finish(task, request, |_| {})?;
        Ok(count as u64)
    }

    /// Number of disks; the next one gets this number.
    pub fn count(&self) -> u32 {
        u32::try_from(self.units.len()).unwrap_or(u32::MAX)
    }

    /// Adds a disk.
    pub fn add(&mut self, disk: Box<dyn Disk>) {
        self.units.push(Requests::new(disk));
    }

    /// Adds the transport for volumes.
    pub fn add_volumes(&mut self, transport: Rc<dyn Transport>) {
        self.volumes = Some(Waiting::new(transport));
    }

    /// The requests to volumes.
    ///
    /// # Errors
    /// `EIO` if there are no volumes.
    pub fn volumes(&mut self) -> Result<&mut Waiting, Errno> {
        self.volumes.as_mut().ok_or(Errno::EIO)
    }

    /// Whether a device has a request in flight.
    #[inline]
    #[must_use]
    pub fn are_busy(&self) -> bool {
        self.units.iter().any(Requests::is_busy)
            || self.volumes.as_ref().is_some_and(Waiting::is_busy)
    }

    /// Whether there are completions that were not processed.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.units.iter().any(Requests::is_pending)
            || self.volumes.as_ref().is_some_and(Waiting::is_pending)
    }

    /// Processes completions.
    #[inline]
    pub fn poll(&mut self) {
        for unit in &mut self.units {
            unit.poll();
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.poll();
        }
    }

    /// Asks for an interrupt at the next completion. If there is one already, it returns true, and
    /// the caller must ask again after processing it.
    pub fn want_interrupt(&mut self) -> bool {
        let mut units = self.units.iter_mut().filter(|unit| unit.is_busy());
        // Devices after one with a completion are asked in the next call.
        let volumes = self.volumes.as_ref().filter(|volumes| volumes.is_busy());
        units.any(|unit| unit.want_interrupt()) || volumes.is_some_and(Waiting::want_interrupt)
    }

    /// Whether [`take_woken`](Self::take_woken) has any.
    #[inline]
    #[must_use]
    pub fn has_woken(&self) -> bool {
        self.units.iter().any(Requests::has_woken)
            || self.volumes.as_ref().is_some_and(Waiting::has_woken)
    }

    /// Takes the tasks whose requests have made progress since the last call.
    pub fn take_woken(&mut self) -> Vec<u32> {
        let mut woken = Vec::new();
        for unit in &mut self.units {
            unit.take_woken(&mut woken);
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.take_woken(&mut woken);
        }
        woken
    }

    /// Ends the call of `task` and drops its requests.
    #[inline]
    pub fn forget(&mut self, task: u32) {
        for unit in &mut self.units {
            unit.forget(task);
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.forget(task);
        }
    }
}
