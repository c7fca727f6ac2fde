//! epoll(7): interest lists, and the interests of each that may be ready.
//!
//! An interest is a candidate from the moment its file changes until a look finds that it has
//! nothing to report. So `epoll_wait` looks at candidates only, however many files are watched.

use super::Vfs;
use super::file::Object;
use super::process::FileId;
use super::types::Ino;
use crate::errno::Errno;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// `EPOLLONESHOT`
pub const ONESHOT: u32 = 1 << 30;
/// `EPOLLET`
pub const EDGE: u32 = 1 << 31;
/// Most descriptors of one list.
const MAX_INTERESTS: usize = 1 << 16;

/// How one learns that a file has become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcement {
    /// Each change of the file is among [`Vfs::take_changes`].
    Change,
    /// The host tells when there is standard input. Nothing else of the file makes a task wait.
    Input,
    /// Nothing tells: a task that waits for the file looks again after each change of any file.
    Nothing,
}

/// Names an interest: the descriptor, and the description that it was when it was added. A
/// descriptor that was closed and opened anew is another interest, since the old description may
/// be open elsewhere.
pub type Key = (u32, FileId);

/// One interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// The inode of the description.
    pub ino: Ino,
    /// How one learns that the description has become ready.
    pub announcement: Announcement,
    /// Events and flags.
    pub events: u32,
    /// What the program wants to see with them.
    pub data: u64,
    /// For [`EDGE`]: events of the last report.
    pub reported: u32,
    /// [`Vfs::edges`] of the last report.
    pub seen: [u32; 2],
    /// The position among the candidates, if it is one.
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
pub struct Epoll {
    interests: BTreeMap<Key, Interest>,
    /// Interests that may be ready, by their turns.
    candidates: BTreeMap<u64, Key>,
    /// The interests in each inode.
    by_ino: BTreeMap<Ino, Vec<Key>>,
    /// Interests whose changes are not announced.
    unannounced: BTreeSet<Key>,
    last_turn: u64,
}

impl Epoll {
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

    /// Puts an interest behind all candidates, if it is not one.
    fn make_candidate(&mut self, key: Key) {
        if let Some(interest) = self.interests.get_mut(&key)
            && interest.turn.is_none()
        {
            self.last_turn += 1;
            interest.turn = Some(self.last_turn);
            self.candidates.insert(self.last_turn, key);
        }
    }

    /// The file `ino` has changed.
    fn note_change(&mut self, ino: Ino) {
        for key in self.by_ino.get(&ino).cloned().unwrap_or_default() {
            self.make_candidate(key);
        }
    }

    /// Every interest.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Interest)> {
        self.interests
            .iter()
            .map(|(&key, interest)| (key, interest))
    }

    /// Whether a task that waits for the list has to look again after each change of any file.
    pub fn needs_any_change(&self) -> bool {
        let mut interests = self.unannounced.iter().map(|key| self.interests.get(key));
        interests.any(|interest| {
            interest.is_some_and(|interest| interest.announcement == Announcement::Nothing)
        })
    }

    /// Begins a look at the candidates, among which are all interests whose changes are not
    /// announced. The result goes to [`next_candidate`](Self::next_candidate).
    pub fn begin_look(&mut self) -> u64 {
        for key in self.unannounced.clone() {
            self.make_candidate(key);
        }
        self.last_turn
    }

    /// Takes out the first candidate whose turn is not after `last`.
    pub fn next_candidate(&mut self, last: u64) -> Option<(Key, Interest)> {
        let (&turn, &key) = self.candidates.range(..=last).next()?;
        self.candidates.remove(&turn);
        let interest = self.interests.get_mut(&key)?;
        interest.turn = None;
        Some((key, *interest))
    }

    /// Notes that an interest had nothing to report: of what it reported last, `ready` still is.
    pub fn pass(&mut self, key: Key, ready: u32) {
        if let Some(interest) = self.interests.get_mut(&key) {
            interest.reported &= ready;
        }
    }

    /// Notes that `ready` was reported of an interest, with its edges at that time.
    pub fn report(&mut self, key: Key, ready: u32, seen: [u32; 2]) {
        let Some(interest) = self.interests.get_mut(&key) else {
            return;
        };
        interest.reported = ready;
        interest.seen = seen;
        if interest.events & ONESHOT != 0 {
            interest.events &= ONESHOT | EDGE;
        } else if interest.events & EDGE == 0 {
            // Until a look finds that it is not ready any more.
            self.make_candidate(key);
        }
    }
}

/// Which interest lists watch which inodes.
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
    /// The interest list that is an open file description.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for something else.
    pub fn epoll(&mut self, id: FileId) -> Result<&mut Epoll, Errno> {
        match &mut self.files.get_mut(id)?.object {
            Object::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Adds an interest (`EPOLL_CTL_ADD`).
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`; those of [`epoll`](Self::epoll).
    pub fn add_interest(
        &mut self,
        epoll: FileId,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        self.epoll(epoll)?.add(key, interest)?;
        self.watchers.0.insert((interest.ino, epoll));
        self.announce_epoll(epoll)
    }

    /// Changes an interest (`EPOLL_CTL_MOD`).
    ///
    /// # Errors
    /// `ENOENT`; those of [`epoll`](Self::epoll).
    pub fn modify_interest(
        &mut self,
        epoll: FileId,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        self.epoll(epoll)?.modify(key, interest)?;
        self.announce_epoll(epoll)
    }

    /// Removes an interest (`EPOLL_CTL_DEL`).
    ///
    /// # Errors
    /// `ENOENT`; those of [`epoll`](Self::epoll).
    pub fn remove_interest(&mut self, epoll: FileId, key: Key) -> Result<(), Errno> {
        let list = self.epoll(epoll)?;
        let Interest { ino, .. } = list.remove(key).ok_or(Errno::ENOENT)?;
        if !list.by_ino.contains_key(&ino) {
            self.watchers.0.remove(&(ino, epoll));
        }
        Ok(())
    }

    /// Lets the tasks that wait for an interest list look again.
    fn announce_epoll(&mut self, epoll: FileId) -> Result<(), Errno> {
        let ino = self.files.get(epoll)?.ino;
        self.changed.push(ino);
        Ok(())
    }

    /// Makes candidates of all interests in `changed`, and adds the lists that have some.
    pub(super) fn announce_to_epolls(&mut self, changed: &mut Vec<Ino>) {
        if self.watchers.0.is_empty() {
            return;
        }
        for index in 0..changed.len() {
            let ino = changed[index];
            for epoll in self.watchers.of(ino) {
                if let Ok(list) = self.epoll(epoll) {
                    list.note_change(ino);
                }
                if let Ok(file) = self.files.get(epoll) {
                    changed.push(file.ino);
                }
            }
        }
    }

    /// Forgets all interests in a description that was closed, and, if it was an interest list,
    /// what it watched.
    pub(super) fn forget_interests(&mut self, id: FileId, ino: Ino, object: &Object) {
        for epoll in self.watchers.of(ino) {
            let Ok(list) = self.epoll(epoll) else {
                continue;
            };
            let keys = list.by_ino.get(&ino).cloned().unwrap_or_default();
            for key in keys.into_iter().filter(|&(_, file)| file == id) {
                // It is there: the list has just named it.
                let _ = self.remove_interest(epoll, key);
            }
        }
        if let Object::Epoll(list) = object {
            for &ino in list.by_ino.keys() {
                self.watchers.0.remove(&(ino, id));
            }
        }
    }
}
