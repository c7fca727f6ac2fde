//! Copies of pages of files, for private mappings.

use super::frames::Ram;
use crate::convert::to_usize;
use core::fmt::Debug;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};

/// Reads files into RAM without an access of this VM to their pages.
pub trait FileReader: Debug + Send + Sync {
    /// Fills `length` bytes at offset `to` of RAM with the bytes at the address `from`, of a file that is
    /// mapped into the VM. Result: whether RAM has them. If not, it may have some of them.
    fn read(&self, from: u64, to: u64, length: u64) -> bool;
}

/// The shortest copy that the reader is worth its exit for, bytes.
const SHORTEST: usize = 8 * to_usize(PAGE_SIZE);
/// Number of times that a part of a file is read by the reader. A program that is started again and again is
/// copied faster from pages that were accessed before; the first accesses to a part take as long as about 30 exits.
const MOST: u8 = 24;
/// Number of counters of parts. Parts with the same counter only affect each other's speed.
const COUNTERS: usize = 512;

/// Copies from files to RAM.
///
/// The first access of the VM to a page of a file is a fault in KVM, which with shadow paging takes longer
/// than to copy it. So the first copies of each 2 MiB of a file are left to the host.
#[derive(Debug)]
pub(super) struct FilePages {
    reader: Option<&'static dyn FileReader>,
    reads: [u8; COUNTERS],
}

impl FilePages {
    /// No reader: all is copied from the mapped files.
    pub const fn new() -> Self {
        Self {
            reader: None,
            reads: [0; COUNTERS],
        }
    }

    /// Copies by this reader.
    pub const fn with(reader: &'static dyn FileReader) -> Self {
        Self {
            reader: Some(reader),
            ..Self::new()
        }
    }

    /// Copies the bytes of a mapped file to `offset` of RAM, which nothing else accesses.
    pub fn copy(&mut self, ram: Ram, from: &'static [u8], offset: u64) {
        if from.len() >= SHORTEST && self.is_read(from, offset) {
            return;
        }
        // SAFETY: the range is in RAM, and only the caller accesses it. The file is not in RAM that can be allocated.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), ram.pointer(offset), from.len());
        }
    }

    /// Whether the reader has filled RAM.
    fn is_read(&mut self, from: &[u8], offset: u64) -> bool {
        let Some(reader) = self.reader else {
            return false;
        };
        let address = from.as_ptr().addr();
        let part = address / to_usize(HUGE_PAGE_SIZE) % COUNTERS;
        if self.reads[part] == MOST {
            return false;
        }
        self.reads[part] += 1;
        reader.read(address as u64, offset, from.len() as u64)
    }
}
