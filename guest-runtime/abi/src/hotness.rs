//! Counters of interpreted code. The runtime counts, and the VMM translates frequent code while the
//! program runs. No exit is involved.
//!
//! The table is direct-mapped by [`slot`]: a new place takes over a slot when it has occurred as
//! often as the old one. So counts are estimates, and the VMM does not trust them: wrong counts
//! only cause useless translations.

use crate::image::variant;
use core::sync::atomic::AtomicU64;

/// Number of slots, a power of two.
pub const SLOTS: usize = 4096;

/// The weight of a sample of the baseline translator's code. Samples are taken every few
/// milliseconds.
pub const SAMPLE: u64 = 1000;

/// A counter.
#[repr(C)]
#[derive(Debug)]
pub struct Hot {
    /// The [`place`] at which execution continued without a translation: after a jump, a call or a
    /// return, or after translated code or the kernel.
    pub place: AtomicU64,
    /// Number of occurrences; 0: the slot is free.
    pub count: AtomicU64,
}

/// The table of counters.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Hotness {
    /// The slots.
    pub slots: [Hot; SLOTS],
}

/// Guest addresses are even and far below this bit: both bits are free for the variant.
const UNTRUSTED_ABI: u64 = 1 << 63;
const PRECISE: u64 = 1;

/// Encodes the key of a slot: a guest address, and the variant of LLVM's code that the process uses.
#[must_use]
pub const fn place(pc: u64, variant: u32) -> u64 {
    let bits = match variant {
        variant::PRECISE => PRECISE,
        variant::UNTRUSTED_ABI => UNTRUSTED_ABI,
        _ => 0,
    };
    pc & !(UNTRUSTED_ABI | PRECISE) | bits
}

/// Guest address and variant of LLVM's code of a [`place`].
#[must_use]
pub const fn parts(place: u64) -> (u64, u32) {
    let variant = match place & (UNTRUSTED_ABI | PRECISE) {
        0 => variant::NORMAL,
        UNTRUSTED_ABI => variant::UNTRUSTED_ABI,
        _ => variant::PRECISE,
    };
    (place & !(UNTRUSTED_ABI | PRECISE), variant)
}

/// The slot of a [`place`].
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the shift leaves a number below SLOTS"
)]
pub const fn slot(place: u64) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on all bits of the place.
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros())) as usize
}

const _: () = assert!(SLOTS.is_power_of_two());
const _: () = assert!(core::mem::size_of::<Hotness>() == 16 * SLOTS);
