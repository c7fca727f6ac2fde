//! Packed trees in files, which later runs use instead of packing the source again.
//!
//! A file starts with the image, so that it can be mapped. Behind it are the parts that the base
//! provides and the stamps of files, and at the end a trailer with the numbers of both and a SHA-256.
//! The image is not part of the checksum: it would be read as a whole at each start.

#[cfg(test)]
mod tests;

use crate::MAX_LENGTH;
use crate::image::next_data;
use crate::packed::{Base, Extent, TreeImage};
use crate::stamp::Stamp;
use crate::storage::{Storage, write_pages};
use hartline_abi::layout::PAGE_SIZE;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// First bytes of the trailer.
const MAGIC: u64 = u64::from_le_bytes(*b"HARTKEPT");
/// Words of the trailer before its checksum.
const WORDS: usize = 5;
/// Bytes of the trailer.
const TRAILER: usize = WORDS * 8 + 32;
/// Bytes of a part that the base provides.
const EXTENT: usize = 24;
/// Bytes of a stamp with the number of its inode.
const STAMP: usize = 8 + Stamp::LENGTH;
/// Most parts, and most stamps, of a file.
const MOST: u64 = 1 << 20;
/// The base's length in the trailer of a tree without one.
const NO_BASE: u64 = u64::MAX;
/// Bytes that are copied at a time: a huge page, so that the host's page cache can have the file in
/// huge pages.
const CHUNK: usize = 2 << 20;

impl TreeImage {
    /// Writes the tree into an empty file.
    ///
    /// # Errors
    /// Any I/O error; `Unsupported`: the tree has too many files for this.
    pub fn keep(&self, file: &File) -> io::Result<()> {
        let length = self.length();
        self.copy_own(file)?;
        let extents = self.base().map_or(&[][..], |base| &base.extents);
        let (extent_count, stamp_count) = (extents.len() as u64, self.stamps().len() as u64);
        if extent_count > MOST || stamp_count > MOST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut bytes = Vec::new();
        for extent in extents {
            for word in [extent.offset, extent.source, extent.length] {
                bytes.extend(word.to_le_bytes());
            }
        }
        for (number, stamp) in self.stamps() {
            bytes.extend(u64::from(*number).to_le_bytes());
            bytes.extend(stamp.to_bytes());
        }
        let base = self.base().map_or(NO_BASE, |base| base.length);
        for word in [MAGIC, length, base, extent_count, stamp_count] {
            bytes.extend(word.to_le_bytes());
        }
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        file.write_all_at(&bytes, length)
    }

    /// Copies the image's own bytes. Holes and pages of zeros become holes.
    fn copy_own(&self, file: &File) -> io::Result<()> {
        let length = self.length();
        let source = match self.memory() {
            Some(memory) => {
                let own = usize::try_from(length).ok().and_then(|n| memory.get(..n));
                return write_pages(file, own.unwrap_or(memory), 0).map(drop);
            }
            None => self.file()?,
        };
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while let Some((data, hole)) = next_data(source, at, length) {
            at = data;
            while at < hole {
                let room = CHUNK as u64 - at % CHUNK as u64;
                let part = usize::try_from(room.min(hole - at)).unwrap_or(CHUNK);
                source.read_exact_at(&mut buffer[..part], at)?;
                write_pages(file, &buffer[..part], at)?;
                at += part as u64;
            }
        }
        Ok(())
    }

    /// The tree that [`keep`](Self::keep) wrote into `file`, with the base that it was packed with.
    /// Nobody may change the file as long as the tree is used.
    ///
    /// # Errors
    /// Any I/O error; `InvalidData`: the file is damaged, or the base is another one.
    pub fn kept(file: File, base: Option<File>) -> io::Result<Self> {
        let tables = Tables::read(&file)?;
        let extents = tables.extents();
        let base = match (base, tables.base) {
            (None, NO_BASE) if extents.is_empty() => None,
            (Some(base), length) if base.metadata()?.len() == length => Some(Base {
                file: base,
                length,
                extents,
            }),
            _ => return Err(damaged()),
        };
        if let Some(base) = &base {
            check(base, tables.length)?;
        }
        let stamps = tables.stamps().ok_or_else(damaged)?;
        let storage = Storage::File(file);
        Ok(Self::packed(storage, tables.length, base, stamps))
    }
}

/// The tables after the image.
struct Tables {
    /// Length of the image.
    length: u64,
    /// Length of the base.
    base: u64,
    /// The parts, then the stamps, then the trailer.
    bytes: Vec<u8>,
    extents_end: usize,
    stamps_end: usize,
}

impl Tables {
    fn read(file: &File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let mut trailer = [0; TRAILER];
        let at = end.checked_sub(TRAILER as u64).ok_or_else(damaged)?;
        file.read_exact_at(&mut trailer, at)?;
        let (words, _) = trailer.as_chunks::<8>();
        let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
        let mut word = || words.next().unwrap_or_default();
        let (magic, length, base, extents, stamps) = (word(), word(), word(), word(), word());
        let are_sound = magic == MAGIC
            && length <= MAX_LENGTH
            && length.is_multiple_of(PAGE_SIZE)
            && extents <= MOST
            && stamps <= MOST
            && length + extents * EXTENT as u64 + stamps * STAMP as u64 == at;
        if !are_sound {
            return Err(damaged());
        }
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| damaged());
        let mut bytes = vec![0; size(end - length)?];
        file.read_exact_at(&mut bytes, length)?;
        let (covered, sum) = bytes.split_at(bytes.len() - 32);
        if Sha256::digest(covered).as_slice() != sum {
            return Err(damaged());
        }
        Ok(Self {
            length,
            base,
            extents_end: size(extents)? * EXTENT,
            stamps_end: size(extents)? * EXTENT + size(stamps)? * STAMP,
            bytes,
        })
    }

    fn extents(&self) -> Vec<Extent> {
        let (words, _) = self.bytes[..self.extents_end].as_chunks::<8>();
        let (triples, _) = words.as_chunks::<3>();
        let extent = |words: &[[u8; 8]; 3]| {
            let [offset, source, length] = words.map(u64::from_le_bytes);
            Extent {
                offset,
                source,
                length,
            }
        };
        triples.iter().map(extent).collect()
    }

    /// The stamps by rising numbers; `None` if they are not.
    fn stamps(&self) -> Option<Vec<(u32, Stamp)>> {
        let bytes = &self.bytes[self.extents_end..self.stamps_end];
        let (records, _) = bytes.as_chunks::<STAMP>();
        let stamp = |record: &[u8; STAMP]| {
            let (number, stamp) = record.split_first_chunk::<8>()?;
            let number = u32::try_from(u64::from_le_bytes(*number)).ok()?;
            Some((number, Stamp::from_bytes(stamp.try_into().ok()?)))
        };
        let stamps: Vec<_> = records.iter().map(stamp).collect::<Option<_>>()?;
        stamps.is_sorted_by_key(|stamp| stamp.0).then_some(stamps)
    }
}

/// Checks that the parts lie in an image of `length` bytes and in the base, in order.
fn check(base: &Base, length: u64) -> io::Result<()> {
    let source_end = base.length.checked_next_multiple_of(PAGE_SIZE);
    let source_end = source_end.ok_or_else(damaged)?;
    let mut least = 0;
    for extent in &base.extents {
        let numbers = [extent.offset, extent.source, extent.length];
        let end = extent.offset.checked_add(extent.length);
        let source = extent.source.checked_add(extent.length);
        let are_sound = numbers
            .iter()
            .all(|number| number.is_multiple_of(PAGE_SIZE))
            && extent.offset >= least
            && end.is_some_and(|end| end <= length)
            && source.is_some_and(|end| end <= source_end);
        if !are_sound {
            return Err(damaged());
        }
        least = extent.offset + extent.length;
    }
    Ok(())
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the packed tree is damaged")
}
