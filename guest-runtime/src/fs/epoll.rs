//! epoll(7): interest lists, and the interests of each that may be ready.
//!
//! An interest is a candidate from the moment its file changes until a look finds that it has
//! nothing to report. So `epoll_wait` looks at candidates only, however many files are watched.

use super::Vfs;
use super::file::OpenFile;
use super::process::FileId;
use super::types::Ino;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::{Ref, RefCell};
use hartline_linux::errno::Errno;
use hartline_linux::eventpoll::{EPOLLET, EPOLLONESHOT};

/// Most descriptors of one list.
const MAX_INTERESTS: usize = 1 << 16;

/// How a change of readiness of a file is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcement {
    /// Each change of the file is among [`Vfs::take_changes`].
    Change,
    /// The host announces standard input. Nothing else of the file makes a task wait.
    Input,
    /// Not at all: a task that waits for the file checks it after each change of any file.
    Nothing,
}

/// Key of an interest: the descriptor and its description when the interest was added. A descriptor
/// that was closed and opened again is another interest, since the old description may be open
/// elsewhere.
pub type Key = (u32, FileId);

/// One interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// The inode of the description.
    pub ino: Ino,
    /// How a change of readiness is announced.
    pub announcement: Announcement,
    /// Events and flags.
    pub events: u32,
    /// The program's data, which is returned with the events.
    pub data: u64,
    /// For [`EPOLLET`]: events of the last report.
    pub reported: u32,
    /// [`Vfs::edges`] of the last report.
    pub seen: [u32; 2],
    /// The position among the candidates, if the interest is one.
    turn: Option<u64>,
}

impl Interest {
    /// An interest that has reported nothing.
    pub fn new(ino: Ino, announcement: Announcement, events: u32, data: u64) -> Self {
        Self {
            ino,
            announcement,
            events,
            data,
            reported: 0,
            seen: [0; 2],
            turn: None,
        }
    }
}

/// An interest list.
#[derive(Debug, Default)]
pub struct Epoll(RefCell<List>);

/// The state of an interest list.
#[derive(Debug, Default)]
struct List {
    interests: BTreeMap<Key, Interest>,
    /// Interests that may be ready, by turn.
    candidates: BTreeMap<u64, Key>,
    /// The interests in each inode.
    by_ino: BTreeMap<Ino, Vec<Key>>,
    /// Interests whose changes are not announced.
    unannounced: BTreeSet<Key>,
    last_turn: u64,
}

impl List {
    fn add(&mut self, key: Key, interest: Interest) -> Result<(), Errno> {
        if self.interests.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        if self.interests.len() >= MAX_INTERESTS {
            return Err(Errno::ENOSPC);
        }
        self.by_ino.entry(interest.ino).or_default().push(key);
        if interest.announcement != Announcement::Change {
            self.unannounced.insert(key);
        }
        self.interests.insert(key, interest);
        self.make_candidate(key);
        Ok(())
    }

    fn modify(&mut self, key: Key, interest: Interest) -> Result<(), Errno> {
        let known = self.interests.get_mut(&key).ok_or(Errno::ENOENT)?;
        if let Some(turn) = known.turn {
            self.candidates.remove(&turn);
        }
        *known = interest;
        self.make_candidate(key);
        Ok(())
    }

    fn remove(&mut self, key: Key) -> Option<Interest> {
        let interest = self.interests.remove(&key)?;
        if let Some(turn) = interest.turn {
            self.candidates.remove(&turn);
        }
        self.unannounced.remove(&key);
        if let Some(keys) = self.by_ino.get_mut(&interest.ino) {
            keys.retain(|&other| other != key);
            if keys.is_empty() {
                self.by_ino.remove(&interest.ino);
            }
        }
        Some(interest)
    }

    /// Appends an interest to the candidates, if it is not one.
    fn make_candidate(&mut self, key: Key) {
        if let Some(interest) = self.interests.get_mut(&key)
            && interest.turn.is_none()
        {
            self.last_turn += 1;
            interest.turn = Some(self.last_turn);
            self.candidates.insert(self.last_turn, key);
        }
    }

    /// Makes the interests in the changed file `ino` candidates.
    fn note_change(&mut self, ino: Ino) {
        for key in self.by_ino.get(&ino).cloned().unwrap_or_default() {
            self.make_candidate(key);
        }
    }
}

impl Epoll {
    /// The interests.
    pub fn interests(&self) -> Ref<'_, BTreeMap<Key, Interest>> {
        Ref::map(self.0.borrow(), |list| &list.interests)
    }

    /// The keys of the interests in the file `ino`.
    fn keys(&self, ino: Ino) -> Vec<Key> {
        let list = self.0.borrow();
        list.by_ino.get(&ino).cloned().unwrap_or_default()
    }

    /// Whether a task that waits for the list must check it after each change of any file.
    pub fn needs_any_change(&self) -> bool {
        let list = self.0.borrow();
        let mut interests = list.unannounced.iter().map(|key| list.interests.get(key));
        interests.any(|interest| {
            interest.is_some_and(|interest| interest.announcement == Announcement::Nothing)
        })
    }

    /// Begins a pass over the candidates, which include all unannounced interests. Pass the result
    /// to [`next_candidate`](Self::next_candidate).
    pub fn begin_look(&self) -> u64 {
        let mut list = self.0.borrow_mut();
        for key in list.unannounced.clone() {
            list.make_candidate(key);
        }
        list.last_turn
    }

    /// Removes the first candidate whose turn is at most `last`.
    pub fn next_candidate(&self, last: u64) -> Option<(Key, Interest)> {
        let mut list = self.0.borrow_mut();
        let (&turn, &key) = list.candidates.range(..=last).next()?;
        list.candidates.remove(&turn);
        let interest = list.interests.get_mut(&key)?;
        interest.turn = None;
        Some((key, *interest))
    }

    /// Records that an interest had nothing new to report; `ready` masks the last report.
    pub fn pass(&self, key: Key, ready: u32) {
        if let Some(interest) = self.0.borrow_mut().interests.get_mut(&key) {
            interest.reported &= ready;
        }
    }

    /// Records a report of `ready`, with the edges at that time.
    pub fn report(&self, key: Key, ready: u32, seen: [u32; 2]) {
        let mut list = self.0.borrow_mut();
        let Some(interest) = list.interests.get_mut(&key) else {
            return;
        };
        interest.reported = ready;
        interest.seen = seen;
        if interest.events & EPOLLONESHOT != 0 {
            interest.events &= EPOLLONESHOT | EPOLLET;
        } else if interest.events & EPOLLET == 0 {
            // A level-triggered interest stays a candidate until a pass finds it not ready.
            list.make_candidate(key);
        }
    }
}

/// Which interest lists watch which inode.
#[derive(Debug, Default)]
pub struct Watchers(BTreeSet<(Ino, FileId)>);

impl Watchers {
    /// The lists that watch `ino`.
    fn of(&self, ino: Ino) -> Vec<FileId> {
        let all = (ino, FileId(0))..=(ino, FileId(u64::MAX));
        self.0.range(all).map(|&(_, epoll)| epoll).collect()
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

    /// Adds an interest (`EPOLL_CTL_ADD`).
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`; errors of [`epoll`](Self::epoll).
    pub fn add_interest(
        &mut self,
        epoll: FileId,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        self.epoll(epoll)?.0.borrow_mut().add(key, interest)?;
        self.watchers.0.insert((interest.ino, epoll));
        self.announce_epoll(epoll)
    }

    /// Changes an interest (`EPOLL_CTL_MOD`).
    ///
    /// # Errors
    /// `ENOENT`; errors of [`epoll`](Self::epoll).
    pub fn modify_interest(
        &mut self,
        epoll: FileId,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        self.epoll(epoll)?.0.borrow_mut().modify(key, interest)?;
        self.announce_epoll(epoll)
    }

    /// Removes an interest (`EPOLL_CTL_DEL`).
    ///
    /// # Errors
    /// `ENOENT`; errors of [`epoll`](Self::epoll).
    pub fn remove_interest(&mut self, epoll: FileId, key: Key) -> Result<(), Errno> {
        let mut list = self.epoll(epoll)?.0.borrow_mut();
        let Interest { ino, .. } = list.remove(key).ok_or(Errno::ENOENT)?;
        let is_last = !list.by_ino.contains_key(&ino);
        drop(list);
        if is_last {
            self.watchers.0.remove(&(ino, epoll));
        }
        Ok(())
    }

    /// Wakes the tasks that wait for an interest list.
    fn announce_epoll(&mut self, epoll: FileId) -> Result<(), Errno> {
        let ino = self.files.get(epoll)?.ino;
        self.changed.push(ino);
        Ok(())
    }

    /// Makes all interests in `changed` candidates, and adds their lists to `changed`.
    pub(super) fn announce_to_epolls(&mut self, changed: &mut Vec<Ino>) {
        if self.watchers.0.is_empty() {
            return;
        }
        for index in 0..changed.len() {
            let ino = changed[index];
            for epoll in self.watchers.of(ino) {
                let Ok(file) = self.files.get(epoll) else {
                    continue;
                };
                if let Some(list) = file.object.downcast::<Epoll>() {
                    list.0.borrow_mut().note_change(ino);
                }
                changed.push(file.ino);
            }
        }
    }

    /// Removes all interests in a closed description and, if that was an interest list, its entries
    /// among the watchers.
    pub(super) fn forget_interests(&mut self, id: FileId, closed: &OpenFile) {
        let ino = closed.ino;
        for epoll in self.watchers.of(ino) {
            let Ok(list) = self.epoll(epoll) else {
                continue;
            };
            let keys = list.keys(ino);
            for key in keys.into_iter().filter(|&(_, file)| file == id) {
                // The key exists: the list has just returned it.
                let _ = self.remove_interest(epoll, key);
            }
        }
        if let Some(list) = closed.object.downcast::<Epoll>() {
            for &ino in list.0.borrow().by_ino.keys() {
                self.watchers.0.remove(&(ino, id));
            }
        }
    }
}
