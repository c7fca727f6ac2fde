//! System V IPC.

pub(super) mod msg;
pub(super) mod sem;
pub(super) mod shm;

use crate::arch::clock;
use crate::fs::types::Credentials;
use crate::kernel::Kernel;

/// The identity of the caller.
fn who(kernel: &mut Kernel) -> Credentials {
    let process = kernel.process_mut();
    process.sync_identity();
    process.files.who.clone()
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
