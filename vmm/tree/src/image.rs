//! The image while it is put together: file data streamed in while the tree is read,
//! then the inodes and names behind it, and the header in front.

use crate::error::{TreeError, show};
use crate::nodes::{Content, NAME_TOO_LONG, NodeId, Nodes, ROOT};
use crate::packed::{Base, Extent, TreeImage};
use crate::stamp::Stamp;
use crate::storage::Storage;
use crate::{MAX_LENGTH, Source};
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};
use hartline_abi::{ABI_VERSION, tree as abi};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;

/// Bytes copied at a time.
const CHUNK: usize = 256 << 10;

/// The image. The first page is kept for the header.
#[derive(Debug)]
pub(super) struct Image {
    storage: Storage,
    /// Offset for the next data, a multiple of the page size.
    end: u64,
    /// Bytes of data pages written so far; at most `limit`.
    written: u64,
    limit: u64,
    buffer: Vec<u8>,
    /// The file that parts of the image are shown from, and its length.
    base: Option<(File, u64)>,
    /// The parts of the base that are shown.
    extents: Vec<Extent>,
}

impl Image {
    /// An image with nothing in it.
    pub fn new(storage: Storage) -> Self {
        Self {
            storage,
            end: PAGE_SIZE,
            written: 0,
            limit: u64::MAX,
            buffer: Vec::new(),
            base: None,
            extents: Vec::new(),
        }
    }

    /// Sets the limit for data, bytes in whole pages.
    pub fn limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    /// Counts data written from the start of a page. A partial last page counts as a whole page: a
    /// file of one byte takes as much memory of the host as one of 4096.
    fn count(&mut self, bytes: u64) -> Result<(), TreeError> {
        let pages = bytes.checked_next_multiple_of(PAGE_SIZE);
        self.written = self.written.saturating_add(pages.unwrap_or(u64::MAX));
        let limit = self.limit;
        match self.written <= limit {
            true => Ok(()),
            false => Err(TreeError::Limit { limit }),
        }
    }

    /// Switches to a memory file, in which only pages with data take memory.
    pub fn use_file(&mut self) -> Result<(), TreeError> {
        self.storage.become_file(self.end)
    }

    /// Sets the file of `length` bytes that [`show`](Self::show) refers to.
    pub fn set_base(&mut self, file: File, length: u64) {
        self.base = Some((file, length));
    }

    /// Shows `length` bytes of the base from `source` at `offset`, in whole pages. `offset` must
    /// not lie in a range that was reserved before the last file.
    pub fn show(&mut self, offset: u64, source: u64, length: u64) {
        let length = length.next_multiple_of(PAGE_SIZE);
        match self.extents.last_mut() {
            _ if length == 0 => {}
            Some(last)
                if last.offset + last.length == offset && last.source + last.length == source =>
            {
                last.length += length;
            }
            _ => self.extents.push(Extent {
                offset,
                source,
                length,
            }),
        }
    }

    /// Reserves `size` bytes and returns their offset. The file grows by a hole.
    pub fn reserve(&mut self, size: u64, path: &[u8]) -> Result<u64, TreeError> {
        let offset = self.end;
        let end = offset
            .checked_add(size)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .filter(|&end| end <= MAX_LENGTH)
            .ok_or_else(|| TreeError::TooLarge {
                path: show(path),
                limit: MAX_LENGTH,
            })?;
        self.storage.extend(self.end, end)?;
        self.end = end;
        Ok(offset)
    }

    /// As [`reserve`](Self::reserve), for a file whose first bytes are shown from `source`, a multiple
    /// of the page size. Both offsets have the same place in a huge page, so the file can be mapped
    /// in huge pages. The base's bytes before the file fill the space in front of it; no inode refers
    /// to them there.
    pub fn reserve_shown(&mut self, size: u64, source: u64, path: &[u8]) -> Result<u64, TreeError> {
        let mut lead = source.wrapping_sub(self.end) % HUGE_PAGE_SIZE;
        if lead < source % HUGE_PAGE_SIZE {
            // The file's first bytes are in a huge page too.
            lead += HUGE_PAGE_SIZE;
        }
        if lead > source {
            return self.reserve(size, path);
        }
        let start = self.reserve(size.saturating_add(lead), path)?;
        self.show(start, source - lead, lead);
        Ok(start + lead)
    }

    /// Copies exactly `size` bytes of `reader`. Pages of zeros stay holes. `Ok(None)`: the reader
    /// ended early.
    pub fn append(
        &mut self,
        reader: &mut dyn Read,
        size: u64,
        source: Source<'_>,
    ) -> Result<Option<u64>, TreeError> {
        let start = self.reserve(size, source.path)?;
        self.copy(reader, start, size, source)
            .map(|whole| whole.then_some(start))
    }

    /// Copies `size` bytes of a file. Its holes are skipped, not read, if it `has_holes`.
    pub fn append_file(
        &mut self,
        file: &mut File,
        size: u64,
        has_holes: bool,
        source: Source<'_>,
    ) -> Result<Option<u64>, TreeError> {
        let start = self.reserve(size, source.path)?;
        let mut at = 0;
        while at < size {
            let piece = match has_holes {
                true => next_data(file, at, size),
                false => Some((0, size)),
            };
            let Some((data, hole)) = piece else { break };
            if !self.append_piece(file, data, start + data, hole - data, source)? {
                return Ok(None);
            }
            at = hole;
        }
        Ok(Some(start))
    }

    /// Copies `length` bytes of a file from its byte `from` to the reserved offset `to`.
    /// `Ok(false)`: the file ended early.
    fn append_piece(
        &mut self,
        file: &mut File,
        from: u64,
        to: u64,
        length: u64,
        source: Source<'_>,
    ) -> Result<bool, TreeError> {
        let Some(place) = self.storage.place(to, length) else {
            file.seek(std::io::SeekFrom::Start(from))
                .map_err(|error| source.error("seek in", error))?;
            return self.copy(file, to, length, source);
        };
        match file.read_exact_at(place, from) {
            Ok(()) => self.count(length).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(source.error("read", error)),
        }
    }

    /// Copies `left` bytes of `reader` to the reserved offset `to`. `Ok(false)`: the reader ended
    /// early.
    pub fn copy(
        &mut self,
        reader: &mut dyn Read,
        mut to: u64,
        mut left: u64,
        source: Source<'_>,
    ) -> Result<bool, TreeError> {
        self.buffer.resize(CHUNK, 0);
        while left > 0 {
            let want = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            let got = fill(reader, &mut self.buffer[..want])
                .map_err(|error| source.error("read", error))?;
            let written = self.storage.write(&self.buffer[..got], to)?;
            self.count(written)?;
            if got < want {
                return Ok(false);
            }
            to += got as u64;
            left -= got as u64;
        }
        Ok(true)
    }

    /// Writes bytes at reserved offsets, from the start of a page on.
    pub fn put(&mut self, bytes: &[u8], to: u64) -> Result<(), TreeError> {
        let written = self.storage.write(bytes, to)?;
        self.count(written)
    }

    /// Writes everything except the file data, seals the file and returns the image.
    pub fn finish(mut self, nodes: &Nodes) -> Result<TreeImage, TreeError> {
        let metadata = Metadata::new(nodes, self.end)?;
        let offset = self.reserve(metadata.bytes.len() as u64, b"/")?;
        // The header has a separate page.
        self.count(metadata.bytes.len() as u64 + PAGE_SIZE)?;
        self.storage.write(&metadata.bytes, offset)?;
        let mut header = Vec::with_capacity(32);
        header.extend(abi::MAGIC);
        header.extend(ABI_VERSION.to_le_bytes());
        header.extend(metadata.inode_count.to_le_bytes());
        header.extend(offset.to_le_bytes());
        header.extend(self.end.to_le_bytes());
        self.storage.write(&header, 0)?;
        self.storage.seal(self.end)?;
        let extents = self.extents;
        let base = self.base.map(|(file, length)| Base {
            file,
            length,
            extents,
        });
        Ok(TreeImage::packed(
            self.storage,
            self.end,
            base,
            metadata.stamps,
        ))
    }
}

/// Read until `buffer` is full or the reader ends.
fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// The next piece of `file` from `at` that is not a hole, cut at `size`. File
/// systems that know no holes report one piece.
pub(super) fn next_data(file: &File, at: u64, size: u64) -> Option<(u64, u64)> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) if data >= size => None,
        Ok(data) => {
            let hole = seek(file, SeekFrom::Hole(data)).ok();
            let hole = hole.filter(|&hole| hole > data);
            Some((data, hole.unwrap_or(size).min(size)))
        }
        // Only a hole follows.
        Err(Errno::NXIO) => None,
        Err(_) => Some((at, size)),
    }
}

/// Inodes, directory entries, names and symbolic links, in the encoding of the image.
struct Metadata {
    bytes: Vec<u8>,
    inode_count: u32,
    /// Stamps of regular files by number of the inode, in that order.
    stamps: Vec<(u32, Stamp)>,
}

/// The inodes reachable from the root, numbered; each directory comes before its entries.
struct Order {
    ids: Vec<NodeId>,
    /// Length of `ids`, at most [`MAX_INODES`](crate::MAX_INODES).
    count: u32,
    numbers: HashMap<NodeId, u32>,
    links: Vec<u32>,
}

impl Order {
    fn new(nodes: &Nodes) -> Self {
        let mut order = Self {
            ids: vec![ROOT],
            count: 1,
            numbers: HashMap::from([(ROOT, 0)]),
            links: vec![2],
        };
        let mut next = 0;
        while let Some(&id) = order.ids.get(next) {
            for &child in nodes.entries(id).into_iter().flat_map(|e| e.values()) {
                let directory = nodes.entries(child).is_some();
                if directory {
                    order.links[next] += 1;
                }
                let number = *order.numbers.entry(child).or_insert(order.count);
                if number == order.count {
                    order.ids.push(child);
                    order.count += 1;
                    order.links.push(if directory { 2 } else { 1 });
                } else {
                    order.links[number as usize] += 1;
                }
            }
            next += 1;
        }
        order
    }
}

impl Metadata {
    /// Lays out everything from file offset `base`: the inode array, then for each inode its
    /// entries and names, or its link target.
    fn new(nodes: &Nodes, base: u64) -> Result<Self, TreeError> {
        let order = Order::new(nodes);
        let inodes_length = order.ids.len() * size_of::<abi::TreeInode>();
        let mut bytes = vec![0; inodes_length];
        let mut inodes = Vec::with_capacity(inodes_length);
        let mut stamps = Vec::new();
        for ((number, &id), &nlink) in (0..).zip(&order.ids).zip(&order.links) {
            let node = nodes.get(id);
            let (format, rdev, parent, offset, size) = match &node.content {
                Content::Directory { parent, entries } => {
                    bytes.resize(bytes.len().next_multiple_of(8), 0);
                    let at = base + bytes.len() as u64;
                    write_entries(&mut bytes, base, entries, &order.numbers)?;
                    let parent = order.numbers.get(parent).copied().unwrap_or(0);
                    (libc::S_IFDIR, 0, parent, at, entries.len() as u64)
                }
                Content::File {
                    offset,
                    size,
                    stamp,
                } => {
                    stamps.extend(stamp.map(|stamp| (number, stamp)));
                    (libc::S_IFREG, 0, 0, *offset, *size)
                }
                Content::Symlink { target } => {
                    let at = base + bytes.len() as u64;
                    bytes.extend(target);
                    (libc::S_IFLNK, 0, 0, at, target.len() as u64)
                }
                Content::Special { format, rdev } => (*format, *rdev, 0, 0, 0),
            };
            let attributes = node.attributes;
            inodes.extend((format | attributes.permissions & 0o7777).to_le_bytes());
            inodes.extend(nlink.to_le_bytes());
            inodes.extend(attributes.uid.to_le_bytes());
            inodes.extend(attributes.gid.to_le_bytes());
            inodes.extend(rdev.to_le_bytes());
            inodes.extend(attributes.mtime_s.to_le_bytes());
            inodes.extend(attributes.mtime_ns.to_le_bytes());
            inodes.extend(parent.to_le_bytes());
            inodes.extend(offset.to_le_bytes());
            inodes.extend(size.to_le_bytes());
        }
        bytes[..inodes_length].copy_from_slice(&inodes);
        Ok(Self {
            bytes,
            inode_count: order.count,
            stamps,
        })
    }
}

/// The entries of one directory, then their names.
fn write_entries(
    bytes: &mut Vec<u8>,
    base: u64,
    entries: &std::collections::BTreeMap<Box<[u8]>, NodeId>,
    numbers: &HashMap<NodeId, u32>,
) -> Result<(), TreeError> {
    let table = entries.len() * size_of::<abi::TreeEntry>();
    let mut name_offset = base + (bytes.len() + table) as u64;
    for (name, id) in entries {
        bytes.extend(numbers.get(id).copied().unwrap_or(0).to_le_bytes());
        let length = u32::try_from(name.len()).map_err(|_| TreeError::BadPath {
            path: show(name),
            reason: NAME_TOO_LONG,
        })?;
        bytes.extend(length.to_le_bytes());
        bytes.extend(name_offset.to_le_bytes());
        name_offset += name.len() as u64;
    }
    for name in entries.keys() {
        bytes.extend(name.iter());
    }
    Ok(())
}
