//! A packed tree: its image, and the file that parts of the image are shown from.

use crate::stamp::Stamp;
use crate::storage::Storage;
use hartline_abi::tree::{TreeHeader, TreeInode};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// Most inodes of a stored image whose files have stamps; the files of a larger one have none, and are
/// read to find their translations.
const MOST_STAMPS: u32 = 1 << 20;

/// A tree image ([`hartline_abi::tree`]).
#[derive(Debug)]
pub struct TreeImage {
    storage: Storage,
    length: u64,
    base: Option<Base>,
    /// Stamps of regular files by number of the inode, in that order.
    stamps: Vec<(u32, Stamp)>,
}

/// A file that is not copied into the image: parts of it are shown instead of parts of the
/// image's own file. It must not change as long as the tree is used.
#[derive(Debug)]
pub struct Base {
    /// The file.
    pub file: File,
    /// Its length, bytes.
    pub length: u64,
    /// The parts of the base that are shown, by rising offset in the image. They do not overlap.
    pub extents: Vec<Extent>,
}

/// A part of an image that is shown from its [`Base`]. All numbers are multiples of the
/// page size; only the last page may go beyond the end of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the image.
    pub offset: u64,
    /// Offset in the base.
    pub source: u64,
    /// Bytes.
    pub length: u64,
}

impl TreeImage {
    /// An image that consists of the whole of `file`.
    ///
    /// # Errors
    /// The attributes of the file cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self::packed(Storage::File(file), length, None, Vec::new()))
    }

    /// An image that consists of the whole of `file`, of which parts are shown from `base`. Without a
    /// base, `stamp` is a stamp of `file`: the files of the tree do not change while it does not.
    ///
    /// # Errors
    /// The file cannot be read, or is too short for a tree.
    pub fn stored(file: File, base: Option<Base>, stamp: Option<Stamp>) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut count = [0; 4];
        file.read_exact_at(&mut count, offset_of!(TreeHeader, inode_count) as u64)?;
        let count = u32::from_le_bytes(count);
        // A false number must not use up the memory.
        let fits =
            count <= MOST_STAMPS && u64::from(count) <= length / size_of::<TreeInode>() as u64;
        let stamp = stamp.filter(|_| base.is_none() && fits);
        let stamps = stamp.map(|stamp| (0..count).map(|n| (n, stamp.part(n.into()))).collect());
        let stamps = stamps.unwrap_or_default();
        Ok(Self::packed(Storage::File(file), length, base, stamps))
    }

    /// Fills `bytes` from offset `at` of the image's own bytes: the parts that the base provides are
    /// zeros.
    ///
    /// # Errors
    /// Any I/O error of the host; also if the image ends before `bytes` is full.
    pub fn read_own_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.storage.read_exact_at(bytes, at)
    }

    /// An image of which a part is shown from `base`, with the stamps of some files.
    pub(super) fn packed(
        storage: Storage,
        length: u64,
        base: Option<Base>,
        stamps: Vec<(u32, Stamp)>,
    ) -> Self {
        Self {
            storage,
            length,
            base,
            stamps,
        }
    }

    /// The image's own file; the parts that the base provides are zeros there.
    ///
    /// # Errors
    /// `Unsupported`: the image is in memory.
    pub fn file(&self) -> io::Result<&File> {
        match &self.storage {
            Storage::File(file) => Ok(file),
            Storage::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The image, if it is in memory, in whole huge pages: the bytes after its end are zeros. It
    /// stays in memory until the tree is dropped.
    #[must_use]
    pub fn memory(&self) -> Option<&[u8]> {
        match &self.storage {
            Storage::File(_) => None,
            Storage::Memory(memory) => Some(memory.bytes(self.length)),
        }
    }

    /// The stamp of the host file that the inode `number` was read from, if the file had the same
    /// stamp before and after the reading.
    #[must_use]
    pub fn stamp(&self, number: u32) -> Option<&Stamp> {
        let found = self.stamps.binary_search_by_key(&number, |stamp| stamp.0);
        found.ok().map(|index| &self.stamps[index].1)
    }

    /// The stamps of regular files by number of the inode, in that order.
    pub(super) fn stamps(&self) -> &[(u32, Stamp)] {
        &self.stamps
    }

    /// Length of the image, bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The file that parts of the image are shown from, if there is one.
    #[must_use]
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Fills `bytes` from offset `at`.
    ///
    /// # Errors
    /// Any I/O error of the host; also if the image ends before `bytes` is full.
    pub fn read_exact_at(&self, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
        let Some(base) = &self.base else {
            return self.storage.read_exact_at(bytes, at);
        };
        while !bytes.is_empty() {
            let next = base.extents.partition_point(|e| e.offset + e.length <= at);
            let extent = base.extents.get(next);
            let room = match extent {
                Some(e) if e.offset <= at => e.offset + e.length - at,
                Some(e) => e.offset - at,
                None => u64::MAX,
            };
            let length = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (part, rest) = bytes.split_at_mut(length);
            match extent {
                Some(e) if e.offset <= at => {
                    base.file.read_exact_at(part, e.source + (at - e.offset))?;
                }
                _ => self.storage.read_exact_at(part, at)?,
            }
            bytes = rest;
            at += length as u64;
        }
        Ok(())
    }
}
