//! The share of the host that background translation takes.

use hartline_aot::order::Size;
use rustix::process::setpriority_process;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Niceness of compiler threads against threads that run guests. On a processor that both want, the
/// compiler gets two fifths: an interpreted guest gains more from the compiler's time than from its
/// own.
const NICENESS: i32 = 2;

/// The time for which a waiting thread relies on its priority before it computes it again.
const RECHECK: Duration = Duration::from_millis(50);

/// Limits the number of threads that work at a time; threads with the most important work come
/// first. Giant functions have a separate lane, so that they do not hold up the others for seconds.
#[derive(Debug)]
pub struct PrioritySemaphore {
    small: Lane,
    giant: Lane,
}

/// The permits for functions of one size class.
#[derive(Debug)]
struct Lane {
    queue: Mutex<Queue>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct Queue {
    working: usize,
    /// Ticket and priority of each waiting thread.
    waiting: Vec<(u64, u64)>,
    tickets: u64,
}

impl Default for PrioritySemaphore {
    fn default() -> Self {
        Self::new()
    }
}

impl PrioritySemaphore {
    /// Permits for one thread per processor except the guest's, and one for giants.
    #[must_use]
    pub fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            small: Lane::new(processors.saturating_sub(1).max(1)),
            giant: Lane::new(1),
        }
    }

    fn lane(&self, size: Size) -> &Lane {
        match size {
            Size::Small => &self.small,
            Size::Giant => &self.giant,
        }
    }

    /// The number of threads that work at a time.
    #[must_use]
    pub fn limit(&self, size: Size) -> usize {
        self.lane(size).limit
    }

    /// Does `work` with a permit. The waiting thread with the highest `priority` is next; priorities
    /// are computed again from time to time.
    pub fn with_permit<T>(
        &self,
        size: Size,
        priority: impl Fn() -> u64,
        work: impl FnOnce() -> T,
    ) -> T {
        let lane = self.lane(size);
        lane.acquire(priority);
        let _release = ReleaseOnDrop(lane);
        work()
    }
}

impl Lane {
    fn new(limit: usize) -> Self {
        Self {
            queue: Mutex::default(),
            changed: Condvar::new(),
            limit,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acquire(&self, priority: impl Fn() -> u64) {
        let mut now = priority();
        let mut queue = self.queue();
        let ticket = queue.tickets;
        queue.tickets += 1;
        loop {
            queue.waiting.retain(|waiting| waiting.0 != ticket);
            let is_next = queue.waiting.iter().all(|&(_, other)| other <= now);
            if queue.working < self.limit && is_next {
                queue.working += 1;
                break;
            }
            queue.waiting.push((ticket, now));
            let waited = self.changed.wait_timeout(queue, RECHECK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            now = priority();
            queue = self.queue();
        }
        drop(queue);
        // Another thread may get a permit too, or be next.
        self.changed.notify_all();
    }
}

/// Releases a permit, also in a panic.
struct ReleaseOnDrop<'a>(&'a Lane);

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.queue().working -= 1;
        self.0.changed.notify_all();
    }
}

/// Lowers the priority of the calling thread and of threads that it starts.
pub fn step_back() {
    // A refusal does no harm.
    let _ = setpriority_process(None, NICENESS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_than_the_limit_at_a_time() {
        let semaphore = PrioritySemaphore::new();
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..semaphore.limit(Size::Small) as u64 + 4 {
                let (semaphore, now, most) = (&semaphore, &now, &most);
                scope.spawn(move || {
                    for round in 0..50 {
                        semaphore.with_permit(
                            Size::Small,
                            || number ^ round,
                            || {
                                most.fetch_max(
                                    now.fetch_add(1, Ordering::SeqCst) + 1,
                                    Ordering::SeqCst,
                                );
                                thread::yield_now();
                                now.fetch_sub(1, Ordering::SeqCst);
                            },
                        );
                    }
                });
            }
        });
        assert!((1..=semaphore.limit(Size::Small)).contains(&most.into_inner()));
        assert_eq!(now.into_inner(), 0);
    }

    #[test]
    fn the_most_important_comes_next_and_giants_do_not_matter() {
        let semaphore = PrioritySemaphore::new();
        let done = Mutex::new(Vec::new());
        let wait_for = |count| {
            while semaphore.small.queue().waiting.len() != count {
                thread::yield_now();
            }
        };
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Mutex::new(released);
        let block = || released.lock().unwrap().recv().unwrap_or(());
        thread::scope(|scope| {
            let (semaphore, done, block) = (&semaphore, &done, &block);
            for _ in 0..semaphore.small.limit {
                scope.spawn(move || semaphore.with_permit(Size::Small, || 0, block));
            }
            while semaphore.small.queue().working != semaphore.small.limit {
                thread::yield_now();
            }
            for (count, priority) in [5, 9, 7].into_iter().enumerate() {
                let work = move || done.lock().unwrap().push(priority);
                scope.spawn(move || semaphore.with_permit(Size::Small, || priority, work));
                wait_for(count + 1);
            }
            semaphore.with_permit(Size::Giant, || 0, || done.lock().unwrap().push(0));
            // One slot becomes free, for one thread after another.
            release.send(()).unwrap();
            wait_for(0);
            drop(release);
        });
        assert_eq!(done.into_inner().unwrap(), [0, 9, 7, 5]);
    }
}
