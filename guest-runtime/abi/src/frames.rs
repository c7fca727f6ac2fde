//! Which frames of RAM the guest uses. A snapshot leaves out the others.

use crate::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};

/// Frames of 4 KiB in a chunk.
pub const FRAMES_PER_CHUNK: usize = (HUGE_PAGE_SIZE / PAGE_SIZE) as usize;
/// Words of a bitmap of frames.
const WORDS: usize = FRAMES_PER_CHUNK / 64;

/// The state of 2 MiB of RAM; all zeros is a chunk that was never used. RAM has an array of them, with one for each
/// 2 MiB, at an offset that the guest passes with a
/// [checkpoint](crate::call::Operation::Checkpoint).
#[repr(C)]
#[derive(Debug, Clone, Default)]
pub struct Chunk {
    /// A bit for each frame that is in use, from the lowest on.
    pub used: [u64; WORDS],
    /// A bit for each frame that must be cleared before it is used again. Only the guest reads this and what follows.
    pub dirty: [u64; WORDS],
    /// Frames that are in use.
    pub used_count: u32,
    /// Neighbours in the free or partial list.
    pub next: u32,
    /// As `next`.
    pub previous: u32,
    /// Zero.
    pub padding: u32,
}

const _: () = assert!(size_of::<Chunk>() == 144);
