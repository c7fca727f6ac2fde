//! System V IPC.

pub(super) mod msg;
pub(super) mod sem;
pub(super) mod shm;

use crate::arch::clock;
use crate::credentials::Credentials;
use crate::kernel::Kernel;
use alloc::rc::Rc;

/// The identity of the caller.
fn current_cred(kernel: &Kernel) -> Rc<Credentials> {
    Rc::clone(&kernel.process().files.cred)
}

/// The time of `CLOCK_REALTIME`, s.
fn now() -> i64 {
    (clock::realtime() / 1_000_000_000).cast_signed()
}

/// Wakes tasks whose operation has ended, or may be possible now.
fn wake_all(kernel: &mut Kernel, tids: &[u32]) {
    for &tid in tids {
        kernel.wake(tid);
    }
}
