//! Time, read from the TSC without leaving the VM.

use core::sync::atomic::{AtomicU64, Ordering};
use hartline_abi::boot::BootInfo;

/// Nanoseconds per second.
pub const SECOND: u64 = 1_000_000_000;

/// Nanoseconds per tick of the TSC, times 2^`SHIFT`; 0 before [`set_up`].
static SCALE: AtomicU64 = AtomicU64::new(0);
const SHIFT: u32 = 56;
static TSC_BOOT: AtomicU64 = AtomicU64::new(0);
static REALTIME: AtomicU64 = AtomicU64::new(0);
static MONOTONIC: AtomicU64 = AtomicU64::new(0);

/// Sets the clock from the boot information.
pub fn set_up(boot: &BootInfo) {
    TSC_BOOT.store(boot.tsc_boot, Ordering::Relaxed);
    REALTIME.store(boot.realtime_ns, Ordering::Relaxed);
    MONOTONIC.store(boot.monotonic_ns, Ordering::Relaxed);
    // 2^56 × 10⁹ ÷ Hz fits if the TSC has at least 4 MHz, as every TSC has.
    let scale = (u128::from(SECOND) << SHIFT) / u128::from(boot.tsc_hz.max(1));
    SCALE.store(u64::try_from(scale).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Nanoseconds since boot; 0 before [`set_up`].
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "64 bits hold 584 years")]
pub fn since_boot() -> u64 {
    let scale = SCALE.load(Ordering::Relaxed);
    if scale == 0 {
        return 0;
    }
    // SAFETY: the instruction only reads the counter.
    let now = unsafe { core::arch::x86_64::_rdtsc() };
    let ticks = now.saturating_sub(TSC_BOOT.load(Ordering::Relaxed));
    ((u128::from(ticks) * u128::from(scale)) >> SHIFT) as u64
}

/// `CLOCK_REALTIME`, nanoseconds.
#[must_use]
pub fn realtime() -> u64 {
    REALTIME.load(Ordering::Relaxed).wrapping_add(since_boot())
}

/// `CLOCK_MONOTONIC`, nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    MONOTONIC.load(Ordering::Relaxed).wrapping_add(since_boot())
}
