//! Block devices as files: bytes at any position, over sectors.
//!
//! Nothing here waits. A call says what it wants; requests for it are given to the device, and
//! it is told [`Errno::EAGAIN`]. Its task waits, and when some of its requests are done it makes
//! the same call again, which finds their results. So any number of tasks can wait for one
//! disk, and a long transfer has several requests at the device at a time.

mod requests;
#[cfg(test)]
mod tests;

pub use requests::Request;

use super::process::FileId;
use super::types::Credentials;
use super::volume::{Transport, Waiting};
use super::{Vfs, devices};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::fmt::Debug;
use hartline_linux::errno::Errno;
use requests::{Requests, State};

/// Unit of positions and lengths, bytes.
pub const SECTOR: usize = hartline_abi::virtio::SECTOR as usize;
/// Most bytes that one request moves.
pub const MAX_LENGTH: usize = 64 << 10;
/// Most bytes of one call that are at the device at a time: half of what it takes.
pub const WINDOW: usize = 16 * MAX_LENGTH;
/// Major number of the device nodes.
pub const MAJOR: u64 = 254;
/// Minor numbers of one disk: it and its partitions, of which there are none.
pub const MINORS: u64 = 16;
/// Most sectors that one request discards.
const MAX_DISCARD: u64 = 1 << 19;

/// A disk: a device that does several requests at a time, each with a slot, which has a
/// buffer.
pub trait Disk: Debug {
    /// Its length, sectors.
    fn sectors(&self) -> u64;

    /// Whether it cannot be written.
    fn is_read_only(&self) -> bool;

    /// Whether it can be told that contents are not needed any more.
    fn discards(&self) -> bool;

    /// How many requests it takes.
    fn slots(&self) -> u16;

    /// The buffer of a slot, [`MAX_LENGTH`] bytes, which the device does not have.
    fn buffer(&mut self, slot: u16) -> &mut [u8];

    /// Makes a request of a slot, with the data that is in its buffer, or to come there.
    fn give(&mut self, slot: u16, request: Request);

    /// Lets the device see the requests.
    fn publish(&mut self);

    /// Whether requests are done that were not taken.
    fn has_done(&self) -> bool;

    /// Requests that are done are about to be taken.
    fn begin(&mut self);

    /// Takes one: its slot, and whether it succeeded (`EIO`, `EOPNOTSUPP`).
    fn take(&mut self) -> Option<(u16, Result<(), Errno>)>;

    /// Asks for an interrupt when the next one is done. Result: whether one is already.
    fn want_interrupt(&mut self) -> bool;
}

/// The disks, by the number in [`Device::Disk`](super::devices::Device), and what else tasks wait
/// for that storage of the host does.
#[derive(Debug, Default)]
pub struct Disks {
    units: Vec<Requests>,
    volumes: Option<Waiting>,
}

/// A range of bytes, as parts that are a request each: `at` is the first byte.
#[derive(Debug, Clone, Copy)]
struct Parts {
    at: u64,
    end: u64,
    /// Sectors that are only touched in part have a request of their own.
    whole: bool,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
struct Part {
    sector: u64,
    /// Sectors.
    count: usize,
    /// The bytes of these that are meant.
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
        let from = (self.at % SECTOR as u64) as usize;
        let most = match self.whole {
            false => MAX_LENGTH - from,
            true if from > 0 || left < SECTOR as u64 => SECTOR - from,
            true => MAX_LENGTH,
        };
        let mut length = left.min(most as u64) as usize;
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

    /// One of them, to ask about it.
    ///
    /// # Errors
    /// `ENXIO` if there is none of that number.
    pub fn get(&mut self, number: u32) -> Result<&dyn Disk, Errno> {
        Ok(self.unit(number)?.disk())
    }

    /// Length of one, bytes.
    ///
    /// # Errors
    /// `ENXIO`.
    pub fn size(&mut self, number: u32) -> Result<u64, Errno> {
        Ok(self.get(number)?.sectors() * SECTOR as u64)
    }

    /// Reads for task `who`, up to the end of the disk, as many bytes as there are at once.
    ///
    /// # Errors
    /// `EAGAIN` if there are none yet; `EIO`, `ENXIO`.
    pub fn read(&mut self, number: u32, who: u32, at: u64, to: &mut [u8]) -> Result<usize, Errno> {
        let parts = self.parts(number, at, to.len(), false)?;
        let unit = self.unit(number)?;
        for part in parts {
            let (sector, count) = (part.sector, part.count);
            let request = Request::Read { sector, count };
            if !unit.begin(who, request, |_| (State::Runs, request)) {
                break;
            }
        }
        unit.publish();
        let mut done = 0;
        for part in parts {
            let (sector, count) = (part.sector, part.count);
            let to = &mut to[done..done + part.length];
            let copy = |buffer: &[u8]| to.copy_from_slice(&buffer[part.from..][..part.length]);
            match unit.finish(who, Request::Read { sector, count }, copy) {
                Ok(()) => done += part.length,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes for task `who`, up to the end of the disk: as many bytes as the device has done.
    ///
    /// # Errors
    /// `EAGAIN` if it has done none yet; `ENOSPC` at the end of the disk, `EIO`, `ENXIO`.
    pub fn write(&mut self, number: u32, who: u32, at: u64, from: &[u8]) -> Result<usize, Errno> {
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
                    buffer[..data.len()].copy_from_slice(data);
                    (State::Runs, request)
                }
                // The rest of the sector has to be read first.
                _ => {
                    buffer[SECTOR + part.from..][..data.len()].copy_from_slice(data);
                    let state = State::Fills(part.from, data.len());
                    (state, Request::Read { sector, count })
                }
            };
            if !unit.begin(who, request, fill) {
                break;
            }
        }
        unit.publish();
        let mut done = 0;
        for part in parts {
            let (sector, count) = (part.sector, part.count);
            match unit.finish(who, Request::Write { sector, count }, |_| {}) {
                Ok(()) => done += part.length,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The parts of a range of bytes that are there, as far as they are at the device at a
    /// time.
    fn parts(&mut self, number: u32, at: u64, length: usize, whole: bool) -> Result<Parts, Errno> {
        let left = self.size(number)?.saturating_sub(at);
        // Ends where a sector does, if it is cut.
        let most = WINDOW as u64 - at % SECTOR as u64;
        let end = at + left.min(length as u64).min(most);
        Ok(Parts { at, end, whole })
    }

    /// Makes durable what was written before, for task `who`.
    ///
    /// # Errors
    /// `EAGAIN` if that is not done yet; `EIO`, `ENXIO`.
    pub fn flush(&mut self, number: u32, who: u32) -> Result<(), Errno> {
        let unit = self.unit(number)?;
        unit.begin(who, Request::Flush, |_| (State::Runs, Request::Flush));
        unit.publish();
        unit.finish(who, Request::Flush, |_| {})
    }

    /// Makes durable what was written to all before, for task `who`. That one fails, is no
    /// reason not to wait for the others.
    ///
    /// # Errors
    /// `EAGAIN` if that is not done yet.
    pub fn flush_all(&mut self, who: u32) -> Result<(), Errno> {
        let mut waits = false;
        for unit in self
            .units
            .iter_mut()
            .filter(|unit| !unit.disk().is_read_only())
        {
            unit.begin(who, Request::Flush, |_| (State::Runs, Request::Flush));
            unit.publish();
            waits |= !unit.is_done(who, Request::Flush);
        }
        match waits {
            true => Err(Errno::EAGAIN),
            // What is left of the requests goes with the call.
            false => Ok(()),
        }
    }

    /// The contents of so many sectors are not needed any more, says task `who`. Result: for
    /// how many of them that is done.
    ///
    /// # Errors
    /// `EAGAIN` if it is not done for any yet; `EOPNOTSUPP`, `EIO`, `ENXIO`.
    pub fn discard(
        &mut self,
        number: u32,
        who: u32,
        sector: u64,
        sectors: u64,
    ) -> Result<u64, Errno> {
        let unit = self.unit(number)?;
        if !unit.disk().discards() {
            return Err(Errno::EOPNOTSUPP);
        }
        let count = sectors.min(MAX_DISCARD) as usize;
        if count == 0 {
            return Ok(0);
        }
        let request = Request::Discard { sector, count };
        unit.begin(who, request, |_| (State::Runs, request));
        unit.publish();
        unit.finish(who, request, |_| {})?;
        Ok(count as u64)
    }

    /// There are volumes.
    pub(super) fn add_volumes(&mut self, transport: Rc<dyn Transport>) {
        self.volumes = Some(Waiting::new(transport));
    }

    /// Requests about files of volumes.
    ///
    /// # Errors
    /// `EIO` if there are none.
    pub(super) fn volumes(&mut self) -> Result<&mut Waiting, Errno> {
        self.volumes.as_mut().ok_or(Errno::EIO)
    }

    /// Whether a device has a request that it was given.
    #[inline]
    #[must_use]
    pub fn are_busy(&self) -> bool {
        self.units.iter().any(Requests::is_busy)
            || self.volumes.as_ref().is_some_and(Waiting::is_busy)
    }

    /// Whether requests are done that were not looked at.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.units.iter().any(Requests::is_pending)
            || self.volumes.as_ref().is_some_and(Waiting::is_pending)
    }

    /// Looks at requests that are done.
    #[inline]
    pub fn poll(&mut self) {
        for unit in &mut self.units {
            unit.poll();
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.poll();
        }
    }

    /// Asks for an interrupt when the next request is done. Result: whether one is already, and
    /// it has to be asked again.
    pub fn want_interrupt(&mut self) -> bool {
        let mut units = self.units.iter_mut().filter(|unit| unit.is_busy());
        // Those behind one that has something are asked the next time.
        let volumes = self.volumes.as_ref().filter(|volumes| volumes.is_busy());
        units.any(|unit| unit.want_interrupt()) || volumes.is_some_and(Waiting::want_interrupt)
    }

    /// Tasks for which something was done since the last time.
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

    /// The call of task `who` has ended: nobody asks for its requests any more.
    #[inline]
    pub fn forget(&mut self, who: u32) {
        for unit in &mut self.units {
            unit.forget(who);
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.forget(who);
        }
    }
}

impl Vfs {
    /// Adds a disk, which is `/dev/NAME` and belongs to `who`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`.
    pub fn add_disk(
        &mut self,
        name: &[u8],
        disk: Box<dyn Disk>,
        who: &Credentials,
    ) -> Result<(), Errno> {
        let number = self.disks.units.len() as u32;
        devices::add_disk(&mut self.fs, self.dev, name, number, who)?;
        self.disks.units.push(Requests::new(disk));
        Ok(())
    }

    /// Writes to a block device at `offset`, or at the file's position, which then moves, for
    /// task `who`.
    pub(super) fn write_disk(
        &mut self,
        id: FileId,
        (number, who): (u32, u32),
        offset: Option<u64>,
        from: &[u8],
    ) -> Result<usize, Errno> {
        let at = offset.unwrap_or(self.files.get(id)?.offset);
        let done = self.disks.write(number, who, at, from)?;
        self.advance(id, offset, done)
    }
}
