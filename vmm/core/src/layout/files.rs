//! Read-only files in the guest's memory.

use super::{Builder, Error, FileContents, FilePart, FileSlot, GuestFile, Permission};
use crate::platform::{Access, Mapping};
use crate::tree::Base;
use hartline_abi::layout::{FILE_BASE, HUGE_PAGE_SIZE, RAM_GPA};
use std::fs::File;
use std::sync::Arc;

/// Longest file that is copied into RAM, which guarantees 2 MiB pages; longer files stay in the
/// page cache, in a read-only slot.
pub(super) const MAX_COPIED_FILE: u64 = 64 << 20;

impl Builder<'_> {
    /// Maps the files one after another. Result: their addresses.
    pub(super) fn add_files(&mut self, files: &[GuestFile<'_>]) -> Result<Vec<u64>, Error> {
        let mut addresses = Vec::with_capacity(files.len());
        let mut address = FILE_BASE;
        for file in files {
            let mapped = file.length.next_multiple_of(HUGE_PAGE_SIZE);
            match file.base {
                None => {
                    let gpa = match file.contents {
                        FileContents::File(host) if file.length <= MAX_COPIED_FILE => {
                            self.copy_parts(file, host, &[(0, file.length)])?
                        }
                        _ => self.add_contents_slot(file)?,
                    };
                    self.tables
                        .map_huge(address, gpa, mapped, Permission::Read)?;
                }
                Some(base) => self.add_file_over(address, file, base)?,
            }
            addresses.push(address);
            address += mapped;
        }
        Ok(addresses)
    }

    /// Maps a file of which parts are shown from a base file. The base is not copied: all VMs share
    /// its pages in the host's page cache.
    fn add_file_over(
        &mut self,
        address: u64,
        file: &GuestFile<'_>,
        base: &Base,
    ) -> Result<(), Error> {
        let own = own_parts(file.length, base);
        let is_short = own.iter().map(|part| part.1).sum::<u64>() <= MAX_COPIED_FILE;
        let (mut gpa, is_copied) = match file.contents {
            FileContents::File(host) if is_short => (self.copy_parts(file, host, &own)?, true),
            _ => (self.add_contents_slot(file)?, false),
        };
        for (offset, length) in own {
            // Copied parts are contiguous; a file in a slot keeps its offsets.
            let at = if is_copied { gpa } else { gpa + offset };
            self.tables
                .map(address + offset, at, length, Permission::Read)?;
            if is_copied {
                gpa += length;
            }
        }
        if base.extents.is_empty() {
            return Ok(());
        }
        let shown = Mapping::file(file.what, &base.file, base.length)?;
        let shown = self.add_read_only_slot(FilePart::Base, Arc::new(shown));
        for extent in &base.extents {
            self.tables.map_largest(
                address + extent.offset,
                shown + extent.source,
                extent.length,
                Permission::Read,
            )?;
        }
        Ok(())
    }

    /// Copies parts of a file (offset and length) into RAM, one after another. Result:
    /// physical address of the first, aligned to 2 MiB.
    fn copy_parts(
        &mut self,
        file: &GuestFile<'_>,
        host: &File,
        parts: &[(u64, u64)],
    ) -> Result<u64, Error> {
        let length = parts.iter().map(|part| part.1).sum();
        let block = self.take_block(file.what, length)?;
        let mut to = block;
        for &(offset, length) in parts {
            let read = self.ram.read_file(to, host, offset, length);
            read.map_err(|source| Error::File {
                what: file.what,
                source,
            })?;
            to += length;
        }
        Ok(RAM_GPA + block)
    }

    /// Makes a read-only slot of a whole file. Result: its address, aligned to 2 MiB.
    fn add_contents_slot(&mut self, file: &GuestFile<'_>) -> Result<u64, Error> {
        Ok(self.add_read_only_slot(FilePart::Own, file.memory()?))
    }

    fn add_read_only_slot(&mut self, part: FilePart, memory: Arc<Mapping>) -> u64 {
        let gpa = self.slot_next;
        self.file_slots.push(FileSlot { part, gpa });
        self.slot_next += memory.length().next_multiple_of(HUGE_PAGE_SIZE);
        self.add_slot(gpa, memory, Access::ReadOnly);
        gpa
    }
}

impl GuestFile<'_> {
    /// The file as memory, without its base.
    pub(super) fn memory(&self) -> Result<Arc<Mapping>, Error> {
        Ok(match self.contents {
            FileContents::File(host) => Arc::new(Mapping::file(self.what, host, self.length)?),
            FileContents::Memory(memory) => Arc::clone(memory),
        })
    }
}

/// The parts of a file of `length` bytes that its base does not show: offset and length.
fn own_parts(length: u64, base: &Base) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = 0;
    let ends = base.extents.iter().map(|e| (e.offset, e.offset + e.length));
    for (start, end) in ends.chain([(length, length)]) {
        if start > at {
            parts.push((at, start - at));
        }
        at = end;
    }
    parts
}
