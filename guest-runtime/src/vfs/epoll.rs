//! Interest lists of epoll.

use super::process::FileId;
use alloc::collections::BTreeMap;
use hartline_linux::errno::Errno;
use hartline_linux::eventpoll::{EPOLLET, EPOLLONESHOT};

/// Most descriptors of one list.
const MAX_INTERESTS: usize = 1 << 16;

/// One interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// The description that the descriptor was when it was added.
    pub file: FileId,
    /// Events and flags.
    pub events: u32,
    /// What the program wants to see with them.
    pub data: u64,
    /// For [`EPOLLET`]: events of the last report, and how often something had come in and
    /// room had come about by then.
    pub reported: u32,
    /// See [`reported`](Self::reported).
    pub seen: [u32; 2],
    /// Its place among those that are ready: after those with smaller numbers.
    pub turn: u64,
}

/// An interest list, by descriptor and what it was when it was added: a descriptor that was closed
/// and opened anew is another entry, since the old description may be open elsewhere.
#[derive(Debug, Default)]
pub struct Epoll {
    interests: BTreeMap<(u32, FileId), Interest>,
    last_turn: u64,
}

impl Epoll {
    /// The place behind all others, so that everybody has a turn.
    fn next_turn(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`.
    pub fn add(&mut self, fd: u32, interest: Interest) -> Result<(), Errno> {
        let key = (fd, interest.file);
        if self.interests.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        if self.interests.len() >= MAX_INTERESTS {
            return Err(Errno::ENOSPC);
        }
        let turn = self.next_turn();
        self.interests.insert(key, Interest { turn, ..interest });
        Ok(())
    }

    /// Changes an interest.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn modify(&mut self, fd: u32, interest: Interest) -> Result<(), Errno> {
        let turn = self.next_turn();
        let known = self.interests.get_mut(&(fd, interest.file));
        *known.ok_or(Errno::ENOENT)? = Interest { turn, ..interest };
        Ok(())
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn remove(&mut self, fd: u32, file: FileId) -> Result<(), Errno> {
        let removed = self.interests.remove(&(fd, file));
        removed.map(|_| ()).ok_or(Errno::ENOENT)
    }

    /// Every interest.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Interest)> {
        let interests = self.interests.iter();
        interests.map(|(&(fd, _), interest)| (fd, interest))
    }

    /// Notes what was reported for a descriptor.
    pub fn report(&mut self, fd: u32, file: FileId, ready: u32, seen: [u32; 2]) {
        let turn = self.next_turn();
        if let Some(interest) = self.interests.get_mut(&(fd, file)) {
            if ready != 0 {
                interest.turn = turn;
            }
            interest.reported = ready;
            interest.seen = seen;
            if interest.events & EPOLLONESHOT != 0 && ready != 0 {
                interest.events &= EPOLLONESHOT | EPOLLET;
            }
        }
    }
}
