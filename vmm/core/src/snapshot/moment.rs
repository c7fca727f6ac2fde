//! What the guest says of itself when it makes a checkpoint ([`hartline_abi::call::Operation::Checkpoint`]).

use crate::platform::Mapping;
use hartline_abi::frames::Chunk;
use hartline_abi::layout::HUGE_PAGE_SIZE;
use std::mem::offset_of;

const PAGE: usize = 4096;

/// What the guest says at a checkpoint. Nothing of it can be trusted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// `CLOCK_MONOTONIC` of the guest, ns.
    pub monotonic_ns: u64,
    /// The offset in RAM of the [`Chunk`]s, or 0. If it is wrong, the guest finds its own memory empty later.
    pub frames: u64,
}

impl Moment {
    /// Clears the pages that are free in a block of RAM, which starts at `start`.
    pub fn clear_free(self, ram: &Mapping, start: u64, block: &mut [u8]) {
        let chunk = start / HUGE_PAGE_SIZE * size_of::<Chunk>() as u64;
        let mut used = [0; offset_of!(Chunk, dirty)];
        let at = self.frames.checked_add(chunk).filter(|_| self.frames != 0);
        if at.is_none_or(|at| ram.read(at, &mut used).is_err()) {
            return;
        }
        for (number, page) in block.as_chunks_mut::<PAGE>().0.iter_mut().enumerate() {
            if used[number / 8] & 1 << (number % 8) == 0 {
                page.fill(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RAM of two blocks, with the state of their frames at offset 4096: frames 1 and 65 of the second block are in use.
    fn ram() -> Mapping {
        let ram = Mapping::anonymous("RAM", 2 * HUGE_PAGE_SIZE).unwrap();
        let mut second = Chunk::default();
        (second.used[0], second.used[1]) = (2, 2);
        let at = 4096 + size_of::<Chunk>() as u64;
        for (word, used) in (0..).zip(second.used) {
            ram.write_value(at + word * 8, used).unwrap();
        }
        ram
    }

    /// The pages of the second block that are kept.
    fn kept(frames: u64) -> Vec<usize> {
        let mut block = vec![1; 512 * PAGE];
        let moment = Moment {
            monotonic_ns: 0,
            frames,
        };
        moment.clear_free(&ram(), HUGE_PAGE_SIZE, &mut block);
        let pages = block.as_chunks::<PAGE>().0.iter().enumerate();
        pages
            .filter(|(_, page)| page.iter().all(|&byte| byte == 1))
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn free_frames_are_cleared() {
        assert_eq!(kept(4096), [1, 65]);
    }

    #[test]
    fn a_false_offset_clears_nothing() {
        for frames in [
            0,
            u64::MAX,
            u64::MAX - 100,
            2 * HUGE_PAGE_SIZE,
            2 * HUGE_PAGE_SIZE - 144,
        ] {
            assert_eq!(kept(frames).len(), 512, "{frames:#x}");
        }
    }
}
