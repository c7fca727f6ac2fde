//! Inspection of an address space that need not be loaded.

use super::page_table::{Window, pages_in};
use super::space::AddressSpace;
use super::user_slice::UserSlice;
use crate::convert::to_usize;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, USER_END};

impl AddressSpace {
    /// Returns the bytes of `range`, up to the first page that was never touched.
    #[must_use]
    pub fn peek(&self, range: Range<u64>) -> Vec<u8> {
        /// Upper limit of the result, bytes; callers do not ask for more.
        const MOST: u64 = 1 << 20;
        let end = range
            .end
            .min(range.start.saturating_add(MOST))
            .min(USER_END);
        let ram = self.frames().lock().ram();
        let mut bytes = Vec::new();
        let mut at = range.start;
        while at < end {
            let Some(offset) = self.ram_offset(at) else {
                break;
            };
            let length = (PAGE_SIZE - at % PAGE_SIZE).min(end - at);
            // SAFETY: inside the frame of a mapped page, which stays mapped while the address space
            // is borrowed.
            let part = unsafe { UserSlice::new(ram.pointer(offset), to_usize(length)) };
            part.append_to(&mut bytes);
            at += length;
        }
        bytes
    }

    /// Returns the memory of resident pages in `range`, bytes.
    #[must_use]
    pub fn resident(&self, range: Range<u64>) -> u64 {
        let mut bytes = 0;
        for (part, window) in self.table.windows(range) {
            bytes += match window {
                Window::Empty => 0,
                Window::Huge(_) => part.end - part.start,
                Window::Table(table) => {
                    let pages = pages_in(part);
                    let used = pages.filter(|&page| self.table.small(table, page).is_some());
                    used.count() as u64 * PAGE_SIZE
                }
            };
        }
        bytes
    }

    /// Removes all pages, which get their initial contents again. Returns whether there were any.
    pub fn empty(&mut self) -> bool {
        let had = self.all_resident() > 0;
        let ranges: Vec<Range<u64>> = (self.vmas().iter())
            .map(|(start, vma)| start..vma.end)
            .collect();
        for range in ranges {
            // This needs memory only to split a huge page that two ranges share. Such a page stays.
            let _ = self.release(range);
        }
        had
    }

    /// Returns the memory of all resident pages, bytes.
    #[must_use]
    pub fn all_resident(&self) -> u64 {
        let mut bytes = 0;
        let mut counted = 0;
        // Ranges share tables: each 2 MiB window is counted once.
        for (start, vma) in self.vmas().iter() {
            let first = (start & !(HUGE_PAGE_SIZE - 1)).max(counted);
            let end = vma.end.next_multiple_of(HUGE_PAGE_SIZE).min(USER_END);
            if first < end {
                bytes += self.resident(first..end);
                counted = end;
            }
        }
        bytes
    }
}
