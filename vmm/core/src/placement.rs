//! Threads of a VM on processors of the host that are theirs.

use crate::affinity;
use crate::confine::{Confine, Thread, confine_to};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gives each thread its processor, then lets somebody else confine it.
///
/// A thread that cannot have its processor runs elsewhere: that is slower, and nothing else.
#[derive(Debug)]
pub struct Placement {
    processors: Vec<u32>,
    /// Threads of vCPUs so far.
    vcpus: AtomicUsize,
    confine: Option<Arc<dyn Confine>>,
}

impl Placement {
    /// `processors` are those of the vCPUs in their order, and the one for all other threads last:
    /// the calling thread, and what it starts from now on, goes there. Without any, threads stay
    /// where they are.
    #[must_use]
    pub fn begin(processors: Vec<u32>, confine: Option<Arc<dyn Confine>>) -> Self {
        if let Some(others) = processors.last() {
            // As above.
            let _ = affinity::run_on(&[*others]);
        }
        Self {
            processors,
            vcpus: AtomicUsize::new(0),
            confine,
        }
    }

    /// The processor of a thread; none: it stays where it is.
    fn processor(&self, thread: Thread) -> Option<u32> {
        match thread {
            Thread::Vcpu => {
                let number = self.vcpus.fetch_add(1, Ordering::Relaxed);
                self.processors.get(number).copied()
            }
            // A vCPU's thread may have started it.
            Thread::Console | Thread::Volumes | Thread::Network => self.processors.last().copied(),
        }
    }
}

impl Confine for Placement {
    fn confine(&self, thread: Thread) {
        if let Some(processor) = self.processor(thread) {
            // As above.
            let _ = affinity::run_on(&[processor]);
        }
        confine_to(thread, self.confine.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a thread of this kind is after it was placed.
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
