//! Forks of this process.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks between the first call of this function and this process, which is a descendant of the
/// one that called it first, or that one. Threads and VMs do not pass on to a child.
#[must_use]
pub fn forks() -> u32 {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler only changes an atomic number, which is allowed in a child of a process with
        // several threads. Without memory for it, children are not noticed.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(count)) };
    });
    FORKS.load(Ordering::Relaxed)
}
