//! Work in parts that run at the same time, on threads that stay ready for the next work.

use crate::errno::Errno;
use std::any::Any;
use std::cell::Cell;
use std::hint;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, sync_channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most parts.
pub const MAX_PARTS: usize = 64;
/// Longest time for which a thread polls before it sleeps, if there are processors for all.
const POLLING: Duration = Duration::from_micros(200);

thread_local! {
    /// The part that the thread executes, if it executes one.
    static PART: Cell<Option<usize>> = const { Cell::new(None) };
}

/// What a panic was raised with.
type Payload = Box<dyn Any + Send>;
/// How a part of another thread has ended.
type Ended = thread::Result<()>;

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(|| Mutex::new(Pool::new()));

/// The number of the part that the calling thread executes; 0 outside of parts.
#[must_use]
pub fn hart_id() -> usize {
    PART.get().unwrap_or(0)
}

/// Executes `function` with each number from 0 to `parts` - 1, at the same time, and waits until all have ended.
///
/// The calling thread executes part 0. The others have a thread each, which stays ready for the next work. It
/// polls for 200 µs before it sleeps, if there is a processor for each part. If the system has no more threads, the
/// calling thread executes the remaining parts too, after part 0. In a VM, parts run on as many vCPUs as it has
/// (`hartline run --cpus`); a sandbox has one, and they take turns there.
///
/// ```
/// use hartline_sdk::multiprocess;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let numbers: Vec<u64> = (1..=1000).collect();
/// let sum = AtomicU64::new(0);
/// multiprocess(4, |part| {
///     let own = &numbers[part * 250..][..250];
///     sum.fetch_add(own.iter().sum(), Ordering::Relaxed);
/// })?;
/// assert_eq!(sum.into_inner(), 500_500);
/// # Ok::<(), hartline_sdk::Errno>(())
/// ```
///
/// Parts are ordinary threads: they have thread-local storage, which stays from one work to the next, and may make any
/// system call. Their stacks have 2 MiB, or as many bytes as `RUST_MIN_STACK` says. A part that waits for another
/// one may wait long, because they need not run at the same time, and for ever if the system has no more threads.
///
/// There is one work at a time. A second thread that starts a work waits for the end of the first one, so a part
/// must not wait for such a thread. A child of `fork` makes threads of its own; it executes no part of a work that its
/// parent has started, but what is left of the one that forks.
///
/// # Panics
/// If a part panics, all other parts still run to their end. Then the panic continues in the caller: if several
/// parts have panicked, with the value of one of them.
///
/// # Errors
/// [`Errno::EINVAL`]: `parts` is not from 1 to [`MAX_PARTS`]. [`Errno::EBUSY`]: a part of a work starts another one.
/// Then nothing was executed.
pub fn multiprocess<F>(parts: usize, function: F) -> Result<(), Errno>
where
    F: Fn(usize) + Sync,
{
    if !(1..=MAX_PARTS).contains(&parts) {
        return Err(Errno::EINVAL);
    }
    if PART.get().is_some() {
        return Err(Errno::EBUSY);
    }
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut payloads = pool.run(parts, &function).into_iter();
    drop(pool);
    if let Some(payload) = payloads.next() {
        drop(payloads);
        panic::resume_unwind(payload);
    }
    Ok(())
}

/// The threads, of which worker `number` executes part `number` + 1.
struct Pool {
    /// The process that has them.
    process: u32,
    /// Number of processors that the process may use.
    processors: usize,
    workers: Vec<SyncSender<Job>>,
    /// Both ends of the channel through which the workers report the ends of their parts. It has room for all.
    results: (SyncSender<Ended>, Receiver<Ended>),
}

impl Pool {
    /// No threads so far, in this process.
    fn new() -> Self {
        Self {
            process: process::id(),
            processors: thread::available_parallelism().map_or(1, usize::from),
            workers: Vec::new(),
            results: sync_channel(MAX_PARTS),
        }
    }

    /// Executes all parts of a work. Result: the values of their panics.
    fn run<F: Fn(usize) + Sync>(&mut self, parts: usize, function: &F) -> Vec<Payload> {
        let others = self.add_workers(parts - 1);
        let polls = parts <= self.processors;
        let mut running = Running {
            process: self.process,
            results: &self.results.1,
            count: 0,
            polls,
            payloads: Vec::new(),
        };
        let mut own = vec![0];
        for part in 1..parts {
            let worker = self.workers[..others].get(part - 1);
            let job = Job::new(function, polls);
            // The worker has ended its last part, so there is room for the job.
            match worker.map(|worker| worker.send(job)) {
                Some(Ok(())) => running.count += 1,
                _ => own.push(part),
            }
        }
        for part in own {
            running
                .payloads
                .extend(execute(part, || function(part)).err());
        }
        running.wait();
        mem::take(&mut running.payloads)
    }

    /// Makes threads until there are `wanted`, or the system has no more. Result: the number of threads, at most
    /// `wanted`.
    fn add_workers(&mut self, wanted: usize) -> usize {
        if self.process != process::id() {
            // A child has none of its parent's threads. Channels that they use may be locked in the child's memory, so they
            // are not dropped.
            mem::forget(mem::replace(self, Self::new()));
        }
        while self.workers.len() < wanted {
            let part = self.workers.len() + 1;
            let (jobs, received) = sync_channel(1);
            let sender = self.results.0.clone();
            let thread = thread::Builder::new().name(format!("part {part}"));
            match thread.spawn(move || work(part, &received, &sender)) {
                Ok(_) => self.workers.push(jobs),
                Err(_) => return self.workers.len(),
            }
        }
        wanted
    }
}

/// Parts of other threads that may not have ended. They have when this is dropped, so their closure lives long
/// enough even if frames of the caller unwind.
struct Running<'a> {
    process: u32,
    results: &'a Receiver<Ended>,
    count: usize,
    polls: bool,
    payloads: Vec<Payload>,
}

impl Running<'_> {
    fn wait(&mut self) {
        // If the caller's part has forked, the child has a copy of the closure, and no thread that uses it.
        if self.count > 0 && self.process != process::id() {
            self.count = 0;
        }
        while self.count > 0 {
            // The pool has a sender, so there is always another result to wait for.
            if let Ok(ended) = receive(self.results, self.polls) {
                self.count -= 1;
                self.payloads.extend(ended.err());
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.wait();
    }
}

/// A closure that a worker executes for its part.
struct Job {
    /// The closure of a work, which lives until the worker has reported the end of its part.
    closure: *const (),
    /// Calls the closure, whose type it knows.
    call: unsafe fn(*const (), usize),
    /// Whether there is a processor for each part.
    polls: bool,
}

// SAFETY: the closure is `Sync` (`Job::new`), so another thread may call it through a shared reference.
unsafe impl Send for Job {}

impl Job {
    fn new<F: Fn(usize) + Sync>(closure: &F, polls: bool) -> Self {
        /// # Safety
        /// `closure` is the address of an `F` that lives until this returns.
        unsafe fn call<F: Fn(usize)>(closure: *const (), part: usize) {
            // SAFETY: the caller vouches for it.
            let closure = unsafe { &*closure.cast::<F>() };
            closure(part);
        }
        Self {
            closure: (&raw const *closure).cast(),
            call: call::<F>,
            polls,
        }
    }
}

/// Executes the jobs of a worker.
fn work(part: usize, jobs: &Receiver<Job>, results: &SyncSender<Ended>) {
    let mut polls = false;
    while let Ok(job) = receive(jobs, polls) {
        polls = job.polls;
        // SAFETY: `Running` waits for the result, which is sent below, before the closure's life ends.
        let ended = execute(part, || unsafe { (job.call)(job.closure, part) });
        if results.send(ended).is_err() {
            return;
        }
    }
}

/// Executes a part on the calling thread.
fn execute(part: usize, function: impl FnOnce()) -> Ended {
    PART.set(Some(part));
    // The panic continues in the caller of `multiprocess`.
    let ended = panic::catch_unwind(AssertUnwindSafe(function));
    PART.set(None);
    ended
}

/// Receives a message: polls first, and then sleeps.
fn receive<T>(receiver: &Receiver<T>, polls: bool) -> Result<T, RecvError> {
    if polls && let Some(message) = poll(receiver) {
        return Ok(message);
    }
    receiver.recv()
}

/// Polls for a message, at most for [`POLLING`].
fn poll<T>(receiver: &Receiver<T>) -> Option<T> {
    let mut end = None;
    loop {
        // A look at the clock takes longer than one at the channel.
        for _ in 0..100 {
            match receiver.try_recv() {
                Ok(message) => return Some(message),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => hint::spin_loop(),
            }
        }
        let now = Instant::now();
        if now >= *end.get_or_insert(now + POLLING) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests;
