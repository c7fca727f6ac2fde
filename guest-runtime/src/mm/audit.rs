//! Consistency checks (`--check`): page tables against the map of ranges, and stores to free
//! frames.

use super::AddressSpace;
use super::frames::Frames;
use super::page_table::{Leaf, Window, pages_in};
use crate::convert::to_usize;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, USER_END};

/// The pattern of free frames.
const FREE: u64 = 0xf4ee_f4ee_f4ee_f4ee;

impl AddressSpace {
    /// Compares the page tables with the map of ranges.
    ///
    /// # Panics
    /// If a page is in no range, if the page allows the program more than its range does, or if the
    /// program may store to a frame that has other owners.
    pub(crate) fn audit(&self) {
        let frames = self.frames;
        let mut frames = frames.lock();
        for (part, window) in self.table.windows(0..USER_END) {
            match window {
                Window::Empty => {}
                Window::Huge(leaf) => {
                    let is_shared = frames.is_huge_shared(leaf.frame());
                    self.audit_page(part.start, HUGE_PAGE_SIZE, leaf, is_shared);
                }
                Window::Table(table) => {
                    for page in pages_in(part) {
                        if let Some(leaf) = self.table.small(table, page) {
                            let is_shared = frames.is_small_shared(leaf.frame());
                            self.audit_page(page, PAGE_SIZE, leaf, is_shared);
                        }
                    }
                }
            }
        }
    }

    fn audit_page(&self, page: u64, size: u64, leaf: Leaf, is_shared: bool) {
        let Some((_, vma)) = self.vmas.find(page) else {
            panic!("check: the page {page:#x} is in no mapped range");
        };
        assert!(
            page + size <= vma.end,
            "check: the page {page:#x} of {size:#x} bytes leaves its range"
        );
        let protection = vma.protection;
        assert!(
            !leaf.is_present() || protection.readable(),
            "check: the page {page:#x} can be loaded from, its range {protection:?}"
        );
        assert!(
            !leaf.is_writable() || protection.writable(),
            "check: the page {page:#x} can be stored to, its range {protection:?}"
        );
        assert!(
            !leaf.is_writable() || !is_shared || vma.shared,
            "check: the page {page:#x} can be stored to, and others have its frame"
        );
    }
}

impl Frames {
    /// Fills a frame of 4 KiB that has just been freed.
    pub(super) fn poison(&mut self, offset: u64) {
        if self.checks() {
            for word in self.words(offset) {
                // SAFETY: inside the frame, which is free.
                unsafe { word.write_volatile(FREE) };
            }
        }
    }

    /// Checks a free frame before it is used.
    ///
    /// # Panics
    /// If the frame was stored to while it was free.
    pub(super) fn check_free(&self, offset: u64) {
        if !self.checks() {
            return;
        }
        for (index, word) in self.words(offset).enumerate() {
            // SAFETY: inside the frame, which is free.
            let found = unsafe { word.read_volatile() };
            assert!(
                found == FREE,
                "check: {found:#x} was stored to the free frame {offset:#x}, byte {}",
                index * 8
            );
        }
    }

    fn words(&self, offset: u64) -> impl Iterator<Item = *mut u64> + use<> {
        let start = self.ram().pointer(offset).cast::<u64>();
        (0..to_usize(PAGE_SIZE / 8)).map(move |index| start.wrapping_add(index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::tests::test_frames;
    use super::*;

    fn freed() -> (Frames, u64) {
        let mut frames = test_frames(2, 0);
        frames.set_checks(true);
        let frame = frames.allocate_small().unwrap();
        frames.free_small(frame);
        (frames, frame)
    }

    #[test]
    fn a_frame_that_was_left_alone_is_handed_out_zeroed() {
        let (mut frames, frame) = freed();
        assert_eq!(frames.allocate_small(), Some(frame));
        // SAFETY: the frame was handed out.
        assert!(frames.words(frame).all(|word| unsafe { word.read() } == 0));
        frames.free_small(frame);
        assert!(frames.allocate_huge().is_some());
    }

    #[test]
    #[should_panic(expected = "0x7 was stored to the free frame")]
    fn a_store_to_a_free_frame_is_found() {
        let (mut frames, frame) = freed();
        let word = frames.ram().pointer(frame + 64).cast::<u64>();
        // SAFETY: inside RAM of the test.
        unsafe { word.write(7) };
        frames.allocate_small();
    }
}
