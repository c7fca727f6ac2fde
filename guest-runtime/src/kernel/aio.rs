//! Contexts of asynchronous I/O (`io_setup`): the events of completed operations, and the operations
//! that wait until an open file is ready (`IOCB_CMD_POLL`).
//!
//! As on Linux with buffered files, `io_submit` completes every other operation before it returns.

use crate::file::eventfd::EventFd;
use crate::file::operations::File;
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::wait::poll::PollTable;
use crate::wait::{ALL, Observer, READABLE, Registration, WaitQueue, Waiter};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
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
    /// Operations that wait for a file.
    polls: Vec<Rc<Poll>>,
}

impl Context {
    /// Whether one more operation may complete.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.events.len() + self.polls.len() < self.capacity
    }

    /// The operation whose request is at this address, if it waits for a file.
    #[must_use]
    pub fn poll(&self, request: u64) -> Option<Rc<Poll>> {
        let mut polls = self.polls.iter();
        polls.find(|poll| poll.wanted.request == request).cloned()
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
            polls: Vec::new(),
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

    /// Removes a context, and wakes the tasks that wait for its events. Returns its operations that
    /// wait for files.
    ///
    /// # Errors
    /// `EINVAL` if there is none with this name.
    pub fn remove(&mut self, address: u64) -> Result<Vec<Rc<Poll>>, Errno> {
        let context = self.0.remove(&address).ok_or(Errno::EINVAL)?;
        context.waiters.wake_all(ALL);
        Ok(context.polls)
    }

    /// Removes the operations of all contexts that wait for files.
    pub fn take_polls(&mut self) -> Vec<Rc<Poll>> {
        let contexts = self.0.values_mut();
        let polls = contexts.flat_map(|context| core::mem::take(&mut context.polls));
        polls.collect()
    }
}

/// A request to wait until an open file is ready.
#[derive(Debug)]
pub struct PollRequest {
    /// The address space, and the name of the context in it.
    pub context: (Handle<Space>, u64),
    /// The address of the request.
    pub request: u64,
    /// The program's data, which is returned with the event.
    pub data: u64,
    /// The open file, which the operation keeps open.
    pub file: FileId,
    /// The events that the operation waits for.
    pub events: u32,
    /// The eventfd that hears of the end.
    pub notified: Option<Rc<dyn File>>,
}

/// An operation that waits until an open file is ready.
#[derive(Debug)]
pub struct Poll {
    wanted: PollRequest,
    /// The registrations in the file's wait queues, until the operation ends.
    registrations: RefCell<Vec<Registration>>,
    /// It is in the list of [`FiredPolls`].
    is_fired: Cell<bool>,
    has_ended: Cell<bool>,
}

impl Poll {
    /// Takes the operation out of the file's wait queues.
    fn end(&self) {
        self.has_ended.set(true);
        self.registrations.take();
    }
}

/// The operations whose files have announced an event since the last look. All handles share one
/// list.
#[derive(Debug, Clone, Default)]
pub struct FiredPolls(Rc<RefCell<Vec<Rc<Poll>>>>);

impl FiredPolls {
    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

/// An operation as an observer of its file.
#[derive(Debug)]
struct Watch {
    poll: Weak<Poll>,
    fired: FiredPolls,
}

impl Observer for Watch {
    fn notify(&self, events: u32) -> bool {
        if let Some(poll) = self.poll.upgrade()
            && poll.wanted.events & events != 0
            && !poll.is_fired.replace(true)
        {
            let FiredPolls(list) = &self.fired;
            list.borrow_mut().push(poll);
        }
        false
    }
}

impl Kernel {
    /// Adds an operation that waits in the wait queues of `registrations`.
    ///
    /// # Errors
    /// `EINVAL` if the context does not exist.
    pub(crate) fn add_poll(
        &mut self,
        wanted: PollRequest,
        mut registrations: Vec<Registration>,
    ) -> Result<(), Errno> {
        let (space, context) = wanted.context;
        let context = self.spaces[space].aio.get_mut(context)?;
        self.vfs.files.retain(wanted.file);
        let poll = Rc::new(Poll {
            wanted,
            registrations: RefCell::default(),
            is_fired: Cell::new(false),
            has_ended: Cell::new(false),
        });
        let observer: Rc<dyn Observer> = Rc::new(Watch {
            poll: Rc::downgrade(&poll),
            fired: self.polls.clone(),
        });
        for place in &mut registrations {
            place.enter(Waiter::Observer(Rc::clone(&observer)));
        }
        poll.registrations.replace(registrations);
        context.polls.push(poll);
        Ok(())
    }

    /// Completes an operation that waits for a file with this result.
    pub(crate) fn complete_poll(&mut self, poll: &Rc<Poll>, res: i64) {
        let wanted = &poll.wanted;
        let (space, context) = wanted.context;
        if let Ok(context) = self.spaces[space].aio.get_mut(context) {
            context.polls.retain(|other| !Rc::ptr_eq(other, poll));
            context.complete(IoEvent {
                data: wanted.data,
                obj: wanted.request,
                res,
                res2: 0,
            });
        }
        if let Some(file) = wanted
            .notified
            .as_deref()
            .and_then(<dyn File>::downcast::<EventFd>)
        {
            file.signal();
        }
        poll.end();
        self.io().0.release(wanted.file);
    }

    /// Ends operations that wait for files, without events.
    pub(crate) fn drop_polls(&mut self, polls: Vec<Rc<Poll>>) {
        for poll in polls {
            poll.end();
            self.io().0.release(poll.wanted.file);
        }
    }

    /// Completes the operations whose files have become ready.
    pub(super) fn look_at_polls(&mut self) {
        while let Some(poll) = self.next_fired_poll() {
            poll.is_fired.set(false);
            let wanted = &poll.wanted;
            let Ok(file) = self.vfs.files.get(wanted.file) else {
                continue;
            };
            if poll.has_ended.get() {
                continue;
            }
            let mut table = PollTable::default();
            let mut ready = file.object.poll(&self.view(), file, &mut table);
            let input = table.input && wanted.events & READABLE != 0;
            if input && self.streams.poll_input() {
                ready |= READABLE;
            }
            match ready & wanted.events {
                0 => self.vfs.awaits_input |= input,
                ready => self.complete_poll(&poll, ready.into()),
            }
        }
    }

    fn next_fired_poll(&mut self) -> Option<Rc<Poll>> {
        let FiredPolls(list) = &self.polls;
        list.borrow_mut().pop()
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
        assert_eq!(contexts.remove(4096).err(), Some(Errno::EINVAL));
        contexts.check(65_536).unwrap();
    }
}
