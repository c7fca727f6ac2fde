//! The runtime's heap, which grows by chunks of private RAM.

use crate::convert::to_usize;
use crate::mm::SharedFrames;
use core::alloc::Layout;
use core::sync::atomic::{AtomicBool, Ordering};
use hartline_abi::layout::HUGE_PAGE_SIZE;
use spin::Once;
use talc::TalcLock;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

/// The frame allocator of this VM.
static FRAMES: Once<SharedFrames> = Once::new();

/// An allocation failed because RAM is used up.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Bytes for the allocator's metadata in a fresh chunk, besides the allocation.
const OVERHEAD: u64 = 64 << 10;

/// Sets the frame allocator; the heap works from then on.
pub fn set_frames(frames: SharedFrames) -> &'static SharedFrames {
    FRAMES.call_once(|| frames)
}

/// Whether an allocation has failed for lack of RAM.
#[must_use]
pub fn is_exhausted() -> bool {
    EXHAUSTED.load(Ordering::Relaxed)
}

/// The memory source of the heap.
#[derive(Debug)]
pub struct RamSource;

// SAFETY: it allocates nothing on the heap, and accesses only the `Talc` that it receives.
unsafe impl Source for RamSource {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let wanted = layout.size() as u64 + layout.align() as u64 + OVERHEAD;
        let count = u32::try_from(wanted.div_ceil(HUGE_PAGE_SIZE)).map_err(|_| ())?;
        let memory = FRAMES.get().and_then(|frames| {
            let mut frames = frames.lock();
            let offset = frames.allocate_run(count)?;
            Some(frames.ram().pointer(offset))
        });
        let Some(memory) = memory else {
            EXHAUSTED.store(true, Ordering::Relaxed);
            return Err(());
        };
        let size = to_usize(u64::from(count) * HUGE_PAGE_SIZE);
        // SAFETY: the chunks have just been allocated and are never freed.
        unsafe { talc.claim(memory, size) }.map(|_| ()).ok_or(())
    }
}

/// The type of the global allocator.
pub type Heap = TalcLock<spin::Mutex<()>, RamSource>;

/// The heap, without memory at first.
#[must_use]
pub const fn new() -> Heap {
    TalcLock::new(RamSource)
}
