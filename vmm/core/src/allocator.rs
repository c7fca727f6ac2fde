//! Settings of the C library's allocator for threads that translate in a process with a VM.
//!
//! Each `mprotect`, `munmap` and `madvise` of the process stops KVM's updates of the VM's memory, and
//! each takes the lock of the process's address space, which the vCPUs need too. By default, the
//! allocator makes one for every few pages by which a thread's memory grows: tens of thousands while
//! a large program starts.

use std::hint::black_box;
use std::sync::Once;
use std::thread::available_parallelism;

/// Longer allocations have mappings of their own, which `free` unmaps. The longest that the C library
/// allows.
const MMAP_THRESHOLD: i32 = 32 << 20;
/// Free memory at the end of an arena that is kept, bytes.
const TRIM_THRESHOLD: i32 = 64 << 20;
/// The memory that a thread makes accessible at once, bytes: what it does not touch takes no memory.
const GROWTH: usize = 24 << 20;

/// Prepares the calling thread for translations, and, the first time, the process: its allocator keeps
/// up to 64 MiB of free memory for each of at most two arenas per processor.
pub fn prepare_thread() {
    static PROCESS: Once = Once::new();
    PROCESS.call_once(|| {
        let processors = available_parallelism().map_or(1, usize::from);
        let arenas = i32::try_from(2 * processors).unwrap_or(i32::MAX);
        for (parameter, value) in [
            (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD),
            (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD),
            (libc::M_ARENA_MAX, arenas),
        ] {
            // SAFETY: the call takes two numbers, and is safe beside allocations of other threads.
            // A refusal only costs time.
            let _ = unsafe { libc::mallopt(parameter, value) };
        }
    });
    // The thread's arena grows to this size with one call, and does not shrink when it is free.
    // Without so much memory the thread is only slower.
    let mut room = Vec::<u8>::new();
    let _ = room.try_reserve_exact(GROWTH);
    drop(black_box(room));
}
