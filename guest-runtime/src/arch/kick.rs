//! Kicks: a hart whose `poll_limit` is raised enters the library OS at its next safepoint.

use core::sync::atomic::Ordering;
use hartline_abi::hart::{Hart, Kick, PASSED_OVER, PATIENCE, Pending, is_urgent};
use hartline_abi::layout::{STACK_BASE, STACK_SIZE, STACK_SLACK, STACK_STRIDE};

/// Lowest stack pointer of vCPU `id` at which translated code may make calls.
#[must_use]
pub const fn stack_limit(id: u64) -> u64 {
    STACK_BASE + (id + 1) * STACK_STRIDE - STACK_SIZE + STACK_SLACK
}

/// Clears the kick before its causes are checked, so that a later kick is not lost.
pub(crate) fn clear_kick(hart: &Hart) {
    set_poll_limit(&hart.kick, stack_limit(hart.id));
}

/// Whether the hart was kicked.
pub(crate) fn is_kicked(kick: &Kick) -> bool {
    kick.poll_limit.load(Ordering::Relaxed) == u64::MAX
}

/// Sets the limit below which a stack pointer counts as a kick.
pub(crate) fn set_poll_limit(kick: &Kick, limit: u64) {
    kick.poll_limit.store(limit, Ordering::SeqCst);
}

/// Sets the attempt at which the host raises the limit for reasons other than a signal: the first
/// one, or the one with this number (at most [`PATIENCE`]). Resets the count of attempts. A signal
/// that was not [taken](take_interruption) stays.
pub(crate) fn set_patience(kick: &Kick, attempts: Option<u64>) {
    let bits = match attempts {
        Some(attempts) => {
            Pending::Patient as u64 | (PATIENCE.saturating_sub(attempts) * PASSED_OVER)
        }
        None => 0,
    };
    let change = |old| Some(old & Pending::Signal as u64 | bits);
    // This never fails, because there is always a new value.
    let _ = (kick.pending).fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
}

/// Whether the host interrupts a patient hart: it raises the limit, or has done so.
pub(crate) fn is_interrupted(kick: &Kick) -> bool {
    is_urgent(kick.pending.load(Ordering::SeqCst))
}

/// As [`is_interrupted`], and clears the request. The caller checks its causes afterwards.
pub(crate) fn take_interruption(kick: &Kick) -> bool {
    is_urgent(kick.pending.swap(0, Ordering::SeqCst))
}

/// Kicks a hart: it enters the library OS at its next safepoint.
pub(crate) fn kick(kick: &Kick) {
    set_poll_limit(kick, u64::MAX);
}
