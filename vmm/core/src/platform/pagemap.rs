//! Which pages of the host's memory this process has a private copy of (`PAGEMAP_SCAN` of Linux 6.7,
//! Documentation/admin-guide/mm/pagemap.rst).

use super::{Error, Mapping};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
/// The page shows a file: nothing was written to it.
const PAGE_IS_FILE: u64 = 1 << 2;
/// The page is in memory.
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// The page is swapped out.
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// The page shows the host's page of zeros: nothing was written to it.
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// Ranges that one request returns.
const RANGES: usize = 512;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The pages of this process.
#[derive(Debug)]
pub(crate) struct Pagemap(Arc<File>);

/// Opened while there is a `/proc`.
static KEPT: OnceLock<Arc<File>> = OnceLock::new();

/// Opens `/proc/self/pagemap` for VMs of this process that are [reset](crate::exports) later, when it sees no `/proc` any
/// more.
///
/// # Errors
/// [`Error::Request`]: there is no `/proc`, or it may not be read.
pub fn keep_pagemap() -> Result<(), Error> {
    let file = open()?;
    // Once is enough.
    let _ = KEPT.set(file);
    Ok(())
}

fn open() -> Result<Arc<File>, Error> {
    let file = File::open("/proc/self/pagemap");
    file.map(Arc::new).map_err(|source| Error::Request {
        request: "/proc/self/pagemap",
        source,
    })
}

impl Pagemap {
    /// Opens the pages of this process, or takes those that are [kept](keep_pagemap).
    ///
    /// # Errors
    /// [`Error::Request`]: there is no `/proc`, or it may not be read.
    pub fn open() -> Result<Self, Error> {
        match KEPT.get() {
            Some(kept) => Ok(Self(Arc::clone(kept))),
            None => open().map(Self),
        }
    }

    /// Ranges of offsets in `memory`, in ascending order: the pages that were written since they were mapped.
    ///
    /// # Errors
    /// [`Error::Request`]: Linux before 6.7 cannot tell.
    pub fn written(&self, memory: &Mapping) -> Result<Vec<Range<u64>>, Error> {
        let base = memory.base().addr().get() as u64;
        let end = base + memory.length();
        let mut regions = [Region::default(); RANGES];
        let mut found = Vec::new();
        let mut start = base;
        while start < end {
            let mut argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                start,
                end,
                vec: regions.as_mut_ptr().expose_provenance() as u64,
                vec_len: RANGES as u64,
                category_inverted: PAGE_IS_FILE | PAGE_IS_PFNZERO,
                category_mask: PAGE_IS_FILE | PAGE_IS_PFNZERO,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_PRESENT,
                ..Default::default()
            };
            let count = self.scan(&mut argument, &mut regions)?;
            let ranges = regions[..count].iter();
            found.extend(ranges.map(|region| region.start - base..region.end - base));
            // The kernel has walked further in every case but an error.
            start = argument.walk_end.max(start + 1);
        }
        Ok(found)
    }

    fn scan(&self, argument: &mut ScanArgument, _: &mut [Region; RANGES]) -> Result<usize, Error> {
        // SAFETY: the kernel writes the argument, and as many regions as `vec_len` says to the array that
        // the caller borrows mutably. The descriptor is open.
        let count = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN, argument) };
        usize::try_from(count).map_err(|_| Error::Request {
            request: "PAGEMAP_SCAN (Linux 6.7)",
            source: io::Error::last_os_error(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::memory_file;

    #[test]
    fn only_written_pages_are_found() {
        const PAGE: u64 = 4096;
        let bytes = vec![7; 4 << 20];
        let file = memory_file(c"test", &bytes).unwrap();
        let memory = Mapping::anonymous("test", 8 << 20).unwrap();
        memory.overlay("test", 0, (&file, 0), 4 << 20).unwrap();
        memory.replace("test", (4 << 20)..(8 << 20)).unwrap();
        let pages = Pagemap::open().unwrap();
        assert_eq!(pages.written(&memory).unwrap(), [] as [Range<u64>; 0]);
        let mut byte = [0];
        memory.read(PAGE, &mut byte).unwrap();
        memory.read((6 << 20) + PAGE, &mut byte).unwrap();
        assert_eq!(pages.written(&memory).unwrap(), [] as [Range<u64>; 0]);
        for at in [2 * PAGE, 3 * PAGE + 5, (4 << 20) + PAGE] {
            memory.write(at, &[1]).unwrap();
        }
        let expected = [2 * PAGE..4 * PAGE, (4 << 20) + PAGE..(4 << 20) + 2 * PAGE];
        assert_eq!(pages.written(&memory).unwrap(), expected);
        // More ranges than one request returns.
        for page in (0..1024).step_by(2) {
            memory.write(page * PAGE, &[1]).unwrap();
        }
        let found = pages.written(&memory).unwrap();
        // Page 3, from before, connects two of them.
        assert_eq!(found.len(), 511 + 1);
    }
}
