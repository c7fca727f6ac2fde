//! Which code is interpreted often: counted by the runtime, read by the VMM, which
//! translates what is worth it while the program runs. No exit is involved.
//!
//! The table is direct-mapped by [`slot`]: a place that is new takes a slot over
//! once it has come up as often as the one that was there. So counts are estimates,
//! and the VMM believes none of them: the worst that they cause is useless work.

use crate::image::variant;
use core::sync::atomic::AtomicU64;

/// Number of slots, a power of two.
pub const SLOTS: usize = 4096;

/// One slot.
#[repr(C)]
#[derive(Debug)]
pub struct Hot {
    /// [`place`] that control came to without a translation to go on with: by a jump, a call,
    /// a return, or out of translated code or the kernel.
    pub place: AtomicU64,
    /// How often; 0: the slot is free.
    pub count: AtomicU64,
}

/// The table.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Hotness {
    /// The slots.
    pub slots: [Hot; SLOTS],
}

/// What a slot counts: a guest address, which is even, and the variant of translations that
/// the process uses.
#[must_use]
pub const fn place(pc: u64, variant: u32) -> u64 {
    pc & !1 | variant as u64 & 1
}

/// Guest address and variant of a [`place`].
#[must_use]
pub const fn parts(place: u64) -> (u64, u32) {
    (place & !1, (place & 1) as u32)
}

const _: () = assert!(variant::NORMAL == 0 && variant::PRECISE == 1);

/// The slot of a [`place`].
#[must_use]
pub const fn slot(place: u64) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on all of the number.
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros())) as usize
}

const _: () = assert!(SLOTS.is_power_of_two());
const _: () = assert!(core::mem::size_of::<Hotness>() == 16 * SLOTS);
