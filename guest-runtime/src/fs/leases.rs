//! Leases (`F_SETLEASE` of fcntl(2)): the holder hears, and has some time, before another opens the
//! file.

use super::process::FileId;
use super::types::Ino;
use crate::wait::{ALL, WaitQueue};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;

/// Time that the holder has (`lease-break-time`), ns.
pub const BREAK_TIME: u64 = 45_000_000_000;

/// What a lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nobody writes the file.
    Read,
    /// Nobody else has the file open.
    Write,
}

/// The end of a lease, of which a holder was notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Break {
    /// What is left of the lease.
    rest: Option<Kind>,
    /// When the kernel ends it, ns of `CLOCK_MONOTONIC`.
    deadline: u64,
}

#[derive(Debug)]
struct Lease {
    holder: FileId,
    kind: Kind,
    breaking: Option<Break>,
}

/// Other open file descriptions of a file: whether any reads, and whether any writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Others {
    /// One is open for reading only.
    pub reads: bool,
    /// One is open for writing.
    pub writes: bool,
}

/// What an opening must do because of leases.
#[derive(Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Holders to notify now.
    pub holders: Vec<FileId>,
    /// When the last lease ends at the latest.
    pub deadline: u64,
}

/// All leases of the VM.
#[derive(Debug, Default)]
pub struct Leases {
    of_file: BTreeMap<Ino, Vec<Lease>>,
    /// Tasks that wait for the end of leases on a file.
    waiters: BTreeMap<Ino, WaitQueue>,
}

impl Leases {
    /// The tasks that wait for the end of leases. Each end wakes them all; they are no longer in the
    /// queue then, which is dropped.
    pub fn waiters(&mut self, ino: Ino) -> &WaitQueue {
        self.waiters.entry(ino).or_default()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_file.is_empty()
    }

    fn wake(&mut self, ino: Ino) {
        if let Some(waiters) = self.waiters.remove(&ino) {
            waiters.wake_all(ALL);
        }
    }

    /// Gives the description `holder` a lease, or changes its lease.
    ///
    /// # Errors
    /// `EAGAIN` if others have the file open, or a lease that it conflicts with.
    pub fn set(
        &mut self,
        ino: Ino,
        holder: FileId,
        kind: Kind,
        (others, holder_writes): (Others, bool),
    ) -> Result<(), Errno> {
        let is_open = match kind {
            Kind::Read => others.writes || holder_writes,
            Kind::Write => others.writes || others.reads,
        };
        let leases = self.of_file.get(&ino).map_or(&[][..], Vec::as_slice);
        let conflicts = |lease: &Lease| {
            let is_ending = lease.breaking.is_some_and(|end| end.rest.is_none());
            lease.holder != holder && (kind == Kind::Write || is_ending)
        };
        if is_open || leases.iter().any(conflicts) {
            return Err(Errno::EAGAIN);
        }
        let leases = self.of_file.entry(ino).or_default();
        match leases.iter_mut().find(|lease| lease.holder == holder) {
            Some(lease) => (lease.kind, lease.breaking) = (kind, None),
            None => leases.push(Lease {
                holder,
                kind,
                breaking: None,
            }),
        }
        self.wake(ino);
        Ok(())
    }

    /// Ends the lease of a description.
    ///
    /// # Errors
    /// `EAGAIN` if it has none.
    pub fn remove(&mut self, ino: Ino, holder: FileId) -> Result<(), Errno> {
        let leases = self.of_file.get_mut(&ino).ok_or(Errno::EAGAIN)?;
        let before = leases.len();
        leases.retain(|lease| lease.holder != holder);
        if leases.len() == before {
            return Err(Errno::EAGAIN);
        }
        if leases.is_empty() {
            self.of_file.remove(&ino);
        }
        self.wake(ino);
        Ok(())
    }

    /// The lease that a description has, or will have after the end of which it was notified.
    pub fn get(&mut self, ino: Ino, holder: FileId, now: u64) -> Option<Kind> {
        self.expire(ino, now);
        let lease = self.of_file.get(&ino)?.iter();
        let lease = lease.into_iter().find(|lease| lease.holder == holder)?;
        match lease.breaking {
            Some(end) => end.rest,
            None => Some(lease.kind),
        }
    }

    /// Begins the end of the leases that an opening, for writing or only for reading, conflicts with.
    /// None if there are none.
    pub fn break_for(&mut self, ino: Ino, writes: bool, now: u64) -> Option<Conflict> {
        self.expire(ino, now);
        let leases = self.of_file.get_mut(&ino)?;
        let conflicts = |lease: &&mut Lease| writes || lease.kind == Kind::Write;
        let mut conflict: Option<Conflict> = None;
        for lease in leases.iter_mut().filter(conflicts) {
            let rest = if writes { None } else { Some(Kind::Read) };
            let found = conflict.get_or_insert(Conflict {
                holders: Vec::new(),
                deadline: 0,
            });
            let end = lease.breaking.get_or_insert_with(|| {
                found.holders.push(lease.holder);
                Break {
                    rest,
                    deadline: now + BREAK_TIME,
                }
            });
            if rest.is_none() && end.rest.is_some() {
                end.rest = None;
                found.holders.push(lease.holder);
            }
            found.deadline = found.deadline.max(end.deadline);
        }
        conflict
    }

    /// Ends the leases of a file whose time is over.
    fn expire(&mut self, ino: Ino, now: u64) {
        let Some(leases) = self.of_file.get_mut(&ino) else {
            return;
        };
        let is_over = |lease: &Lease| lease.breaking.is_some_and(|end| end.deadline <= now);
        if !leases.iter().any(is_over) {
            return;
        }
        leases.retain_mut(|lease| match lease.breaking {
            Some(end) if end.deadline <= now => {
                lease.breaking = None;
                end.rest.map(|rest| lease.kind = rest).is_some()
            }
            _ => true,
        });
        if leases.is_empty() {
            self.of_file.remove(&ino);
        }
        self.wake(ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino::new(7);
    const ALONE: (Others, bool) = (
        Others {
            reads: false,
            writes: false,
        },
        false,
    );

    fn holders(conflict: Option<Conflict>) -> Vec<u64> {
        conflict.map_or(Vec::new(), |conflict| {
            conflict.holders.iter().map(|holder| holder.0).collect()
        })
    }

    #[test]
    fn leases_need_that_others_do_not_have_the_file_open() {
        let mut leases = Leases::default();
        let (one, two) = (FileId(1), FileId(2));
        let others = |reads, writes| (Others { reads, writes }, false);
        let again = Err(Errno::EAGAIN);
        assert_eq!(leases.set(INO, one, Kind::Read, others(true, true)), again);
        assert_eq!(
            leases.set(INO, one, Kind::Write, others(true, false)),
            again
        );
        assert_eq!(leases.set(INO, one, Kind::Read, (ALONE.0, true)), again);
        leases
            .set(INO, one, Kind::Read, others(true, false))
            .unwrap();
        leases.set(INO, two, Kind::Read, ALONE).unwrap();
        assert_eq!(leases.set(INO, two, Kind::Write, ALONE), again);
        assert_eq!(leases.get(INO, two, 0), Some(Kind::Read));
        leases.remove(INO, one).unwrap();
        assert_eq!(leases.remove(INO, one), again);
        leases.set(INO, two, Kind::Write, ALONE).unwrap();
        assert_eq!(leases.get(INO, two, 0), Some(Kind::Write));
    }

    #[test]
    fn an_opening_breaks_what_conflicts() {
        let mut leases = Leases::default();
        let one = FileId(1);
        assert_eq!(leases.break_for(INO, true, 0), None);
        leases.set(INO, one, Kind::Read, ALONE).unwrap();
        assert_eq!(leases.break_for(INO, false, 0), None);
        leases.set(INO, one, Kind::Write, ALONE).unwrap();
        assert_eq!(holders(leases.break_for(INO, false, 5)), [1]);
        assert_eq!(leases.get(INO, one, 5), Some(Kind::Read));
        // The holder was notified, until more is wanted.
        let again = leases.break_for(INO, false, 6).unwrap();
        assert_eq!(again.deadline, 5 + BREAK_TIME);
        assert!(again.holders.is_empty());
        assert_eq!(holders(leases.break_for(INO, true, 7)), [1]);
        assert_eq!(leases.get(INO, one, 7), None);
        leases.set(INO, one, Kind::Read, ALONE).unwrap();
        assert_eq!(leases.break_for(INO, false, 8), None);
        // Time runs out.
        leases.set(INO, one, Kind::Write, ALONE).unwrap();
        assert!(leases.break_for(INO, false, 10).is_some());
        assert_eq!(leases.break_for(INO, false, 10 + BREAK_TIME), None);
        assert_eq!(leases.get(INO, one, 10 + BREAK_TIME), Some(Kind::Read));
        assert!(leases.break_for(INO, true, 20 + BREAK_TIME).is_some());
        assert_eq!(leases.break_for(INO, true, 20 + 2 * BREAK_TIME), None);
        assert_eq!(leases.remove(INO, one), Err(Errno::EAGAIN));
    }
}
