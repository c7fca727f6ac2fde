//! Physical memory: frames of 4 KiB and 2 MiB from private RAM.
//!
//! RAM is split into chunks of 2 MiB. A chunk is free, partly used by small frames, or full (by
//! small frames, or as one huge frame). RAM starts zeroed, and frames that were never allocated are
//! never touched, so host memory is used only for what the guest needs. A bit per frame tells
//! whether it must be cleared before it is allocated again.

use super::file_pages::{FilePages, FileReader};
use crate::convert::{low_u32, to_usize};
use core::ptr::NonNull;
use hartline_abi::frames;
pub use hartline_abi::frames::Chunk;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};

const FRAMES_PER_CHUNK: u32 = low_u32(frames::FRAMES_PER_CHUNK as u64);
const WORDS: usize = (FRAMES_PER_CHUNK / 64) as usize;
const NIL: u32 = u32::MAX;
/// This fraction of RAM (1/n) is reserved for the runtime's heap: allocations of programs fail
/// before those of the runtime do.
const KEPT_PART: u64 = 32;
/// Most reserved chunks.
const MOST_KEPT: u64 = 8;

/// Private RAM as mapped in the runtime. Offsets are bytes from its start.
#[derive(Debug, Clone, Copy)]
pub struct Ram {
    base: NonNull<u8>,
    length: u64,
}

impl Ram {
    /// # Safety
    /// `base` must point to `length` bytes of readable and writable memory that is never freed. It
    /// may be used only through offsets that [`Frames`] allocated, or that were reserved before.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, length: u64) -> Ram {
        Ram { base, length }
    }

    /// Length, bytes.
    #[must_use]
    pub const fn length(self) -> u64 {
        self.length
    }

    /// Pointer to the byte at `offset`, which must be inside RAM.
    #[must_use]
    #[track_caller]
    pub fn pointer(self, offset: u64) -> *mut u8 {
        assert!(offset < self.length, "RAM offset {offset:#x} out of range");
        self.base.as_ptr().wrapping_add(to_usize(offset))
    }

    /// Offset of `pointer`, a pointer into RAM.
    #[must_use]
    pub fn offset(self, pointer: *const u8) -> u64 {
        (pointer as u64).wrapping_sub(self.base.as_ptr() as u64)
    }
}

// SAFETY: `Ram` is only an address; the contracts of its users cover the accesses.
unsafe impl Send for Ram {}

/// Bytes of [`Chunk`] records that RAM of `length` bytes needs.
#[must_use]
pub const fn chunk_table_size(length: u64) -> u64 {
    length / HUGE_PAGE_SIZE * size_of::<Chunk>() as u64
}

/// Bytes of the counts of owners that RAM of `length` bytes needs.
#[must_use]
pub const fn share_table_size(length: u64) -> u64 {
    length / PAGE_SIZE * size_of::<u16>() as u64
}

/// RAM of this length would have a chunk with the number [`NIL`], bytes.
const CHUNK_LIMIT: u64 = NIL as u64 * HUGE_PAGE_SIZE;

/// Number of the chunk at `offset`, which is below [`CHUNK_LIMIT`].
const fn chunk_of(offset: u64) -> u32 {
    low_u32(offset / HUGE_PAGE_SIZE)
}

/// The frame allocator.
#[derive(Debug)]
pub struct Frames {
    ram: Ram,
    chunks: &'static mut [Chunk],
    /// Number of owners of each frame of 4 KiB, minus one.
    shares: &'static mut [u16],
    /// First chunk that was never used; neither were those above.
    fresh: u32,
    free: u32,
    partial: u32,
    used: u64,
    /// Number of free chunks, including those that were never used.
    free_chunks: u32,
    /// Number of free chunks that are reserved for the runtime's heap.
    kept: u32,
    /// Bytes of `used` that were in use before the first allocation.
    reserved: u64,
    peak: u64,
    /// Whether stores to free frames are detected.
    checks: bool,
    files: FilePages,
}

impl Frames {
    /// Manages all of `ram` except its first `reserved` bytes.
    ///
    /// # Panics
    /// If `chunks` does not have one zeroed record per 2 MiB of RAM, or `shares` not one zero per 4
    /// KiB; if RAM has 2³² − 1 chunks or more; or if it is shorter than `reserved`.
    pub fn new(
        ram: Ram,
        chunks: &'static mut [Chunk],
        shares: &'static mut [u16],
        reserved: u64,
    ) -> Frames {
        assert_eq!(chunks.len() as u64, ram.length / HUGE_PAGE_SIZE);
        assert_eq!(shares.len() as u64, ram.length / PAGE_SIZE);
        assert!(ram.length < CHUNK_LIMIT && reserved <= ram.length);
        let mut frames = Frames {
            ram,
            chunks,
            shares,
            fresh: chunk_of(reserved.next_multiple_of(HUGE_PAGE_SIZE)),
            free: NIL,
            partial: NIL,
            used: reserved,
            free_chunks: 0,
            kept: low_u32((ram.length / HUGE_PAGE_SIZE / KEPT_PART).min(MOST_KEPT)),
            reserved,
            peak: 0,
            checks: false,
            files: FilePages::new(),
        };
        frames.free_chunks = chunk_of(ram.length) - frames.fresh;
        for index in 0..frames.fresh {
            let start = u64::from(index) * HUGE_PAGE_SIZE;
            let length = (reserved - start).min(HUGE_PAGE_SIZE);
            let count = low_u32(length.div_ceil(PAGE_SIZE));
            let chunk = &mut frames.chunks[index as usize];
            for frame in 0..count {
                chunk.used[(frame / 64) as usize] |= 1 << (frame % 64);
            }
            chunk.used_count = count;
            if count != FRAMES_PER_CHUNK {
                frames.push(List::Partial, index);
            }
        }
        frames
    }

    /// Turns the detection of stores to free frames on or off.
    pub fn set_checks(&mut self, checks: bool) {
        self.checks = checks;
    }

    /// Whether stores to free frames are detected.
    pub(super) fn checks(&self) -> bool {
        self.checks
    }

    /// The memory that the offsets refer to.
    #[must_use]
    pub fn ram(&self) -> Ram {
        self.ram
    }

    /// Offset of the [`Chunk`]s in RAM.
    #[must_use]
    pub fn table(&self) -> u64 {
        self.ram.offset(self.chunks.as_ptr().cast())
    }

    /// Copies from files go through this reader from now on, if it has them.
    pub fn set_file_reader(&mut self, reader: &'static dyn FileReader) {
        self.files = FilePages::with(reader);
    }

    /// Copies bytes of a file to `offset`, in frames that the caller has just allocated.
    pub(super) fn copy_file(&mut self, from: &'static [u8], offset: u64) {
        self.files.copy(self.ram, from, offset);
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Peak of allocated bytes, without reserved memory.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Allocates a zeroed frame of 4 KiB; `None` if RAM is used up.
    pub fn allocate_small(&mut self) -> Option<u64> {
        if self.partial == NIL {
            let chunk = self.take_spare()?;
            self.push(List::Partial, chunk);
        }
        let index = self.partial;
        let chunk = &mut self.chunks[index as usize];
        let word = chunk.used.iter().position(|&word| word != u64::MAX)?;
        let bit = chunk.used[word].trailing_ones();
        chunk.used[word] |= 1 << bit;
        chunk.used_count += 1;
        let full = chunk.used_count == FRAMES_PER_CHUNK;
        let dirty = chunk.dirty[word] & 1 << bit != 0;
        chunk.dirty[word] |= 1 << bit;
        if full {
            self.unlink(List::Partial, index);
        }
        let offset =
            u64::from(index) * HUGE_PAGE_SIZE + (word as u64 * 64 + u64::from(bit)) * PAGE_SIZE;
        if dirty {
            self.clear(offset);
        }
        self.account(PAGE_SIZE);
        Some(offset)
    }

    /// Allocates a zeroed frame of 2 MiB; `None` if there is none.
    pub fn allocate_huge(&mut self) -> Option<u64> {
        let index = self.take_spare()?;
        let offset = u64::from(index) * HUGE_PAGE_SIZE;
        for word in 0..WORDS {
            let mut dirty = self.chunks[index as usize].dirty[word];
            while dirty != 0 {
                let frame = word as u64 * 64 + u64::from(dirty.trailing_zeros());
                self.clear(offset + frame * PAGE_SIZE);
                dirty &= dirty - 1;
            }
        }
        self.fill(index);
        Some(offset)
    }

    /// Allocates `count` adjacent chunks for the runtime, not cleared.
    pub fn allocate_run(&mut self, count: u32) -> Option<u64> {
        if count == 1 {
            let index = self.take_free()?;
            self.fill(index);
            return Some(u64::from(index) * HUGE_PAGE_SIZE);
        }
        let first = self.find_run(count)?;
        for index in first..first + count {
            if index < self.fresh {
                self.unlink(List::Free, index);
            }
            self.free_chunks -= 1;
            self.fill(index);
        }
        self.fresh = self.fresh.max(first + count);
        Some(u64::from(first) * HUGE_PAGE_SIZE)
    }

    /// The first run of `count` free chunks, including those never used.
    fn find_run(&self, count: u32) -> Option<u32> {
        let mut length = 0;
        for (index, chunk) in (0..).zip(self.chunks.iter()) {
            if chunk.used_count != 0 {
                length = 0;
                continue;
            }
            length += 1;
            if length == count {
                return Some(index + 1 - count);
            }
        }
        None
    }

    /// Adds an owner to a small frame, which must then be freed once more. There are fewer
    /// processes than a count can hold.
    pub fn share_small(&mut self, offset: u64) {
        self.shares[to_usize(offset / PAGE_SIZE)] += 1;
    }

    /// Adds an owner to each small frame of a huge one.
    pub fn share_huge(&mut self, offset: u64) {
        for owners in self.shares_of_huge(offset) {
            *owners += 1;
        }
    }

    /// Whether a small frame has more than one owner.
    #[must_use]
    pub fn is_small_shared(&self, offset: u64) -> bool {
        self.shares[to_usize(offset / PAGE_SIZE)] != 0
    }

    /// Whether any small frame of a huge one has more than one owner.
    pub fn is_huge_shared(&mut self, offset: u64) -> bool {
        self.shares_of_huge(offset)
            .iter()
            .any(|&owners| owners != 0)
    }

    fn shares_of_huge(&mut self, offset: u64) -> &mut [u16] {
        let first = to_usize(offset / PAGE_SIZE);
        &mut self.shares[first..first + FRAMES_PER_CHUNK as usize]
    }

    /// Frees a small frame that was a page table and is no longer used.
    ///
    /// KVM with shadow paging keeps a shadow copy of each table and traps every store to it, so
    /// clearing the frame for its next use would take 512 emulated stores. A store that is not
    /// aligned like an entry tells KVM that the frame is not a table any more, and KVM drops the
    /// copy at once.
    pub fn free_table(&mut self, offset: u64) {
        // SAFETY: inside the frame, which is not in use.
        unsafe {
            let inside = self.ram.pointer(offset).add(size_of::<u32>());
            inside.cast::<u64>().write_unaligned(0);
        }
        self.free_small(offset);
    }

    /// Removes an owner of a small frame; the last one frees it.
    pub fn free_small(&mut self, offset: u64) {
        let owners = &mut self.shares[to_usize(offset / PAGE_SIZE)];
        if *owners > 0 {
            *owners -= 1;
            return;
        }
        let index = chunk_of(offset);
        let frame = offset % HUGE_PAGE_SIZE / PAGE_SIZE;
        let (word, bit) = (to_usize(frame / 64), 1 << (frame % 64));
        self.poison(offset);
        let chunk = &mut self.chunks[index as usize];
        assert!(chunk.used[word] & bit != 0, "frame {offset:#x} freed twice");
        chunk.used[word] &= !bit;
        chunk.used_count -= 1;
        let count = chunk.used_count;
        self.used -= PAGE_SIZE;
        if count == FRAMES_PER_CHUNK - 1 {
            self.push(List::Partial, index);
        }
        if count == 0 {
            self.unlink(List::Partial, index);
            self.push(List::Free, index);
            self.free_chunks += 1;
        }
    }

    /// Frees a huge frame. It may also be freed as its 512 small frames.
    pub fn free_huge(&mut self, offset: u64) {
        if self.is_huge_shared(offset) {
            for frame in 0..u64::from(FRAMES_PER_CHUNK) {
                self.free_small(offset + frame * PAGE_SIZE);
            }
            return;
        }
        let index = chunk_of(offset);
        for frame in 0..u64::from(FRAMES_PER_CHUNK) {
            self.poison(offset + frame * PAGE_SIZE);
        }
        let chunk = &mut self.chunks[index as usize];
        assert!(
            chunk.used_count == FRAMES_PER_CHUNK,
            "huge frame {offset:#x} freed twice"
        );
        chunk.used = [0; WORDS];
        chunk.used_count = 0;
        self.used -= HUGE_PAGE_SIZE;
        self.push(List::Free, index);
        self.free_chunks += 1;
    }

    /// Takes a free chunk that is not reserved.
    fn take_spare(&mut self) -> Option<u32> {
        match self.free_chunks > self.kept {
            true => self.take_free(),
            false => None,
        }
    }

    fn take_free(&mut self) -> Option<u32> {
        let index = self.free;
        if index != NIL {
            self.unlink(List::Free, index);
        } else if (self.fresh as usize) < self.chunks.len() {
            self.fresh += 1;
        } else {
            return None;
        }
        self.free_chunks -= 1;
        Some(match index {
            NIL => self.fresh - 1,
            index => index,
        })
    }

    /// Marks a whole chunk as used and touched.
    fn fill(&mut self, index: u32) {
        let chunk = &mut self.chunks[index as usize];
        chunk.used = [u64::MAX; WORDS];
        chunk.dirty = [u64::MAX; WORDS];
        chunk.used_count = FRAMES_PER_CHUNK;
        self.account(HUGE_PAGE_SIZE);
    }

    fn account(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used.saturating_sub(self.reserved));
    }

    /// Clears a frame that was used before.
    fn clear(&mut self, offset: u64) {
        self.check_free(offset);
        // SAFETY: inside RAM; the frame is not allocated yet, so nothing else accesses it.
        unsafe { core::ptr::write_bytes(self.ram.pointer(offset), 0, to_usize(PAGE_SIZE)) };
    }

    fn head(&mut self, list: List) -> &mut u32 {
        match list {
            List::Free => &mut self.free,
            List::Partial => &mut self.partial,
        }
    }

    fn push(&mut self, list: List, index: u32) {
        let next = core::mem::replace(self.head(list), index);
        self.chunks[index as usize].next = next;
        self.chunks[index as usize].previous = NIL;
        if next != NIL {
            self.chunks[next as usize].previous = index;
        }
    }

    fn unlink(&mut self, list: List, index: u32) {
        let Chunk { next, previous, .. } = self.chunks[index as usize];
        if next != NIL {
            self.chunks[next as usize].previous = previous;
        }
        if previous == NIL {
            *self.head(list) = next;
        } else {
            self.chunks[previous as usize].next = next;
        }
    }
}

/// A list of chunks.
#[derive(Clone, Copy)]
enum List {
    Free,
    Partial,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};

    /// Allocates RAM of `chunks` chunks in the test process, with `reserved` reserved bytes.
    pub fn test_frames(chunks: u64, reserved: u64) -> Frames {
        let length = chunks * HUGE_PAGE_SIZE;
        let layout = Layout::from_size_align(to_usize(length), to_usize(HUGE_PAGE_SIZE)).unwrap();
        // SAFETY: the layout is not empty; the memory is never given back.
        let ram = unsafe { Ram::new(NonNull::new(alloc_zeroed(layout)).unwrap(), length) };
        let table = vec![Chunk::default(); to_usize(chunks)];
        let shares = vec![0; to_usize(length / PAGE_SIZE)];
        Frames::new(ram, table.leak(), shares.leak(), reserved)
    }

    #[test]
    fn all_frames_are_different_and_zero() {
        let mut frames = test_frames(4, 5 * PAGE_SIZE);
        let ram = frames.ram();
        let mut seen = Vec::new();
        while let Some(frame) = frames.allocate_small() {
            // SAFETY: the frame has just been handed out.
            let bytes = unsafe { core::slice::from_raw_parts_mut(ram.pointer(frame), 4096) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(0xaa);
            seen.push(frame);
        }
        assert_eq!(seen.len(), 4 * 512 - 5);
        assert_eq!(frames.used(), 4 * HUGE_PAGE_SIZE);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4 * 512 - 5);
        assert_eq!(seen[0], 5 * PAGE_SIZE);
        for &frame in &seen {
            frames.free_small(frame);
        }
        assert_eq!(frames.used(), 5 * PAGE_SIZE);
        let huge = frames.allocate_huge().unwrap();
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts(ram.pointer(huge), 2 << 20) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        assert_eq!(frames.peak(), 4 * HUGE_PAGE_SIZE - 5 * PAGE_SIZE);
    }

    #[test]
    fn runs_avoid_what_is_used() {
        let mut frames = test_frames(8, HUGE_PAGE_SIZE);
        let small = frames.allocate_small().unwrap();
        assert_eq!(small, HUGE_PAGE_SIZE);
        assert_eq!(frames.allocate_run(7), None);
        assert_eq!(frames.allocate_run(6), Some(2 * HUGE_PAGE_SIZE));
        assert_eq!(frames.allocate_huge(), None);
        frames.free_huge(3 * HUGE_PAGE_SIZE);
        frames.free_huge(4 * HUGE_PAGE_SIZE);
        assert_eq!(frames.allocate_run(2), Some(3 * HUGE_PAGE_SIZE));
        frames.free_small(small);
        assert_eq!(frames.allocate_run(1), Some(small));
        assert_eq!(frames.allocate_small(), None);
    }

    #[test]
    fn a_huge_frame_comes_back_in_small_ones() {
        let mut frames = test_frames(2, HUGE_PAGE_SIZE);
        let huge = frames.allocate_huge().unwrap();
        for frame in 0..512 {
            frames.free_small(huge + frame * PAGE_SIZE);
        }
        assert_eq!(frames.allocate_huge(), Some(huge));
    }

    #[test]
    fn a_frame_is_free_when_its_last_owner_gives_it_back() {
        let mut frames = test_frames(2, HUGE_PAGE_SIZE);
        let huge = frames.allocate_huge().unwrap();
        frames.share_huge(huge);
        frames.share_small(huge + PAGE_SIZE);
        frames.free_huge(huge);
        assert!(!frames.is_small_shared(huge));
        assert!(frames.is_small_shared(huge + PAGE_SIZE));
        assert!(frames.is_huge_shared(huge));
        frames.free_huge(huge);
        assert_eq!(frames.allocate_huge(), None);
        assert_eq!(frames.used(), HUGE_PAGE_SIZE + PAGE_SIZE);
        frames.free_small(huge + PAGE_SIZE);
        assert_eq!(frames.allocate_huge(), Some(huge));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn double_free_is_caught() {
        let mut frames = test_frames(2, 0);
        let frame = frames.allocate_small().unwrap();
        let _other = frames.allocate_small();
        frames.free_small(frame);
        frames.free_small(frame);
    }
}
