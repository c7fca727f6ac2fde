//! Storage for the bytes of an image: a memory file, or memory of this process.

use crate::error::TreeError;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};
use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4 << 10;
const HUGE_PAGE: usize = 2 << 20;
const _: () = assert!(PAGE as u64 == PAGE_SIZE && HUGE_PAGE as u64 == HUGE_PAGE_SIZE);

/// The storage of an image.
#[derive(Debug)]
pub(super) enum Storage {
    /// A memory file, which can be passed to other processes. Pages that were not written are
    /// holes.
    File(File),
    /// Memory of this process.
    Memory(Memory),
}

/// Memory that starts at a huge-page boundary and is in huge pages, if the host has them. Bytes
/// that were not written are zeros.
#[derive(Debug)]
pub(super) struct Memory {
    map: MmapMut,
    /// Offset of the first huge page in the mapping.
    start: usize,
}

impl Memory {
    /// Most bytes of an image in memory: 64 MiB.
    pub const CAPACITY: usize = 64 << 20;

    fn new() -> io::Result<Self> {
        let length = Self::CAPACITY + HUGE_PAGE;
        let map = MmapOptions::new()
            .len(length)
            .no_reserve_swap()
            .map_anon()?;
        // Without huge pages the image is only slower.
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        Ok(Self { map, start })
    }

    /// The first `length` bytes, in whole huge pages.
    pub fn bytes(&self, length: u64) -> &[u8] {
        let length = usize::try_from(length).map_or(usize::MAX, |n| n.next_multiple_of(HUGE_PAGE));
        let all = self.map.get(self.start..).unwrap_or(&[]);
        &all[..length.min(Self::CAPACITY).min(all.len())]
    }

    /// The `length` bytes at offset `at`.
    fn part(&mut self, at: u64, length: usize) -> io::Result<&mut [u8]> {
        let start = usize::try_from(at)
            .ok()
            .and_then(|at| at.checked_add(self.start));
        let end = start.and_then(|start| start.checked_add(length));
        let range = start.zip(end).map(|(start, end)| start..end);
        let part = range.and_then(|range| self.map.get_mut(range));
        part.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl Storage {
    /// An empty memory file.
    pub fn file() -> Result<Self, TreeError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = memfd_create("hartline-tree", flags).map_err(io::Error::from);
        let file = made.map_err(TreeError::image("create"))?;
        Ok(Self::File(file.into()))
    }

    /// Empty memory of this process.
    pub fn memory() -> Result<Self, TreeError> {
        let memory = Memory::new().map_err(TreeError::image("create"))?;
        Ok(Self::Memory(memory))
    }

    /// Makes room up to `end`, where `used` bytes are in use. Memory that is too small for `end`
    /// bytes becomes a file. A file grows when it is written, and at the [end](Self::seal).
    pub fn extend(&mut self, used: u64, end: u64) -> Result<(), TreeError> {
        if end > Memory::CAPACITY as u64 {
            self.become_file(used)?;
        }
        Ok(())
    }

    /// Moves the first `used` bytes, which are whole pages, to a memory file, if the image is still
    /// in memory.
    pub fn become_file(&mut self, used: u64) -> Result<(), TreeError> {
        let Self::Memory(memory) = self else {
            return Ok(());
        };
        let file = Self::file()?;
        if let Self::File(file) = &file {
            file.set_len(used).map_err(TreeError::image("extend"))?;
        }
        let mut file = file;
        let bytes = memory.bytes(used);
        let used = usize::try_from(used).map_or(bytes.len(), |used| used.min(bytes.len()));
        file.write(&bytes[..used], 0)?;
        *self = file;
        Ok(())
    }

    /// Writes `data` at `to`, where there is room. In a file, pages of zeros stay holes. Result:
    /// the number of bytes written.
    pub fn write(&mut self, data: &[u8], to: u64) -> Result<u64, TreeError> {
        match self {
            Self::File(file) => write_pages(file, data, to),
            Self::Memory(memory) => memory.part(to, data.len()).map(|part| {
                part.copy_from_slice(data);
                data.len() as u64
            }),
        }
        .map_err(TreeError::image("write"))
    }

    /// The memory for `length` bytes at offset `at`, if the image is in memory.
    pub fn place(&mut self, at: u64, length: u64) -> Option<&mut [u8]> {
        match self {
            Self::File(_) => None,
            Self::Memory(memory) => memory.part(at, usize::try_from(length).ok()?).ok(),
        }
    }

    /// Ends writing: a memory file gets the length `end`, and is sealed against every change.
    pub fn seal(&self, end: u64) -> Result<(), TreeError> {
        let Self::File(file) = self else {
            return Ok(());
        };
        file.set_len(end).map_err(TreeError::image("extend"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        let sealed = fcntl_add_seals(file, seals).map_err(io::Error::from);
        sealed.map_err(TreeError::image("seal"))
    }

    /// Fills `bytes` from offset `at`.
    pub fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let memory = match self {
            Self::File(file) => return file.read_exact_at(bytes, at),
            Self::Memory(memory) => memory.bytes(Memory::CAPACITY as u64),
        };
        let start = usize::try_from(at).ok();
        let part = start.and_then(|start| memory.get(start..start.checked_add(bytes.len())?));
        bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Writes `data` except for page-sized pieces of zeros. Result: the number of bytes written.
pub(super) fn write_pages(file: &File, data: &[u8], to: u64) -> io::Result<u64> {
    let mut written = 0;
    let is_zero = |at: usize| {
        let page = &data[at..data.len().min(at + PAGE)];
        page.iter().all(|&byte| byte == 0)
    };
    let mut at = 0;
    while at < data.len() {
        let (start, hole) = (at, is_zero(at));
        at += PAGE;
        while at < data.len() && is_zero(at) == hole {
            at += PAGE;
        }
        if !hole {
            let end = data.len().min(at);
            file.write_all_at(&data[start..end], to + start as u64)?;
            written += (end - start) as u64;
        }
    }
    Ok(written)
}
