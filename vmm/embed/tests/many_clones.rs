//! Warm clones in a process of their own, whose resources can be counted exactly.

mod common;
#[path = "common/shell.rs"]
mod shell;
#[path = "common/snapshot.rs"]
mod snapshot;

use common::has_kvm;
use hartline_embed::{Template, WarmClone};
use shell::{measure, run, template};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const CLONES: u64 = 1000;
/// Clones before memory is counted.
const FIRST: u64 = 100;
/// The most that memory may grow by after them, bytes: about a thousand for each clone.
const GROWTH: u64 = 1 << 20;

/// Starts a clone and ends it. Most end without a run.
fn start_and_end(template: &Arc<Template>, number: u64) {
    let clone = WarmClone::start(template).unwrap();
    if number.is_multiple_of(4) {
        assert_eq!(run(&clone, "echo $(/busybox true) x").1[0], "x\n");
    }
}

/// Makes the allocator give back what is free. Otherwise each of its arenas keeps up to 16 MiB that clones have used once.
fn return_free_memory() {
    for option in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: the call sets a number of the allocator, and no other thread calls it.
        let is_set = unsafe { libc::mallopt(option, 64 << 10) };
        assert_eq!(is_set, 1);
    }
}

/// Waits until this process has these numbers of descriptors and threads. Result: bytes in memory.
fn memory_at_rest(rest: [u64; 2]) -> u64 {
    let start = Instant::now();
    loop {
        let [descriptors, threads, memory] = measure();
        if [descriptors, threads] == rest {
            return memory;
        }
        let found = [descriptors, threads];
        // The kernel removes a joined thread from /proc a moment later.
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{found:?}, not {rest:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thousand_clones_leave_nothing() {
    if !has_kvm() {
        return;
    }
    return_free_memory();
    let template = template();
    start_and_end(&template, 0);
    let [descriptors, threads, _] = measure();
    // This one and the one of the test.
    assert_eq!(threads, 2);
    let mut before = u64::MAX;
    for number in 1..=CLONES {
        start_and_end(&template, number);
        if number == FIRST {
            before = memory_at_rest([descriptors, threads]);
        }
    }
    let after = memory_at_rest([descriptors, threads]);
    eprintln!("memory {before} {after}");
    assert!(after <= before + GROWTH, "{before} {after}");
}
