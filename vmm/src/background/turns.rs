//! How much of the host the background takes.

use std::num::NonZero;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// How far threads step back behind those that run guests.
const NICENESS: libc::c_int = 5;

/// Lets a limited number of threads work at a time.
#[derive(Debug)]
pub struct Turns {
    free: Mutex<usize>,
    changed: Condvar,
    limit: usize,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

impl Turns {
    /// As many as there are processors besides the one that runs the guest.
    #[must_use]
    pub fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let limit = processors.saturating_sub(1).max(1);
        Self {
            free: Mutex::new(limit),
            changed: Condvar::new(),
            limit,
        }
    }

    /// How many threads work at a time.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Works when it is this thread's turn.
    pub fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self
                .changed
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        drop(free);
        let _back = GiveBack(self);
        work()
    }
}

/// Ends a turn, also in a panic.
struct GiveBack<'a>(&'a Turns);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}

/// Has the calling thread and those that it starts step back behind others.
pub fn step_back() {
    // SAFETY: no memory is involved. 0 is the calling thread. A refusal does no harm.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_than_the_limit_at_a_time() {
        let turns = Turns::new();
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..turns.limit() + 4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        turns.take(|| {
                            most.fetch_max(
                                now.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert!((1..=turns.limit()).contains(&most.into_inner()));
        assert_eq!(now.into_inner(), 0);
    }
}
