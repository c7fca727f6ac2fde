//! Block devices as files: bytes at any position, over sectors.

use super::process::FileId;
use super::types::Credentials;
use super::{Vfs, devices};
use crate::errno::Errno;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Debug;

/// Unit of positions and lengths, bytes.
pub const SECTOR: usize = hartline_abi::virtio::SECTOR as usize;
/// Major number of the device nodes.
pub const MAJOR: u64 = 254;
/// Minor numbers of one disk: it and its partitions, of which there are none.
pub const MINORS: u64 = 16;

/// A disk.
pub trait Disk: Debug {
    /// Its length, sectors.
    fn sectors(&self) -> u64;

    /// Whether it cannot be written.
    fn is_read_only(&self) -> bool;

    /// Reads whole sectors.
    ///
    /// # Errors
    /// `EIO`.
    fn read(&mut self, sector: u64, to: &mut [u8]) -> Result<(), Errno>;

    /// Writes whole sectors.
    ///
    /// # Errors
    /// `EIO`.
    fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), Errno>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// `EIO`.
    fn flush(&mut self) -> Result<(), Errno>;

    /// The contents of so many sectors are not needed any more.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EIO`.
    fn discard(&mut self, sector: u64, sectors: u64) -> Result<(), Errno>;
}

/// The disks, by the number in [`Device::Disk`](super::devices::Device).
#[derive(Debug, Default)]
pub struct Disks(Vec<Box<dyn Disk>>);

/// A range of bytes: the sectors that it touches in part, and the whole ones between.
struct Pieces {
    at: u64,
    length: usize,
}

impl Iterator for Pieces {
    /// Position of the first byte, and number of bytes: whole sectors, or part of one.
    type Item = (u64, usize);

    fn next(&mut self) -> Option<(u64, usize)> {
        let inside = (self.at % SECTOR as u64) as usize;
        let count = match self.length {
            0 => return None,
            length if inside > 0 || length < SECTOR => length.min(SECTOR - inside),
            length => length - length % SECTOR,
        };
        let piece = (self.at, count);
        self.at += count as u64;
        self.length -= count;
        Some(piece)
    }
}

impl Disks {
    /// One of them.
    ///
    /// # Errors
    /// `ENXIO` if there is none of that number.
    pub fn get(&mut self, number: u32) -> Result<&mut dyn Disk, Errno> {
        match self.0.get_mut(number as usize) {
            Some(disk) => Ok(&mut **disk),
            None => Err(Errno::ENXIO),
        }
    }

    /// Length of one, bytes.
    ///
    /// # Errors
    /// `ENXIO`.
    pub fn size(&mut self, number: u32) -> Result<u64, Errno> {
        Ok(self.get(number)?.sectors() * SECTOR as u64)
    }

    /// Reads, up to the end of the disk.
    ///
    /// # Errors
    /// `EIO`, `ENXIO`.
    pub fn read(&mut self, number: u32, at: u64, to: &mut [u8]) -> Result<usize, Errno> {
        let length = self.within(number, at, to.len())?;
        let disk = self.get(number)?;
        let mut rest = &mut to[..length];
        for (at, count) in (Pieces { at, length }) {
            let (part, later) = rest.split_at_mut(count);
            let (sector, inside) = (at / SECTOR as u64, (at % SECTOR as u64) as usize);
            match count.is_multiple_of(SECTOR) {
                true => disk.read(sector, part)?,
                false => {
                    let mut whole = [0; SECTOR];
                    disk.read(sector, &mut whole)?;
                    part.copy_from_slice(&whole[inside..inside + count]);
                }
            }
            rest = later;
        }
        Ok(length)
    }

    /// Writes, up to the end of the disk.
    ///
    /// # Errors
    /// `ENOSPC` at its end, `EIO`, `ENXIO`.
    pub fn write(&mut self, number: u32, at: u64, from: &[u8]) -> Result<usize, Errno> {
        let length = self.within(number, at, from.len())?;
        if length == 0 && !from.is_empty() {
            return Err(Errno::ENOSPC);
        }
        let disk = self.get(number)?;
        let mut rest = &from[..length];
        for (at, count) in (Pieces { at, length }) {
            let (part, later) = rest.split_at(count);
            let (sector, inside) = (at / SECTOR as u64, (at % SECTOR as u64) as usize);
            match count.is_multiple_of(SECTOR) {
                true => disk.write(sector, part)?,
                false => {
                    let mut whole = [0; SECTOR];
                    disk.read(sector, &mut whole)?;
                    whole[inside..inside + count].copy_from_slice(part);
                    disk.write(sector, &whole)?;
                }
            }
            rest = later;
        }
        Ok(length)
    }

    /// How many of `length` bytes at a position there are.
    fn within(&mut self, number: u32, at: u64, length: usize) -> Result<usize, Errno> {
        let left = self.size(number)?.saturating_sub(at);
        Ok(usize::try_from(left).map_or(length, |left| left.min(length)))
    }

    /// Makes durable what was written to all.
    ///
    /// # Errors
    /// `EIO` if one of them fails.
    pub fn flush_all(&mut self) -> Result<(), Errno> {
        let mut result = Ok(());
        // All, though one fails.
        for disk in self.0.iter_mut().filter(|disk| !disk.is_read_only()) {
            result = result.and(disk.flush());
        }
        result
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
        let number = self.disks.0.len() as u32;
        devices::add_disk(&mut self.fs, self.dev, name, number, who)?;
        self.disks.0.push(disk);
        Ok(())
    }

    /// Writes to a block device at `offset`, or at the file's position, which then moves.
    pub(super) fn write_disk(
        &mut self,
        id: FileId,
        number: u32,
        offset: Option<u64>,
        from: &[u8],
    ) -> Result<usize, Errno> {
        let at = offset.unwrap_or(self.files.get(id)?.offset);
        let done = self.disks.write(number, at, from)?;
        self.advance(id, offset, done)
    }
}
