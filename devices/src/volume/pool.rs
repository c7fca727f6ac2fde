//! Threads that wait for storage: one for each slot of the channel, beside the worker's own thread.

use super::backend;
use super::channel::{Channel, Data, Slot};
use crate::virtio::Guest;
use hartline_abi::volume::{Answer, VOLUME_SLOTS};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// A request that waits for storage.
#[derive(Debug)]
pub(super) enum Work {
    /// Reads from the file at an offset. The length in bytes is at most that of the data.
    Read(OwnedFd, u64, usize),
    /// Writes a file to storage, or only its data.
    Sync(OwnedFd, bool),
    /// Waits for a test.
    #[cfg(test)]
    Gate(Arc<std::sync::Barrier>),
}

impl Work {
    /// Serves the request.
    pub fn serve(&self, data: Data<'_>) -> Answer {
        let result = match self {
            Self::Read(file, offset, length) => {
                backend::read(file.as_fd(), *offset, &data.slice(*length))
            }
            Self::Sync(file, only_data) => backend::sync(file.as_fd(), *only_data).map(|()| 0),
            #[cfg(test)]
            Self::Gate(gate) => {
                gate.wait();
                Ok(7)
            }
        };
        Answer {
            result: backend::number(result),
            ..Answer::default()
        }
    }
}

/// Answers a request, and interrupts the guest if it waits for an answer.
pub(super) fn answer(channel: &Channel, slot: Slot<'_>, answer: Answer, guest: &dyn Guest) {
    slot.answer(answer);
    notify(channel, guest);
}

fn notify(channel: &Channel, guest: &dyn Guest) {
    if channel.take_guest_waits() {
        guest.interrupt();
    }
}

/// Whether a thread has a request, independent of the state of the slot, which the guest can change.
/// The thread holds the lock while it answers. So a caller that finds no request also finds the slot
/// in its state after the answer, and takes no request twice.
#[derive(Debug, Default)]
struct Busy(Mutex<bool>);

impl Busy {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread of one slot.
#[derive(Debug)]
struct SlotThread {
    is_busy: Arc<Busy>,
    work: SyncSender<Work>,
    thread: JoinHandle<()>,
}

/// The threads, by slot. They start when they are needed. Dropping the pool waits until all requests
/// are answered.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    channel: &'a Channel,
    guest: &'a Arc<dyn Guest>,
    threads: [Option<SlotThread>; VOLUME_SLOTS],
}

impl<'a> Pool<'a> {
    /// A pool without threads.
    pub fn new(channel: &'a Channel, guest: &'a Arc<dyn Guest>) -> Self {
        Self {
            channel,
            guest,
            threads: Default::default(),
        }
    }

    /// Whether there is a new request in a slot.
    pub fn is_new(&self, number: usize) -> bool {
        let is_busy = self.threads[number]
            .as_ref()
            .map(|thread| thread.is_busy.lock());
        !is_busy.is_some_and(|is_busy| *is_busy) && self.channel.slot(number).is_submitted()
    }

    /// Whether there is a new request in any slot.
    pub fn is_any_new(&self) -> bool {
        (0..VOLUME_SLOTS).any(|number| self.is_new(number))
    }

    /// Lets the slot's thread serve a request. Without a thread the caller's serves it.
    pub fn submit(&mut self, number: usize, work: Work) {
        if self.threads[number].is_none() {
            self.threads[number] = self.start(number);
        }
        let slot = self.channel.slot(number);
        let rest = match &self.threads[number] {
            None => Some(work),
            Some(thread) => {
                *thread.is_busy.lock() = true;
                // A thread that has ended has panicked.
                thread.work.send(work).err().map(|unsent| unsent.0)
            }
        };
        if let Some(work) = rest {
            self.threads[number] = None;
            answer(self.channel, slot, work.serve(slot.data()), &**self.guest);
        }
    }

    fn start(&self, number: usize) -> Option<SlotThread> {
        let channel = self.channel.clone();
        let guest = Arc::clone(self.guest);
        let is_busy = Arc::<Busy>::default();
        let done = Arc::clone(&is_busy);
        let (work, next) = sync_channel::<Work>(1);
        let serve = move || {
            let slot = channel.slot(number);
            for work in next {
                let result = work.serve(slot.data());
                let mut is_busy = done.lock();
                slot.answer(result);
                *is_busy = false;
                drop(is_busy);
                notify(&channel, &*guest);
            }
        };
        let thread = thread::Builder::new().name("volumes".into());
        let thread = thread.spawn(serve).ok()?;
        Some(SlotThread {
            is_busy,
            work,
            thread,
        })
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        for thread in self.threads.iter_mut().filter_map(Option::take) {
            drop(thread.work);
            // A thread that panicked has ended too.
            let _ = thread.thread.join();
        }
    }
}
