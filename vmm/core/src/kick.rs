//! Kicks the guest's harts, which handle the request at their next safepoint.

use crate::platform::Mapping;
use hartline_abi::boot::Shared;
use hartline_abi::hart::{PASSED_OVER, Pending, is_urgent, offset};
use hartline_abi::limits::MAX_CPUS;
use hartline_devices::lateness;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

/// Sets a bit of the pending word of all harts and raises their poll limits. Before the runtime has
/// published a hart, this has no effect on it: the runtime checks everything when it starts.
pub(crate) fn all(shared: &Mapping, ram: &Mapping, why: Pending) {
    lateness::point();
    for cpu in 0..MAX_CPUS {
        one(shared, ram, cpu, why);
    }
}

/// As [`all`], for the hart of vCPU `cpu`, less than [`MAX_CPUS`].
pub(crate) fn one(shared: &Mapping, ram: &Mapping, cpu: usize, why: Pending) {
    let slot = offset_of!(Shared, harts) + cpu * size_of::<u64>();
    let Ok(hart) = shared.atomic_u64(slot as u64) else {
        return;
    };
    let hart = hart.load(Ordering::SeqCst);
    // The guest may have written anything. Accesses outside RAM fail below, and RAM is the guest's
    // own.
    let field = |offset: u64| hart.checked_add(offset).filter(|_| hart != 0);
    if let (Some(pending), Some(limit)) = (field(offset::PENDING), field(offset::POLL_LIMIT))
        && let (Ok(pending), Ok(limit)) = (ram.atomic_u64(pending), ram.atomic_u64(limit))
    {
        let seen = limit.load(Ordering::SeqCst);
        let before = pending.fetch_or(why as u64, Ordering::SeqCst);
        if before & Pending::Patient as u64 != 0 {
            let count = pending.fetch_add(PASSED_OVER, Ordering::SeqCst);
            if !is_urgent(count) {
                return;
            }
            // The guest checks `pending` after it has set a limit. Only the guest sets limits.
            limit.store(u64::MAX, Ordering::SeqCst);
            return;
        }
        // If the exchange fails, the thread that changed the limit checks, or has checked,
        // `pending`.
        let _ = limit.compare_exchange(seen, u64::MAX, Ordering::SeqCst, Ordering::SeqCst);
    }
}
