//! Requests that have to wait for the host's storage, and that others do not wait for: threads
//! that serve them beside the one at the channel.

use super::channel::{Channel, Data, Place};
use super::host;
use crate::virtio::Guest;
use hartline_abi::volume::{Answer, VOLUME_PLACES};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Work that may take long.
#[derive(Debug)]
pub(super) enum Work {
    /// Read the file at an offset, so many bytes, which the data has room for.
    Read(OwnedFd, i64, usize),
    /// Make a file durable, or only its data.
    Sync(OwnedFd, bool),
    /// Wait for a test.
    #[cfg(test)]
    Gate(Arc<std::sync::Barrier>),
}

impl Work {
    /// Does it.
    pub fn serve(&self, data: Data) -> Answer {
        let result = match self {
            Self::Read(file, offset, length) => {
                // SAFETY: the data has that length.
                unsafe { host::read(file.as_fd(), *offset, data.pointer(), *length) }
            }
            Self::Sync(file, only_data) => host::sync(file.as_fd(), *only_data).map(|()| 0),
            #[cfg(test)]
            Self::Gate(gate) => {
                gate.wait();
                Ok(7)
            }
        };
        Answer {
            result: host::number(result),
            ..Answer::default()
        }
    }
}

/// Answers a request that a task waits for, and tells the guest if it wants to know.
pub(super) fn answer(channel: &Channel, place: Place, answer: Answer, guest: &dyn Guest) {
    place.answer(answer);
    tell(channel, guest);
}

fn tell(channel: &Channel, guest: &dyn Guest) {
    if channel.take_guest_waits() {
        guest.interrupt();
    }
}

/// Whether a helper has a request, whatever the guest says of the place. It is held while the
/// request is answered: who finds that there is none finds the place as it is after that, and
/// takes no request twice.
#[derive(Debug, Default)]
struct Busy(Mutex<bool>);

impl Busy {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread for one place.
#[derive(Debug)]
struct Helper {
    is_busy: Arc<Busy>,
    work: SyncSender<Work>,
    thread: JoinHandle<()>,
}

/// The threads, by place. They start when they are needed; dropping it waits until they have
/// done everything.
#[derive(Debug)]
pub(super) struct Helpers<'a> {
    channel: &'a Channel,
    guest: &'a Arc<dyn Guest>,
    threads: [Option<Helper>; VOLUME_PLACES],
}

impl<'a> Helpers<'a> {
    pub fn new(channel: &'a Channel, guest: &'a Arc<dyn Guest>) -> Self {
        Self {
            channel,
            guest,
            threads: Default::default(),
        }
    }

    /// Whether the guest has made a request in a place.
    pub fn is_new(&self, number: usize) -> bool {
        let is_busy = self.threads[number].as_ref().map(|h| h.is_busy.lock());
        !is_busy.is_some_and(|is_busy| *is_busy) && self.channel.place(number).is_submitted()
    }

    /// Whether the guest has made a request in any place.
    pub fn is_any_new(&self) -> bool {
        (0..VOLUME_PLACES).any(|number| self.is_new(number))
    }

    /// Has the work of a place done, which has none to do. Without a thread it is done here.
    pub fn give(&mut self, number: usize, work: Work) {
        if self.threads[number].is_none() {
            self.threads[number] = self.start(number);
        }
        let place = self.channel.place(number);
        let rest = match &self.threads[number] {
            None => Some(work),
            Some(helper) => {
                *helper.is_busy.lock() = true;
                // One that has ended panicked.
                helper.work.send(work).err().map(|unsent| unsent.0)
            }
        };
        if let Some(work) = rest {
            self.threads[number] = None;
            answer(self.channel, place, work.serve(place.data()), &**self.guest);
        }
    }

    fn start(&self, number: usize) -> Option<Helper> {
        let place = self.channel.place(number);
        // SAFETY: the thread ends before this value, and so before the channel.
        let channel = unsafe { self.channel.again() };
        let guest = Arc::clone(self.guest);
        let is_busy = Arc::<Busy>::default();
        let done = Arc::clone(&is_busy);
        let (work, next) = sync_channel::<Work>(1);
        let serve = move || {
            for work in next {
                let result = work.serve(place.data());
                let mut is_busy = done.lock();
                place.answer(result);
                *is_busy = false;
                drop(is_busy);
                tell(&channel, &*guest);
            }
        };
        let thread = thread::Builder::new().name("volumes".into());
        let thread = thread.spawn(serve).ok()?;
        Some(Helper {
            is_busy,
            work,
            thread,
        })
    }
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        for helper in self.threads.iter_mut().filter_map(Option::take) {
            drop(helper.work);
            // One that panicked has ended too.
            let _ = helper.thread.join();
        }
    }
}
