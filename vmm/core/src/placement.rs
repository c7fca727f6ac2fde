//! Pins threads of a VM to dedicated processors of the host.

use crate::affinity;
use crate::confine::{Confine, Thread, confine_to};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pins each thread to its processor, then confines it with another [`Confine`].
///
/// A thread that cannot be pinned runs elsewhere, which is only slower.
#[derive(Debug)]
pub struct Placement {
    processors: Vec<u32>,
    /// Number of vCPU threads so far.
    vcpus: AtomicUsize,
    confine: Option<Arc<dyn Confine>>,
}

impl Placement {
    /// `processors` has the processors of the vCPUs in their order, and last the one for all other
    /// threads: the calling thread, and the threads that it starts from now on, are pinned to that.
    /// If `processors` is empty, no thread is pinned.
    #[must_use]
    pub fn begin(processors: Vec<u32>, confine: Option<Arc<dyn Confine>>) -> Self {
        if let Some(others) = processors.last() {
            // A thread that cannot be pinned is only slower.
            let _ = affinity::run_on(&[*others]);
        }
        Self {
            processors,
            vcpus: AtomicUsize::new(0),
            confine,
        }
    }

    /// The processor of a thread; `None`: the thread is not pinned.
    fn processor(&self, thread: Thread) -> Option<u32> {
        match thread {
            Thread::Vcpu | Thread::ResetVcpu => {
                let number = self.vcpus.fetch_add(1, Ordering::Relaxed);
                self.processors.get(number).copied()
            }
            // A vCPU's thread may have started this thread.
            Thread::Console | Thread::Volumes | Thread::Network | Thread::Spawn => {
                self.processors.last().copied()
            }
        }
    }
}

impl Confine for Placement {
    fn confine(&self, thread: Thread) {
        if let Some(processor) = self.processor(thread) {
            // A thread that cannot be pinned is only slower.
            let _ = affinity::run_on(&[processor]);
        }
        confine_to(thread, self.confine.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processors of a thread of this kind after its placement.
    fn place(placement: &Placement, thread: Thread) -> Vec<u32> {
        placement.confine(thread);
        affinity::of_this_thread().unwrap()
    }

    #[test]
    fn each_thread_has_its_processor() {
        let all = affinity::of_this_thread().unwrap();
        let (first, last) = (all[0], all[all.len() - 1]);
        let work = move || {
            let placement = Placement::begin(vec![first, last, last], None);
            assert_eq!(affinity::of_this_thread().unwrap(), [last]);
            assert_eq!(place(&placement, Thread::Vcpu), [first]);
            assert_eq!(place(&placement, Thread::Network), [last]);
            assert_eq!(place(&placement, Thread::Vcpu), [last]);
            assert_eq!(place(&placement, Thread::Console), [last]);
        };
        std::thread::spawn(work).join().unwrap();
        let work = move || {
            let placement = Placement::begin(Vec::new(), None);
            assert_eq!(place(&placement, Thread::Vcpu), all);
            assert_eq!(place(&placement, Thread::Volumes), all);
        };
        std::thread::spawn(work).join().unwrap();
    }
}
