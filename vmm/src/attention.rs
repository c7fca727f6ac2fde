//! Asking the program's hart for attention at its next safepoint.

use crate::platform::Mapping;
use hartline_abi::boot::Shared;
use hartline_abi::hart::{Hart, Pending};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// Sets a bit of hart 0's pending word and raises its poll limit. Before the runtime
/// has published its hart nothing happens: it looks at everything when it starts.
pub(crate) fn raise(shared: &Mapping, ram: &Mapping, why: Pending) {
    let Ok(hart) = shared.atomic_u64(offset_of!(Shared, hart) as u64) else {
        return;
    };
    let hart = hart.load(Ordering::SeqCst);
    // The guest may have written anything: whatever is not in RAM fails below, and
    // RAM is the guest's own.
    let field = |offset: usize| hart.checked_add(offset as u64).filter(|_| hart != 0);
    if let (Some(pending), Some(limit)) = (
        field(offset_of!(Hart, pending)),
        field(offset_of!(Hart, poll_limit)),
    ) && let (Ok(pending), Ok(limit)) = (ram.atomic_u64(pending), ram.atomic_u64(limit))
    {
        pending.fetch_or(why as u64, Ordering::SeqCst);
        limit.store(u64::MAX, Ordering::SeqCst);
    }
}
