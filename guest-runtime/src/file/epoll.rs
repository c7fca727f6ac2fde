//! epoll(7): interest lists, and the interests of each that may be ready.
//!
//! An interest observes the wait queues of its file. A wake-up puts it on the list of candidates,
//! where it stays until a look finds that it has nothing to report. So `epoll_wait` looks at
//! candidates only, however many files are watched.

use super::Vfs;
use super::description::OpenFile;
use super::operations::{File, Shown};
use super::readable;
use crate::file::view::View;
use crate::fs::process::FileId;
use crate::wait::poll::PollTable;
use crate::wait::{Observer, READABLE, Registration, WaitQueue, Waiter};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, Ref, RefCell};
use core::fmt::{self, Write};
use hartline_linux::errno::Errno;
use hartline_linux::eventpoll::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP};
use hartline_linux::poll::{POLLERR, POLLHUP};

/// Events that an interest reports without being requested.
const ALWAYS: u32 = POLLERR | POLLHUP;
/// Flags that are no events.
const FLAGS: u32 = EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE | EPOLLWAKEUP;
/// Deepest nesting of epoll instances (`EP_MAX_NESTS`).
pub const MAX_NESTING: u32 = 4;
/// Most descriptors of one list.
const MAX_INTERESTS: usize = 1 << 16;

/// Key of an interest: the descriptor and its description when the interest was added. A descriptor
/// that was closed and opened again is another interest, since the old description may be open
/// elsewhere.
pub type Key = (u32, FileId);

/// What a program asks for with `EPOLL_CTL_ADD` or `EPOLL_CTL_MOD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Events and flags.
    pub events: u32,
    /// The program's data, which is returned with the events.
    pub data: u64,
}

/// What a check of a file finds when its interest is added or changed.
#[derive(Debug, Default)]
pub struct Found {
    /// The ready events.
    pub ready: u32,
    /// Nothing announces the readiness of the file reliably, so that each look checks it.
    pub polled: bool,
    /// The places in the file's wait queues.
    pub registrations: Vec<Registration>,
}

/// One interest.
#[derive(Debug)]
pub struct Interest {
    key: Key,
    wanted: Cell<Wanted>,
    /// For [`EPOLLET`]: events of the last report.
    reported: Cell<u32>,
    /// Events with which the file woke the interest since the last look.
    fired: Cell<u32>,
    /// See [`Found::polled`].
    polled: bool,
    /// The position among the candidates, if the interest is one.
    turn: Cell<Option<u64>>,
    /// The places in the file's wait queues. They refer to this interest, until it is removed.
    registrations: RefCell<Vec<Registration>>,
    list: Weak<List>,
}

impl Interest {
    /// The descriptor and its description.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The program's data.
    #[must_use]
    pub fn data(&self) -> u64 {
        self.wanted.get().data
    }

    /// The events this interest waits for; none after a one-shot interest has been reported.
    #[must_use]
    pub fn events(&self) -> u32 {
        let events = self.wanted.get().events;
        match events & !(FLAGS | ALWAYS) {
            0 if events & EPOLLONESHOT != 0 => 0,
            wanted => wanted | ALWAYS,
        }
    }

    /// Puts the result of a look on record: `ready` of the [events](Self::events) are ready.
    /// Returns whether the interest is to be reported. An edge-triggered one is only if an event
    /// was not ready at the last look, or the file has woken the interest for it since.
    #[must_use]
    pub fn look(self: &Rc<Self>, ready: u32) -> bool {
        let fired = self.fired.take();
        let Wanted { events, data } = self.wanted.get();
        let ready = match events & EPOLLET {
            0 => ready,
            _ => ready & (fired | !self.reported.get()),
        };
        if ready == 0 {
            self.reported.set(self.reported.get() & ready);
            return false;
        }
        self.reported.set(ready);
        if events & EPOLLONESHOT != 0 {
            let events = events & (EPOLLONESHOT | EPOLLET);
            self.wanted.set(Wanted { events, data });
        } else if events & EPOLLET == 0
            && let Some(list) = self.list.upgrade()
        {
            // A level-triggered interest stays a candidate until a look finds it not ready.
            list.candidates.borrow_mut().push(self);
        }
        true
    }
}

/// The interest as an observer of its file. The queue owns it, so the interest has two owners: the
/// list and the queues of its file.
#[derive(Debug)]
struct Watch(Rc<Interest>);

impl Observer for Watch {
    /// Makes the interest a candidate, and wakes a task that waits for the list.
    fn notify(&self, events: u32) -> bool {
        let Self(interest) = self;
        let fired = interest.events() & events;
        let (1.., Some(list)) = (fired, interest.list.upgrade()) else {
            return false;
        };
        interest.fired.set(interest.fired.get() | fired);
        list.candidates.borrow_mut().push(interest);
        list.waiters.wake(READABLE)
    }

    fn depth(&self) -> u32 {
        let Self(interest) = self;
        let list = interest.list.upgrade();
        list.map_or(0, |list| list.waiters.depth())
    }
}

/// The interests that may be ready, in the order in which they became so. Adding, removing and
/// taking one takes constant time: a removed interest leaves its entry behind, which is skipped.
#[derive(Debug, Default)]
struct Candidates {
    /// Entries by ascending turn; one is stale if its interest has another turn, or none.
    entries: VecDeque<(u64, Rc<Interest>)>,
    stale: usize,
    last_turn: u64,
}

impl Candidates {
    fn is_current((turn, interest): &(u64, Rc<Interest>)) -> bool {
        interest.turn.get() == Some(*turn)
    }

    fn is_empty(&self) -> bool {
        self.entries.len() == self.stale
    }

    /// Appends an interest, if it is no candidate.
    fn push(&mut self, interest: &Rc<Interest>) {
        if interest.turn.get().is_none() {
            self.last_turn += 1;
            interest.turn.set(Some(self.last_turn));
            self.entries
                .push_back((self.last_turn, Rc::clone(interest)));
        }
    }

    fn remove(&mut self, interest: &Interest) {
        /// Fewer stale entries are not worth a pass.
        const FEW: usize = 16;
        if interest.turn.take().is_some() {
            self.stale += 1;
            if self.stale > FEW + self.entries.len() / 2 {
                self.entries.retain(Self::is_current);
                self.stale = 0;
            }
        }
    }

    /// Removes the first candidate whose turn is at most `last`.
    fn pop(&mut self, last: u64) -> Option<Rc<Interest>> {
        while let Some(entry) = self.entries.pop_front_if(|(turn, _)| *turn <= last) {
            if Self::is_current(&entry) {
                let (_, interest) = entry;
                interest.turn.set(None);
                return Some(interest);
            }
            self.stale -= 1;
        }
        None
    }
}

/// The state of an interest list.
#[derive(Debug, Default)]
struct List {
    interests: RefCell<BTreeMap<Key, Rc<Interest>>>,
    /// The interests that each look checks.
    polled: RefCell<BTreeMap<Key, Rc<Interest>>>,
    candidates: RefCell<Candidates>,
    /// Tasks that wait for the list, and lists that watch it.
    waiters: WaitQueue,
}

impl List {
    /// Puts an interest that the program has just set on the list of candidates, if it is ready.
    fn start(&self, interest: &Rc<Interest>, ready: u32) {
        if ready & interest.events() != 0 || interest.polled {
            self.candidates.borrow_mut().push(interest);
            self.waiters.wake(READABLE);
        }
    }

    fn remove(&self, key: Key) -> Option<Rc<Interest>> {
        let interest = self.interests.borrow_mut().remove(&key)?;
        self.polled.borrow_mut().remove(&key);
        self.candidates.borrow_mut().remove(&interest);
        interest.registrations.take();
        Some(interest)
    }
}

/// An interest list.
#[derive(Debug, Default)]
pub struct Epoll(Rc<List>);

impl Epoll {
    /// The interests.
    pub fn interests(&self) -> Ref<'_, BTreeMap<Key, Rc<Interest>>> {
        self.0.interests.borrow()
    }

    /// Tasks that wait for the list, and lists that watch it.
    #[must_use]
    pub fn waiters(&self) -> &WaitQueue {
        &self.0.waiters
    }

    /// Begins a look at the candidates. Pass the result to
    /// [`next_candidate`](Self::next_candidate).
    #[must_use]
    pub fn begin_look(&self) -> u64 {
        let mut candidates = self.0.candidates.borrow_mut();
        for interest in self.0.polled.borrow().values() {
            candidates.push(interest);
        }
        candidates.last_turn
    }

    /// Removes the first candidate whose turn is at most `last`.
    #[must_use]
    pub fn next_candidate(&self, last: u64) -> Option<Rc<Interest>> {
        self.0.candidates.borrow_mut().pop(last)
    }

    /// Ends a look: if there are more candidates, another waiting task is to look at them.
    pub fn end_look(&self) {
        if !self.0.candidates.borrow().is_empty() {
            self.0.waiters.pass_on(READABLE);
        }
    }

    /// Whether `is_ready` holds for a candidate, or for an interest that each look checks.
    pub fn any_candidate(&self, mut is_ready: impl FnMut(&Interest) -> bool) -> bool {
        let candidates = self.0.candidates.borrow();
        let mut current = candidates
            .entries
            .iter()
            .filter(|entry| Candidates::is_current(entry));
        current.any(|(_, interest)| is_ready(interest))
            || self
                .0
                .polled
                .borrow()
                .values()
                .any(|interest| is_ready(interest))
    }

    /// Number of entries among the candidates, current or stale.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.0.candidates.borrow().entries.len()
    }

    fn add(&self, key: Key, wanted: Wanted, found: Found) -> Result<Rc<Interest>, Errno> {
        let mut interests = self.0.interests.borrow_mut();
        if interests.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        if interests.len() >= MAX_INTERESTS {
            return Err(Errno::ENOSPC);
        }
        let Found {
            ready,
            polled,
            mut registrations,
        } = found;
        let interest = Rc::new(Interest {
            key,
            wanted: Cell::new(wanted),
            reported: Cell::new(0),
            fired: Cell::new(0),
            polled,
            turn: Cell::new(None),
            registrations: RefCell::default(),
            list: Rc::downgrade(&self.0),
        });
        let observer: Rc<dyn Observer> = Rc::new(Watch(Rc::clone(&interest)));
        for registration in &mut registrations {
            if wanted.events & EPOLLEXCLUSIVE != 0 {
                registration.set_exclusive();
            }
            registration.enter(Waiter::Observer(Rc::clone(&observer)));
        }
        interest.registrations.replace(registrations);
        interests.insert(key, Rc::clone(&interest));
        if polled {
            self.0.polled.borrow_mut().insert(key, Rc::clone(&interest));
        }
        drop(interests);
        self.0.start(&interest, ready);
        Ok(interest)
    }
}

impl File for Epoll {
    fn name(&self) -> &'static str {
        "[eventpoll]"
    }

    fn show_fdinfo(&self, shown: &Shown<'_>, out: &mut String) -> fmt::Result {
        for (&(fd, _), interest) in self.interests().iter() {
            let Wanted { events, data } = interest.wanted.get();
            let events = events & FLAGS | interest.events();
            // A descriptor that was closed has no file here.
            let Ok(file) = shown.vfs.file(shown.process, fd) else {
                continue;
            };
            let found = shown.vfs.fs.attributes(file.ino, shown.process);
            let (device, ino) = found.map_or((0, 0), |found| (found.device, found.ino));
            writeln!(
                out,
                "tfd: {fd:8} events: {events:8x} data: {data:16x}  pos:{} ino:{ino:x} sdev:{device:x}",
                file.offset
            )?;
        }
        Ok(())
    }

    /// Checks the candidates. Their own queues wake this list, so the caller waits for this list
    /// only.
    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(self.waiters());
        if table.depth >= MAX_NESTING {
            return 0;
        }
        let mut inner = PollTable::default();
        inner.depth = table.depth + 1;
        let is_ready = |interest: &Interest| {
            let (_, id) = interest.key();
            let file = view.vfs.files.get(id);
            file.is_ok_and(|file| file.object.poll(view, file, &mut inner) & interest.events() != 0)
        };
        let is_ready = self.any_candidate(is_ready);
        table.input |= inner.input;
        readable(is_ready)
    }
}

impl Vfs {
    /// The interest list of an open file description.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` if the description is not an interest list.
    pub fn epoll(&self, id: FileId) -> Result<&Epoll, Errno> {
        let file = self.files.get(id)?;
        file.object.downcast().ok_or(Errno::EINVAL)
    }

    /// Adds an interest (`EPOLL_CTL_ADD`). The places of `found` must be for all events: the
    /// interest selects itself.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`; errors of [`epoll`](Self::epoll).
    pub fn add_interest(
        &mut self,
        epoll: FileId,
        key: Key,
        wanted: Wanted,
        found: Found,
    ) -> Result<(), Errno> {
        self.files.get(key.1)?;
        let interest = self.epoll(epoll)?.add(key, wanted, found)?;
        self.files.get_mut(key.1)?.interests.push(interest);
        Ok(())
    }

    /// Changes an interest (`EPOLL_CTL_MOD`) in a file with the events `ready`.
    ///
    /// # Errors
    /// `ENOENT`; errors of [`epoll`](Self::epoll).
    pub fn modify_interest(
        &mut self,
        epoll: FileId,
        key: Key,
        wanted: Wanted,
        ready: u32,
    ) -> Result<(), Errno> {
        let Epoll(list) = self.epoll(epoll)?;
        let interest = list.interests.borrow().get(&key).cloned();
        let interest = interest.ok_or(Errno::ENOENT)?;
        list.candidates.borrow_mut().remove(&interest);
        interest.wanted.set(wanted);
        interest.reported.set(0);
        interest.fired.set(0);
        list.start(&interest, ready);
        Ok(())
    }

    /// Removes an interest (`EPOLL_CTL_DEL`).
    ///
    /// # Errors
    /// `ENOENT`; errors of [`epoll`](Self::epoll).
    pub fn remove_interest(&mut self, epoll: FileId, key: Key) -> Result<(), Errno> {
        let Epoll(list) = self.epoll(epoll)?;
        let interest = list.remove(key).ok_or(Errno::ENOENT)?;
        if let Ok(file) = self.files.get_mut(key.1) {
            file.forget_interest(&interest);
        }
        Ok(())
    }

    /// Removes all interests in a closed description and, if that was an interest list, all of its
    /// interests.
    pub(super) fn forget_interests(&mut self, closed: &OpenFile) {
        for interest in &closed.interests {
            if let Some(list) = interest.list.upgrade() {
                list.remove(interest.key);
            }
        }
        let Some(Epoll(list)) = closed.object.downcast() else {
            return;
        };
        list.candidates.take();
        list.polled.take();
        for (key, interest) in list.interests.take() {
            interest.registrations.take();
            if let Ok(file) = self.files.get_mut(key.1) {
                file.forget_interest(&interest);
            }
        }
    }
}
