//! Threads that wait for storage: each serves one request at a time, beside the others and beside
//! the device's own thread.

use super::request::Request;
use super::shared::Shared;
use crate::virtio::{DeviceError, MAX_QUEUE_SIZE};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Largest number of threads.
const THREADS: usize = 16;

/// The requests of a pool.
#[derive(Debug, Default)]
struct Requests {
    pending: VecDeque<(u16, Request)>,
    /// Threads without a request.
    idle: usize,
    /// Requests that were submitted and are not completed.
    in_flight: usize,
    is_closed: bool,
}

/// The state that the threads of a pool share.
#[derive(Debug)]
struct PoolState {
    requests: Mutex<Requests>,
    changed: Condvar,
    shared: Arc<Shared>,
}

/// The threads. Dropping the pool waits until all requests are completed.
#[derive(Debug)]
pub(super) struct Pool {
    state: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool without threads. They start when requests need them.
    pub fn new(shared: Arc<Shared>) -> Self {
        let state = PoolState {
            requests: Mutex::default(),
            changed: Condvar::new(),
            shared,
        };
        Self {
            state: Arc::new(state),
            threads: Vec::new(),
        }
    }

    /// Lets a thread of the pool serve a request. Without any thread the caller's serves it.
    ///
    /// # Errors
    /// The guest made more requests than its ring has room for.
    pub fn submit(&mut self, head: u16, request: Request) -> Result<(), DeviceError> {
        let mut requests = self.state.requests();
        if requests.in_flight >= MAX_QUEUE_SIZE.into() {
            return Err(DeviceError::Ring);
        }
        requests.in_flight += 1;
        requests.pending.push_back((head, request));
        let needs_thread = requests.idle < requests.pending.len();
        drop(requests);
        if needs_thread && self.threads.len() < THREADS {
            let state = Arc::clone(&self.state);
            let thread = thread::Builder::new().name("block".into());
            let thread = thread.spawn(move || state.run());
            self.threads.extend(thread);
        }
        match self.threads.is_empty() {
            false => self.state.changed.notify_one(),
            true => self.state.serve_pending(),
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.state.requests().is_closed = true;
        self.state.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

impl PoolState {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a thread.
    fn run(&self) {
        let mut requests = self.requests();
        loop {
            if let Some(next) = requests.pending.pop_front() {
                drop(requests);
                self.serve(next);
                requests = self.requests();
            } else if requests.is_closed {
                return;
            } else {
                requests.idle += 1;
                let result = self.changed.wait(requests);
                requests = result.unwrap_or_else(PoisonError::into_inner);
                requests.idle -= 1;
            }
        }
    }

    fn serve_pending(&self) {
        loop {
            let next = self.requests().pending.pop_front();
            match next {
                Some(next) => self.serve(next),
                None => break,
            }
        }
    }

    fn serve(&self, (head, request): (u16, Request)) {
        if let Err(error) = self.shared.serve(head, request) {
            self.shared.guest.fail(error);
        }
        self.requests().in_flight -= 1;
    }
}
