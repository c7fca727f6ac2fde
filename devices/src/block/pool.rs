//! Requests for which storage has to be waited: threads that serve them beside one another,
//! and beside those that the device's own thread serves.

use super::request::Request;
use super::{Counters, Image};
use crate::limiter::Limiter;
use crate::virtio::stats::count;
use crate::virtio::{DeviceError, Guest, MAX_QUEUE_SIZE, Memory, give_back, interrupt_for};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use virtio_queue::Queue;

/// Most threads.
const THREADS: usize = 16;

/// What the threads of a device share.
#[derive(Debug)]
pub(super) struct Common {
    pub image: Arc<Image>,
    pub requests: Mutex<Queue>,
    pub memory: Memory,
    pub guest: Arc<dyn Guest>,
    pub counters: Arc<Counters>,
    /// Of all requests together.
    pub limiter: Limiter,
}

impl Common {
    pub fn requests(&self) -> MutexGuard<'_, Queue> {
        lock(&self.requests)
    }

    /// Serves a request, and gives its chain back.
    ///
    /// # Errors
    /// The guest broke the ring.
    pub fn serve(&self, head: u16, mut request: Request) -> Result<(), DeviceError> {
        let written = request.serve(&self.image, &self.counters);
        let mut requests = self.requests();
        give_back(&mut requests, &self.memory, head, written)?;
        self.tell(&mut requests)
    }

    /// Gives the chain of a request back, without telling the guest.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn give_back(&self, head: u16, written: u32) -> Result<(), DeviceError> {
        give_back(&mut self.requests(), &self.memory, head, written)
    }

    /// Interrupts the guest, which was given chains back, if it wants that.
    pub fn tell(&self, requests: &mut Queue) -> Result<(), DeviceError> {
        if interrupt_for(requests, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What there is to do.
#[derive(Debug, Default)]
struct Work {
    waiting: VecDeque<(u16, Request)>,
    /// Threads that have none of it.
    idle: usize,
    /// Requests that were taken out of the ring and not given back.
    taken: usize,
    is_over: bool,
}

#[derive(Debug)]
struct Office {
    work: Mutex<Work>,
    more: Condvar,
    common: Arc<Common>,
}

/// The threads. Dropping it waits until they have done everything.
#[derive(Debug)]
pub(super) struct Pool {
    office: Arc<Office>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// No threads: they start when they are needed.
    pub fn new(common: Arc<Common>) -> Self {
        let office = Office {
            work: Mutex::default(),
            more: Condvar::new(),
            common,
        };
        Self {
            office: Arc::new(office),
            threads: Vec::new(),
        }
    }

    /// Lets another thread serve a request. Without any it is served here.
    ///
    /// # Errors
    /// The guest made more requests than its ring has room for.
    pub fn give(&mut self, head: u16, request: Request) -> Result<(), DeviceError> {
        let mut work = lock(&self.office.work);
        if work.taken >= MAX_QUEUE_SIZE.into() {
            return Err(DeviceError::Ring);
        }
        work.taken += 1;
        work.waiting.push_back((head, request));
        let is_short = work.idle < work.waiting.len();
        drop(work);
        if is_short && self.threads.len() < THREADS {
            let office = Arc::clone(&self.office);
            let thread = thread::Builder::new().name("block".into());
            let thread = thread.spawn(move || office.run());
            self.threads.extend(thread);
        }
        match self.threads.is_empty() {
            false => self.office.more.notify_one(),
            true => self.office.serve_waiting(),
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.office.work).is_over = true;
        self.office.more.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has ended too.
            let _ = thread.join();
        }
    }
}

impl Office {
    /// What a thread does.
    fn run(&self) {
        let mut work = lock(&self.work);
        loop {
            if let Some(next) = work.waiting.pop_front() {
                drop(work);
                self.serve(next);
                work = lock(&self.work);
            } else if work.is_over {
                return;
            } else {
                work.idle += 1;
                work = self.more.wait(work).unwrap_or_else(PoisonError::into_inner);
                work.idle -= 1;
            }
        }
    }

    fn serve_waiting(&self) {
        loop {
            let next = lock(&self.work).waiting.pop_front();
            match next {
                Some(next) => self.serve(next),
                None => break,
            }
        }
    }

    fn serve(&self, (head, request): (u16, Request)) {
        if let Err(error) = self.common.serve(head, request) {
            self.common.guest.fail(error);
        }
        lock(&self.work).taken -= 1;
    }
}
