//! Reading the root file system tree into the guest's RAM, for the guest.
//!
//! The guest could copy the bytes itself, from the slot that shows the tree. But the first access to each of
//! its pages of 4 KiB is a page fault of KVM, since the host's page cache has no larger pages: with shadow paging
//! it takes 15 to 28 µs, and reading the page takes less than 1 µs.

use crate::platform::Mapping;
use crate::tree::TreeImage;
use hartline_abi::layout::{HUGE_PAGE_SIZE, RAM_GPA};
use std::fs::File;
use std::sync::Arc;

/// A Linux error number.
type Errno = i32;

/// Reads parts of a tree.
#[derive(Debug)]
pub(crate) struct TreeReads {
    tree: Arc<TreeImage>,
    /// The tree's address in the guest.
    address: u64,
}

impl TreeReads {
    /// For a tree in a file of the host, which is at `address` in the guest.
    pub fn new(tree: Arc<TreeImage>, address: u64) -> Self {
        Self { tree, address }
    }

    /// Fills `length` bytes of RAM at the guest-physical address `to` with the bytes at the address `from` of
    /// the guest.
    ///
    /// # Errors
    /// `EINVAL`: the ranges are not inside the tree and RAM, or longer than a huge page. `ENOENT`: the tree is
    /// in no file. `EIO`: the host cannot read its file.
    pub fn read(&self, ram: &Mapping, from: u64, to: u64, length: u64) -> Result<(), Errno> {
        let own = self.tree.file().map_err(|_| libc::ENOENT)?;
        let start = from.checked_sub(self.address).ok_or(libc::EINVAL)?;
        let end = start.checked_add(length).ok_or(libc::EINVAL)?;
        let to = to.checked_sub(RAM_GPA).ok_or(libc::EINVAL)?;
        let ends_in_ram = to
            .checked_add(length)
            .is_some_and(|end| end <= ram.length());
        if length > HUGE_PAGE_SIZE || end > self.tree.length() || !ends_in_ram {
            return Err(libc::EINVAL);
        }
        let mut at = start;
        while at < end {
            let (file, offset, part_end) = self.part(own, at);
            let length = part_end.min(end) - at;
            let read = ram.read_file(to + (at - start), file, offset, length);
            read.map_err(|_| libc::EIO)?;
            at += length;
        }
        Ok(())
    }

    /// The file that has the byte at offset `at` of the tree, its offset there, and the end of this part of the tree.
    fn part<'a>(&'a self, own: &'a File, at: u64) -> (&'a File, u64, u64) {
        let Some(base) = self.tree.base() else {
            return (own, at, u64::MAX);
        };
        let next = base.extents.partition_point(|extent| extent.offset <= at);
        let shown = next.checked_sub(1).map(|index| &base.extents[index]);
        match shown.filter(|extent| at - extent.offset < extent.length) {
            Some(extent) => {
                let inside = at - extent.offset;
                let end = extent.offset + extent.length;
                (&base.file, extent.source + inside, end)
            }
            None => {
                let end = base
                    .extents
                    .get(next)
                    .map_or(u64::MAX, |extent| extent.offset);
                (own, at, end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Base, Extent};
    use hartline_abi::layout::PAGE_SIZE;
    use std::io::Write;
    use std::os::fd::FromRawFd;

    const ADDRESS: u64 = 6 << 40;
    /// A page, as a length in memory.
    const PAGE: usize = 4096;

    /// A file in memory with these bytes.
    fn file(bytes: &[u8]) -> File {
        // SAFETY: the name is a string; the call makes a descriptor.
        let descriptor = unsafe { libc::memfd_create(c"tree".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor is new and has no other owner.
        let mut file = unsafe { File::from_raw_fd(descriptor) };
        file.write_all(bytes).unwrap();
        file
    }

    /// Pages with these bytes each.
    fn pages(bytes: &[u8]) -> Vec<u8> {
        let page = |&byte: &u8| std::iter::repeat_n(byte, PAGE);
        bytes.iter().flat_map(page).collect()
    }

    /// A tree of six pages, of which pages 1, 2 and 4 are shown from a base.
    fn reads() -> TreeReads {
        let mut own = pages(b"a--d-f");
        // The number of inodes.
        own[..64].fill(0);
        let base = file(&pages(b"EBC"));
        let extent = |offset, source, length| Extent {
            offset: offset * PAGE_SIZE,
            source: source * PAGE_SIZE,
            length: length * PAGE_SIZE,
        };
        let base = Base {
            file: base,
            length: 3 * PAGE_SIZE,
            extents: vec![extent(1, 1, 2), extent(4, 0, 1)],
        };
        let tree = TreeImage::stored(file(&own), Some(base), None).unwrap();
        TreeReads::new(Arc::new(tree), ADDRESS)
    }

    #[test]
    fn own_and_shown_parts_are_read() {
        let ram = Mapping::anonymous("RAM", HUGE_PAGE_SIZE).unwrap();
        let reads = reads();
        reads
            .read(&ram, ADDRESS + 100, RAM_GPA + 8, 6 * PAGE_SIZE - 100)
            .unwrap();
        let mut seen = vec![0; 6 * PAGE - 100];
        ram.read(8, &mut seen).unwrap();
        let mut expected = pages(b"aBCdEf");
        expected.drain(..100);
        assert!(seen == expected);
        let mut behind = [1; 8];
        ram.read(8 + seen.len() as u64, &mut behind).unwrap();
        assert_eq!(behind, [0; 8]);
    }

    #[test]
    fn ranges_are_checked() {
        let ram = Mapping::anonymous("RAM", 2 * HUGE_PAGE_SIZE).unwrap();
        let reads = reads();
        let tree = 6 * PAGE_SIZE;
        for (from, to, length) in [
            (ADDRESS - 1, RAM_GPA, 2),
            (ADDRESS + tree - 1, RAM_GPA, 2),
            (ADDRESS, RAM_GPA - 1, 1),
            (ADDRESS, RAM_GPA + 2 * HUGE_PAGE_SIZE - 1, 2),
            (ADDRESS, RAM_GPA, HUGE_PAGE_SIZE + 1),
            (u64::MAX, RAM_GPA, 1),
            (ADDRESS + 1, RAM_GPA, u64::MAX),
            (ADDRESS, u64::MAX, 1),
        ] {
            assert_eq!(
                reads.read(&ram, from, to, length),
                Err(libc::EINVAL),
                "{from:#x} {to:#x} {length}"
            );
        }
        assert_eq!(reads.read(&ram, ADDRESS + tree, RAM_GPA, 0), Ok(()));
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let ram = Mapping::anonymous("RAM", HUGE_PAGE_SIZE).unwrap();
        let reads = reads();
        reads.tree.file().unwrap().set_len(5 * PAGE_SIZE).unwrap();
        let read = reads.read(&ram, ADDRESS, RAM_GPA, 6 * PAGE_SIZE);
        assert_eq!(read, Err(libc::EIO));
    }
}
