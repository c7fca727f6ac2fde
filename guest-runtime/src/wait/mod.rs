//! Wait queues: the tasks that wait for an open file, and the events that each waits for.
//!
//! Everything that can become ready (a pipe, a socket, an eventfd, …) owns a [`WaitQueue`]. A task
//! that blocks, an interest of epoll and the owner of a file with `O_ASYNC` register there. The code
//! that changes the state wakes the queue in the same place, with the events that the change may
//! have made ready. Woken tasks go to the list [`Woken`], which the scheduler empties at the end of
//! the system call.
//!
//! No wake-up is lost, because:
//!
//! - A system call checks its condition before it blocks, and the kernel's lock is held from that
//!   check until the task is registered. A change before the check is seen by the check, one after
//!   it finds the task in the queue.
//! - The queue is only a hint: the system call is repeated from its start, and checks again. So a
//!   wake-up too many is harmless, and the queue need not know the condition.
//! - The events of a wake-up include every event that the change may have made ready. A change that
//!   may have made anything ready, such as the end of a connection, wakes with [`ALL`].
//! - A task that blocks in several queues is registered in all of them before it sleeps. The first
//!   wake-up ends its wait and takes it out of the others.
//! - An exclusive task that was woken is out of the queue. Either its repeated call succeeds, and
//!   the operation itself wakes the next task if there is more to take; or the call fails or the
//!   task ends, and the kernel [passes the wake-up on](WaitQueue::pass_on).
//! - Observers stay registered until their file or their interest list is closed.

pub mod poll;
#[cfg(test)]
mod tests;
pub mod time;

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt::{self, Debug, Formatter};
use hartline_linux::poll::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};

/// All events that mean "readable".
pub const READABLE: u32 = POLLIN | POLLRDNORM;
/// All events that mean "writable".
pub const WRITABLE: u32 = POLLOUT | POLLWRNORM;
/// All events.
pub const ALL: u32 = u32::MAX;

/// The tasks that were woken and are not ready yet, in order. All handles share one list.
#[derive(Debug, Clone, Default)]
pub struct Woken(Rc<RefCell<VecDeque<u32>>>);

impl Woken {
    /// Whether no task was woken.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Removes the task that was woken first.
    #[must_use]
    pub fn pop(&self) -> Option<u32> {
        self.0.borrow_mut().pop_front()
    }

    fn push(&self, tid: u32) {
        self.0.borrow_mut().push_back(tid);
    }
}

/// Something other than a task that follows the events of a file.
pub trait Observer: Debug {
    /// Handles `events` of the file. Returns whether a task was woken.
    ///
    /// The queue is borrowed meanwhile: the observer may wake other queues, but not this one.
    fn notify(&self, events: u32) -> bool;

    /// Number of queues that a notification may reach one behind the other.
    fn depth(&self) -> u32 {
        0
    }
}

/// The registered party.
#[derive(Debug, Clone)]
pub enum Waiter {
    /// A task, which is woken once, through the scheduler's list.
    Task(u32, Woken),
    /// An observer, which is notified each time.
    Observer(Rc<dyn Observer>),
}

#[derive(Debug)]
struct Entry {
    /// Entries are in ascending order.
    id: u64,
    /// The events that the party waits for.
    events: u32,
    /// At most one exclusive party is woken at a time.
    exclusive: bool,
    waiter: Waiter,
}

/// The parties that a wake-up reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All that are not exclusive, and one that is.
    One,
    /// All.
    All,
    /// One that is exclusive.
    Next,
}

#[derive(Default)]
struct Queue {
    entries: RefCell<Vec<Entry>>,
    last: Cell<u64>,
}

/// The parties that wait for one file, in the order of their registration. All handles refer to the
/// same queue, which lives as long as its file or a registration.
#[derive(Clone, Default)]
pub struct WaitQueue(Rc<Queue>);

impl Debug for WaitQueue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The entries lead to interest lists and back.
        write!(f, "WaitQueue({})", self.0.entries.borrow().len())
    }
}

impl WaitQueue {
    /// Wakes the parties that wait for one of `events`: all that are not exclusive, and exclusive
    /// ones up to the first that wakes a task. Returns whether a task was woken.
    #[inline]
    pub fn wake(&self, events: u32) -> bool {
        self.wake_some(events, Reach::One)
    }

    /// As [`wake`](Self::wake), but wakes all exclusive parties too: for changes that concern every
    /// task, such as the end of a connection.
    #[inline]
    pub fn wake_all(&self, events: u32) -> bool {
        self.wake_some(events, Reach::All)
    }

    /// Wakes only exclusive parties, up to the first that wakes a task: there is more to take than
    /// the task took that was woken before, or that task took nothing.
    #[inline]
    pub fn pass_on(&self, events: u32) {
        self.wake_some(events, Reach::Next);
    }

    #[inline]
    fn wake_some(&self, events: u32, reach: Reach) -> bool {
        !self.0.entries.borrow().is_empty() && self.wake_entries(events, reach)
    }

    fn wake_entries(&self, events: u32, reach: Reach) -> bool {
        let (mut woken, mut is_taken) = (false, false);
        self.0.entries.borrow_mut().retain(|entry| {
            let is_reached = match (reach, entry.exclusive) {
                (Reach::All, _) => true,
                (_, true) => !is_taken,
                (_, false) => reach == Reach::One,
            };
            if entry.events & events == 0 || !is_reached {
                return true;
            }
            let (wakes, stays) = match &entry.waiter {
                Waiter::Task(tid, list) => {
                    list.push(*tid);
                    (true, false)
                }
                Waiter::Observer(observer) => (observer.notify(events), true),
            };
            woken |= wakes;
            is_taken |= wakes && entry.exclusive;
            stays
        });
        woken
    }

    /// Whether a task is registered.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        let entries = self.0.entries.borrow();
        (entries.iter()).any(|entry| matches!(entry.waiter, Waiter::Task(..)))
    }

    /// Number of queues that a notification may reach one behind the other, this one included.
    #[must_use]
    pub fn depth(&self) -> u32 {
        let entries = self.0.entries.borrow();
        let behind = entries.iter().map(|entry| match &entry.waiter {
            Waiter::Observer(observer) => observer.depth(),
            Waiter::Task(..) => 0,
        });
        1 + behind.max().unwrap_or(0)
    }

    fn add(&self, events: u32, exclusive: bool, waiter: Waiter) -> u64 {
        let id = self.0.last.get() + 1;
        self.0.last.set(id);
        self.0.entries.borrow_mut().push(Entry {
            id,
            events,
            exclusive,
            waiter,
        });
        id
    }

    fn position(&self, id: u64) -> Option<usize> {
        let entries = self.0.entries.borrow();
        entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }
}

/// A place in a wait queue. It is taken out of the queue when it is dropped.
#[derive(Debug)]
pub struct Registration {
    queue: WaitQueue,
    events: u32,
    exclusive: bool,
    /// The number of the entry; 0: not registered yet.
    id: u64,
}

impl Registration {
    /// A place for `events`, which is not in the queue yet.
    #[must_use]
    pub fn new(queue: &WaitQueue, events: u32) -> Self {
        Self {
            queue: queue.clone(),
            events,
            exclusive: false,
            id: 0,
        }
    }

    /// Makes the place exclusive: a wake-up reaches only one of several exclusive parties.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.set_exclusive();
        self
    }

    /// See [`exclusive`](Self::exclusive).
    pub fn set_exclusive(&mut self) {
        self.exclusive = true;
    }

    /// Whether the place is exclusive.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Puts `waiter` into the queue, behind all others.
    pub fn enter(&mut self, waiter: Waiter) {
        self.leave();
        self.id = self.queue.add(self.events, self.exclusive, waiter);
    }

    /// Whether a wake-up has taken a task out of the queue.
    #[must_use]
    pub fn was_woken(&self) -> bool {
        self.id != 0 && self.queue.position(self.id).is_none()
    }

    /// Hands the wake-up that this place received to the next exclusive party.
    pub fn pass_on(&self) {
        self.queue.pass_on(self.events);
    }

    fn leave(&mut self) {
        if let Some(index) = self.queue.position(self.id) {
            self.queue.0.entries.borrow_mut().remove(index);
        }
        self.id = 0;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.leave();
    }
}
