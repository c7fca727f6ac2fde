//! Checked reader of uncompressed EROFS images (`fs/erofs/erofs_fs.h` of Linux).
//!
//! The reader trusts nothing in an image: it checks every offset, length and name when it uses it.
//! Extended attributes are skipped.

use crate::MAX_LENGTH;
use crate::error::{TreeError, show};
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Offset of the superblock.
const SUPERBLOCK: u64 = 1024;
const MAGIC: u32 = 0xe0f5_e1e2;
/// Unit of inode numbers, bytes.
const SLOT: u64 = 32;
/// Supported incompatible features: compressions, which the inodes that use them name; long
/// prefixes of attribute names; and chunks.
const KNOWN_FEATURES: u32 = 0x01 | 0x02 | CHUNKED | 0x10 | 0x20 | 0x40;
const CHUNKED: u32 = 0x04;
/// Extra devices; the same bit says that files have a second compression.
const DEVICES: u32 = 0x08;
/// Block number of a hole.
const HOLE: u32 = u32::MAX;
/// Length of a directory entry without its name.
const ENTRY: usize = 12;

/// An EROFS image.
pub(super) struct Image<'a> {
    file: &'a File,
    path: &'a Path,
    /// Length of the image as the superblock states it, bytes; the file is at least that long.
    length: u64,
    /// Logarithm of the block size.
    block_bits: u32,
    /// Byte offset of inode 0 (the start of the metadata area).
    metadata: u64,
    /// Inode of the root directory.
    pub root: u64,
    /// Modification time of inodes without one: seconds, nanoseconds.
    built: (i64, u32),
    blocks: RefCell<Blocks>,
}

/// Blocks of the image that were read last: inodes and names are small, and lie close together.
struct Blocks {
    /// Number and bytes of a block, at the place that the number determines. Only the last block
    /// of an image is shorter than [`LENGTH`](Self::LENGTH).
    places: Vec<Option<(u64, Vec<u8>)>>,
}

impl Blocks {
    const LENGTH: u64 = 4 << 10;
    const PLACES: usize = 1024;

    fn new() -> RefCell<Self> {
        let places = vec![None; Self::PLACES];
        RefCell::new(Self { places })
    }

    /// The bytes of block `number`, which `read` makes if they are not here.
    fn get<E>(
        &mut self,
        number: u64,
        read: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<&[u8], E> {
        let place = usize::try_from(number % Self::PLACES as u64).unwrap_or_default();
        let place = &mut self.places[place];
        if place.as_ref().is_none_or(|&(held, _)| held != number) {
            *place = Some((number, read()?));
        }
        Ok(place.as_ref().map_or(&[], |(_, bytes)| bytes))
    }
}

/// An inode.
#[derive(Debug)]
pub(super) struct Inode {
    pub number: u64,
    /// Type and permissions.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, u32),
    /// Bytes of contents, at most [`MAX_LENGTH`].
    pub size: u64,
    /// Device number in the encoding of the image.
    device: u32,
    layout: Layout,
}

/// Location of an inode's contents; offsets are bytes in the image.
#[derive(Debug)]
enum Layout {
    /// In one piece.
    Plain { start: u64 },
    /// Whole blocks in one piece, and the rest at `tail`.
    Inline { start: u64, tail: u64 },
    /// Pieces of `1 << bits` bytes, whose blocks are in a table.
    Chunks { table: u64, wide: bool, bits: u32 },
}

/// A part of a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Offset in the file.
    pub at: u64,
    /// Offset in the image; `None`: zeros.
    pub source: Option<u64>,
    /// Bytes.
    pub length: u64,
}

impl Piece {
    /// The place in the image of the first piece of a file, if whole huge pages can show it.
    pub fn huge_source(&self) -> Option<u64> {
        let source = self.source.filter(|from| from.is_multiple_of(PAGE_SIZE))?;
        let end = source.checked_add(self.length)? / HUGE_PAGE_SIZE;
        (self.at == 0 && end > source / HUGE_PAGE_SIZE).then_some(source)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u16_at(bytes, at) | u16_at(bytes, at + 2) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Whether a file begins as an EROFS image does.
#[must_use]
pub fn is_image(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, SUPERBLOCK).is_ok() && u32::from_le_bytes(magic) == MAGIC
}

impl<'a> Image<'a> {
    /// Reads the superblock.
    pub fn open(file: &'a File, path: &'a Path) -> Result<Self, TreeError> {
        let metadata = file
            .metadata()
            .map_err(TreeError::host(path, "read attributes of"))?;
        let mut image = Self {
            file,
            path,
            length: metadata.len(),
            block_bits: 0,
            metadata: 0,
            root: 0,
            built: (0, 0),
            blocks: Blocks::new(),
        };
        let block: [u8; 128] = image.read(SUPERBLOCK)?;
        image.block_bits = u32::from(block[12]);
        if !(9..=16).contains(&image.block_bits) {
            return Err(image.damaged("the superblock has a bad block size"));
        }
        image.check_features(u32_at(&block, 80), u16_at(&block, 86))?;
        if block[90] != 0 {
            return Err(image.unsupported("directory blocks of another size"));
        }
        let claimed = u64::from(u32_at(&block, 36)) << image.block_bits;
        if claimed > image.length {
            return Err(image.damaged(format!(
                "the superblock claims {claimed} bytes, but there are {}",
                image.length
            )));
        }
        image.length = claimed;
        image.metadata = image.block(u32_at(&block, 40));
        image.root = u16_at(&block, 14).into();
        image.built = image.time(u64_at(&block, 24), u32_at(&block, 32))?;
        Ok(image)
    }

    fn check_features(&self, features: u32, devices: u32) -> Result<(), TreeError> {
        if features & DEVICES != 0 && devices != 0 {
            return Err(self.unsupported("contents on extra devices"));
        }
        match features & !(KNOWN_FEATURES | DEVICES) {
            0 => Ok(()),
            unknown => Err(self.unsupported(&format!("features {unknown:#x}"))),
        }
    }

    /// Bytes of the image.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn damaged(&self, reason: impl Into<String>) -> TreeError {
        TreeError::Erofs {
            image: self.path.to_path_buf(),
            reason: reason.into(),
        }
    }

    fn unsupported(&self, what: &str) -> TreeError {
        self.damaged(format!("{what} are not supported"))
    }

    fn damaged_inode(&self, number: u64, reason: &str) -> TreeError {
        self.damaged(format!("inode {number}: {reason}"))
    }

    fn block(&self, number: u32) -> u64 {
        u64::from(number) << self.block_bits
    }

    fn time(&self, seconds: u64, nanoseconds: u32) -> Result<(i64, u32), TreeError> {
        match nanoseconds {
            0..=999_999_999 => Ok((seconds.cast_signed(), nanoseconds)),
            _ => Err(self.damaged("a time has more than 999,999,999 nanoseconds")),
        }
    }

    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], TreeError> {
        let mut bytes = [0; N];
        self.read_into(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Fills `bytes` from offset `at`.
    pub fn read_into(&self, bytes: &mut [u8], at: u64) -> Result<(), TreeError> {
        let end = at.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.length) {
            return Err(self.damaged(format!("something lies outside it, at byte {at}")));
        }
        if bytes.len() as u64 >= Blocks::LENGTH {
            return self.read_file(bytes, at);
        }
        let mut blocks = self.blocks.borrow_mut();
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (number, skip) = (at / Blocks::LENGTH, at % Blocks::LENGTH);
            let block = blocks.get(number, || self.read_block(number))?;
            let held = usize::try_from(skip)
                .ok()
                .and_then(|skip| block.get(skip..));
            let held = held.unwrap_or_default();
            let length = held.len().min(rest.len());
            if length == 0 {
                return Err(self.damaged(format!("something lies outside it, at byte {at}")));
            }
            let (part, next) = rest.split_at_mut(length);
            part.copy_from_slice(&held[..length]);
            (at, rest) = (at + length as u64, next);
        }
        Ok(())
    }

    fn read_block(&self, number: u64) -> Result<Vec<u8>, TreeError> {
        let start = number * Blocks::LENGTH;
        let length = self.length.saturating_sub(start).min(Blocks::LENGTH);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        self.read_file(&mut bytes, start)?;
        Ok(bytes)
    }

    fn read_file(&self, bytes: &mut [u8], at: u64) -> Result<(), TreeError> {
        let read = self.file.read_exact_at(bytes, at);
        read.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => TreeError::Changed {
                path: self.path.to_path_buf(),
            },
            _ => TreeError::host(self.path, "read")(source),
        })
    }

    /// Reads an inode.
    pub fn inode(&self, number: u64) -> Result<Inode, TreeError> {
        let damaged = |reason| self.damaged_inode(number, reason);
        let start = number
            .checked_mul(SLOT)
            .and_then(|offset| offset.checked_add(self.metadata))
            .ok_or_else(|| damaged("lies outside the image"))?;
        let mut raw = [0; 64];
        self.read_into(&mut raw[..32], start)?;
        let format = u16_at(&raw, 0);
        let extended = format & 1 != 0;
        if extended {
            self.read_into(&mut raw[32..], start + 32)?;
        }
        if format >> 4 != 0 {
            return Err(damaged("is of an unknown format"));
        }
        let attributes = match u16_at(&raw, 2) {
            0 => 0,
            count => 12 + 4 * (u64::from(count) - 1),
        };
        // Offset after the inode and its extended attributes.
        let next = start + if extended { 64 } else { 32 } + attributes;
        let (size, uid, gid, mtime) = match extended {
            true => (
                u64_at(&raw, 8),
                u32_at(&raw, 24),
                u32_at(&raw, 28),
                self.time(u64_at(&raw, 32), u32_at(&raw, 40))?,
            ),
            false => (
                u32_at(&raw, 8).into(),
                u16_at(&raw, 24),
                u16_at(&raw, 26),
                self.built,
            ),
        };
        if size > MAX_LENGTH {
            return Err(damaged("is longer than an image may be"));
        }
        let data = u32_at(&raw, 16);
        Ok(Inode {
            number,
            mode: u16_at(&raw, 4),
            uid,
            gid,
            mtime,
            size,
            device: data,
            layout: self.layout(number, format >> 1 & 7, data, next)?,
        })
    }

    /// Location of the contents of an inode of the format `layout`. `data` is the inode's word for
    /// the location; `next` is the offset after the inode.
    fn layout(&self, number: u64, layout: u32, data: u32, next: u64) -> Result<Layout, TreeError> {
        const CHUNK_BITS: u32 = 0x1f;
        const CHUNK_INDEXES: u32 = 0x20;
        match layout {
            0 => Ok(Layout::Plain {
                start: self.block(data),
            }),
            1 | 3 => Err(self.compressed(number, next)?),
            2 => Ok(Layout::Inline {
                start: self.block(data),
                tail: next,
            }),
            4 => {
                let format = data & 0xffff;
                if format & !(CHUNK_BITS | CHUNK_INDEXES) != 0 {
                    return Err(self.damaged_inode(number, "has chunks of an unknown format"));
                }
                let wide = format & CHUNK_INDEXES != 0;
                Ok(Layout::Chunks {
                    table: next.next_multiple_of(if wide { 8 } else { 4 }),
                    wide,
                    bits: self.block_bits + (format & CHUNK_BITS),
                })
            }
            _ => Err(self.damaged_inode(number, "has contents of an unknown layout")),
        }
    }

    /// The error for a compressed file. The algorithm is stated after the inode.
    fn compressed(&self, number: u64, next: u64) -> Result<TreeError, TreeError> {
        let header: [u8; 8] = self.read(next.next_multiple_of(8))?;
        let algorithm = match header[6] & 15 {
            0 => "lz4",
            1 => "lzma",
            2 => "deflate",
            3 => "zstd",
            _ => return Ok(self.damaged_inode(number, "has an unknown compression")),
        };
        Ok(self.damaged(format!(
            "inode {number} is compressed with {algorithm}; compressed files are not \
             supported: make the image without compression"
        )))
    }

    /// The pieces of a file's contents, in order; they cover the whole file.
    pub fn pieces(&self, inode: &Inode) -> Result<Vec<Piece>, TreeError> {
        let mut pieces = Vec::new();
        let size = inode.size;
        match inode.layout {
            Layout::Plain { start } => self.add(&mut pieces, inode, 0, Some(start), size)?,
            Layout::Inline { start, tail } => {
                let block = 1 << self.block_bits;
                let last = size.saturating_sub(1) / block * block;
                self.add(&mut pieces, inode, 0, Some(start), last)?;
                if tail % block + (size - last) > block {
                    return Err(self.damaged_inode(inode.number, "crosses a block"));
                }
                self.add(&mut pieces, inode, last, Some(tail), size - last)?;
            }
            Layout::Chunks { table, wide, bits } => {
                let width = if wide { 8 } else { 4 };
                let count = size.div_ceil(1 << bits);
                let end = count.checked_mul(width).and_then(|n| n.checked_add(table));
                if end.is_none_or(|end| end > self.length) {
                    return Err(self.damaged_inode(inode.number, "has chunks outside the image"));
                }
                for chunk in 0..count {
                    let at = chunk << bits;
                    let length = (size - at).min(1 << bits);
                    let source = self.chunk(inode, table + chunk * width, wide)?;
                    self.add(&mut pieces, inode, at, source, length)?;
                }
            }
        }
        Ok(pieces)
    }

    /// Offset in the image of the chunk that the entry at `at` of a table describes.
    fn chunk(&self, inode: &Inode, at: u64, wide: bool) -> Result<Option<u64>, TreeError> {
        let number = match wide {
            false => u32::from_le_bytes(self.read(at)?),
            true => {
                let entry: [u8; 8] = self.read(at)?;
                if u16_at(&entry, 2) != 0 {
                    return Err(self.damaged_inode(inode.number, "lies on an extra device"));
                }
                u32_at(&entry, 4)
            }
        };
        Ok((number != HOLE).then(|| self.block(number)))
    }

    /// Adds a piece, or extends the last one if the new piece follows it in the image.
    fn add(
        &self,
        pieces: &mut Vec<Piece>,
        inode: &Inode,
        at: u64,
        source: Option<u64>,
        length: u64,
    ) -> Result<(), TreeError> {
        if length == 0 {
            return Ok(());
        }
        let end = source.map_or(Some(0), |start| start.checked_add(length));
        if end.is_none_or(|end| end > self.length) {
            return Err(self.damaged_inode(inode.number, "has contents outside the image"));
        }
        if let Some(last) = pieces.last_mut()
            && last.source.map(|start| start + last.length) == source
        {
            last.length += length;
            return Ok(());
        }
        pieces.push(Piece { at, source, length });
        Ok(())
    }

    /// A length or an offset of bytes in memory.
    fn in_memory(&self, number: u64) -> Result<usize, TreeError> {
        let number = usize::try_from(number);
        number.map_err(|_| self.damaged("a part of it is too long"))
    }

    /// `length` bytes of a file, from `at` on.
    fn bytes(&self, pieces: &[Piece], at: u64, length: u64) -> Result<Vec<u8>, TreeError> {
        let mut bytes = vec![0; self.in_memory(length)?];
        let end = at + length;
        for piece in pieces {
            let from = piece.at.max(at);
            let to = (piece.at + piece.length).min(end);
            if let Some(source) = piece.source
                && from < to
            {
                let part = self.in_memory(from - at)?..self.in_memory(to - at)?;
                self.read_into(&mut bytes[part], source + (from - piece.at))?;
            }
        }
        Ok(bytes)
    }

    /// Target of a symbolic link.
    pub fn link_target(&self, inode: &Inode) -> Result<Vec<u8>, TreeError> {
        if !(1..super::PATH_MAX).contains(&inode.size) {
            return Err(self.damaged_inode(inode.number, "is a link of a bad length"));
        }
        let target = self.bytes(&self.pieces(inode)?, 0, inode.size)?;
        match target.contains(&0) {
            true => Err(self.damaged_inode(inode.number, "is a link with a NUL byte in it")),
            false => Ok(target),
        }
    }

    /// Linux device number of a device node.
    pub fn device(&self, inode: &Inode) -> u64 {
        let major = inode.device >> 8 & 0xfff;
        let minor = inode.device & 0xff | inode.device >> 12 & 0xf_ff00;
        libc::makedev(major, minor)
    }

    /// Calls `found` with name and inode of each entry of a directory except `.` and `..`.
    pub fn entries(
        &self,
        directory: &Inode,
        mut found: impl FnMut(&[u8], u64) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let pieces = self.pieces(directory)?;
        let block = 1u64 << self.block_bits;
        let mut at = 0;
        while at < directory.size {
            let length = (directory.size - at).min(block);
            let bytes = self.bytes(&pieces, at, length)?;
            for (name, inode) in self.block_entries(directory, &bytes)? {
                if name != b"." && name != b".." {
                    found(name, inode)?;
                }
            }
            at += block;
        }
        Ok(())
    }

    /// The entries of one block of a directory.
    fn block_entries<'b>(
        &self,
        directory: &Inode,
        block: &'b [u8],
    ) -> Result<Vec<(&'b [u8], u64)>, TreeError> {
        let damaged = |reason| self.damaged_inode(directory.number, reason);
        let names = match block.len() {
            0..ENTRY => 0,
            _ => u16_at(block, 8) as usize,
        };
        if names == 0 || !names.is_multiple_of(ENTRY) || names > block.len() {
            return Err(damaged("is a damaged directory"));
        }
        let starts: Vec<usize> = (0..names / ENTRY)
            .map(|index| u16_at(block, index * ENTRY + 8) as usize)
            .collect();
        let mut entries = Vec::with_capacity(starts.len());
        for (index, &start) in starts.iter().enumerate() {
            let next = starts.get(index + 1);
            let name = block.get(start..next.copied().unwrap_or(block.len()));
            let mut name = name.ok_or_else(|| damaged("has a name outside its block"))?;
            if next.is_none() {
                // The last name ends at the end of the block or at a NUL.
                let end = name.iter().position(|&byte| byte == 0);
                name = &name[..end.unwrap_or(name.len())];
            }
            if start < names || name.is_empty() {
                return Err(damaged("has a bad name"));
            }
            let shown = show(name);
            if name.contains(&0) || name.contains(&b'/') || name.len() > 255 {
                return Err(damaged(&format!("has the bad name {shown}")));
            }
            entries.push((name, u64_at(block, index * ENTRY)));
        }
        Ok(entries)
    }
}
