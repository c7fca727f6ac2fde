//! Contexts of asynchronous I/O (`io_setup`): the events of completed operations.
//!
//! As on Linux with buffered files, `io_submit` completes an operation before it returns.

use crate::wait::{ALL, READABLE, WaitQueue};
use alloc::collections::{BTreeMap, VecDeque};
use hartline_linux::aio_abi::IoEvent;
use hartline_linux::errno::Errno;

/// Most events of all contexts of an address space (`aio-max-nr`).
const MAX_EVENTS: usize = 65_536;

/// A context.
#[derive(Debug)]
pub struct Context {
    /// Most events that wait to be read.
    capacity: usize,
    /// Events that were not read yet.
    pub events: VecDeque<IoEvent>,
    /// Tasks that wait for events.
    pub waiters: WaitQueue,
}

impl Context {
    /// Whether one more operation may complete.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.events.len() < self.capacity
    }

    /// Adds the event of a completed operation.
    pub fn complete(&mut self, event: IoEvent) {
        self.events.push_back(event);
        self.waiters.wake(READABLE);
    }
}

/// The contexts of an address space, by the addresses that are their names.
#[derive(Debug, Default)]
pub struct Contexts(BTreeMap<u64, Context>);

impl Contexts {
    /// Checks that a context for `events` events may be added.
    ///
    /// # Errors
    /// `EAGAIN` if there would be too many events.
    pub fn check(&self, events: u32) -> Result<(), Errno> {
        let used: usize = self.0.values().map(|context| context.capacity).sum();
        match used.saturating_add(events as usize) {
            0..=MAX_EVENTS => Ok(()),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Adds a context for `events` events.
    pub fn insert(&mut self, address: u64, events: u32) {
        let context = Context {
            capacity: events as usize,
            events: VecDeque::new(),
            waiters: WaitQueue::default(),
        };
        self.0.insert(address, context);
    }

    /// Returns a context.
    ///
    /// # Errors
    /// `EINVAL` if there is none with this name.
    pub fn get_mut(&mut self, address: u64) -> Result<&mut Context, Errno> {
        self.0.get_mut(&address).ok_or(Errno::EINVAL)
    }

    /// Removes a context, and wakes the tasks that wait for its events.
    ///
    /// # Errors
    /// `EINVAL` if there is none with this name.
    pub fn remove(&mut self, address: u64) -> Result<(), Errno> {
        let context = self.0.remove(&address).ok_or(Errno::EINVAL)?;
        context.waiters.wake_all(ALL);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_limited_for_each_context_and_for_all() {
        let mut contexts = Contexts::default();
        contexts.check(2).unwrap();
        contexts.insert(4096, 2);
        assert_eq!(contexts.check(65_535), Err(Errno::EAGAIN));
        assert_eq!(contexts.check(u32::MAX), Err(Errno::EAGAIN));
        let context = contexts.get_mut(4096).unwrap();
        let event = IoEvent {
            data: 1,
            obj: 2,
            res: 3,
            res2: 0,
        };
        for _ in 0..2 {
            assert!(context.has_room());
            context.complete(event);
        }
        assert!(!context.has_room());
        contexts.remove(4096).unwrap();
        assert_eq!(contexts.remove(4096), Err(Errno::EINVAL));
        contexts.check(65_536).unwrap();
    }
}
