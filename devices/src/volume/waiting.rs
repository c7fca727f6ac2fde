//! Requests that have to wait for the host's storage, and that others do not wait for: threads
//! that serve them beside the one at the channel.

use super::channel::{Channel, Data, Place};
use super::host;
use crate::virtio::Guest;
use hartline_abi::volume::{Answer, VOLUME_PLACES};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
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
    if channel.take_guest_waits() {
        guest.interrupt();
    }
}

/// A thread for one place.
#[derive(Debug)]
struct Helper {
    /// It has a request, whatever the guest says of the place.
    is_busy: Arc<AtomicBool>,
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
        let is_busy = |helper: &Helper| helper.is_busy.load(Ordering::Acquire);
        !self.threads[number].as_ref().is_some_and(is_busy)
            && self.channel.place(number).is_submitted()
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
                helper.is_busy.store(true, Ordering::Release);
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
        let is_busy = Arc::<AtomicBool>::default();
        let done = Arc::clone(&is_busy);
        let (work, next) = sync_channel::<Work>(1);
        let serve = move || {
            for work in next {
                let result = work.serve(place.data());
                // When the guest sees the answer it may ask again.
                done.store(false, Ordering::Release);
                answer(&channel, place, result, &*guest);
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
