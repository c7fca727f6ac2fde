//! Advisory locks: on byte ranges, owned by a process (`F_SETLK`) or an open file description
//! (`F_OFD_SETLK`), and on whole files (`flock`). They are effective within the VM only.

use super::process::FileId;
use super::types::Ino;
use crate::wait::{ALL, WaitQueue};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_linux::errno::Errno;

/// Most locks in a VM.
const MAX_LOCKS: usize = 1 << 16;

/// The owner of a range lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This process.
    Process(u32),
    /// This open file description.
    File(FileId),
}

/// A lock on a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeLock {
    /// The owner of the lock.
    pub owner: Owner,
    /// No other owner may have a lock in the range.
    pub exclusive: bool,
    /// Bytes; `u64::MAX` is the end of every file.
    pub range: Range<u64>,
}

impl RangeLock {
    fn conflicts(&self, other: &RangeLock) -> bool {
        self.owner != other.owner
            && (self.exclusive || other.exclusive)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// All locks of the VM.
#[derive(Debug, Default)]
pub struct Locks {
    ranges: BTreeMap<Ino, Vec<RangeLock>>,
    /// Owners of locks on whole files, and whether the lock is exclusive.
    whole: BTreeMap<Ino, Vec<(FileId, bool)>>,
    count: usize,
    /// Processes that wait for a lock, each with the process that holds it.
    waits: BTreeMap<u32, u32>,
    /// Tasks that wait for a lock on a file.
    waiters: BTreeMap<Ino, WaitQueue>,
}

impl Locks {
    /// The tasks that wait for a lock on a file. Each loss of a lock wakes them all; they are no
    /// longer in the queue then, which is dropped.
    pub fn waiters(&mut self, ino: Ino) -> &WaitQueue {
        self.waiters.entry(ino).or_default()
    }

    fn wake(&mut self, ino: Ino) {
        if let Some(waiters) = self.waiters.remove(&ino) {
            waiters.wake_all(ALL);
        }
    }

    /// The first lock of another owner in the file that conflicts with `wanted`.
    pub fn conflict(&self, ino: Ino, wanted: &RangeLock) -> Option<&RangeLock> {
        let locks = self.ranges.get(&ino)?;
        let conflicting = locks.iter().filter(|lock| lock.conflicts(wanted));
        conflicting.min_by_key(|lock| lock.range.start)
    }

    /// Locks `wanted`, which replaces the owner's locks in this range. Adjacent locks of the same
    /// kind are merged.
    ///
    /// # Errors
    /// `EAGAIN` if another owner's lock conflicts; `ENOLCK` if there are too many locks.
    pub fn lock(&mut self, ino: Ino, wanted: RangeLock) -> Result<(), Errno> {
        if self.conflict(ino, &wanted).is_some() {
            return Err(Errno::EAGAIN);
        }
        // One more lock, and one more if an old one is split.
        if self.count + 2 > MAX_LOCKS {
            return Err(Errno::ENOLCK);
        }
        self.unlock(ino, wanted.owner, wanted.range.clone());
        let locks = self.ranges.entry(ino).or_default();
        let touches = |lock: &mut RangeLock| {
            (lock.owner, lock.exclusive) == (wanted.owner, wanted.exclusive)
                && lock.range.start <= wanted.range.end
                && wanted.range.start <= lock.range.end
        };
        let mut joined = wanted.clone();
        for lock in locks.extract_if(.., touches) {
            joined.range.start = joined.range.start.min(lock.range.start);
            joined.range.end = joined.range.end.max(lock.range.end);
            self.count -= 1;
        }
        locks.push(joined);
        self.count += 1;
        Ok(())
    }

    /// Unlocks a range of an owner, and wakes the tasks that wait for a lock on the file if the
    /// owner had a lock in it. Returns whether it had.
    pub fn unlock(&mut self, ino: Ino, owner: Owner, range: Range<u64>) -> bool {
        let Some(locks) = self.ranges.get_mut(&ino) else {
            return false;
        };
        let before = locks.len();
        let mut kept = Vec::new();
        let touched = |lock: &mut RangeLock| {
            lock.owner == owner && lock.range.start < range.end && range.start < lock.range.end
        };
        let mut changed = false;
        for lock in locks.extract_if(.., touched) {
            changed = true;
            let left = lock.range.start..range.start;
            let right = range.end..lock.range.end;
            for range in [left, right] {
                if !range.is_empty() {
                    kept.push(RangeLock {
                        range,
                        ..lock.clone()
                    });
                }
            }
        }
        locks.append(&mut kept);
        self.count = self.count + locks.len() - before;
        if locks.is_empty() {
            self.ranges.remove(&ino);
        }
        if changed {
            self.wake(ino);
        }
        changed
    }

    /// Unlocks all ranges of an owner. Returns whether the owner had a lock.
    pub fn unlock_all(&mut self, ino: Ino, owner: Owner) -> bool {
        self.unlock(ino, owner, 0..u64::MAX)
    }

    /// Records that a process waits for the owner of the lock that conflicts with `wanted`.
    ///
    /// # Errors
    /// `EDEADLK` if that owner waits for the process, directly or through others.
    pub fn wait(&mut self, ino: Ino, wanted: &RangeLock) -> Result<(), Errno> {
        let Owner::Process(waiter) = wanted.owner else {
            return Ok(());
        };
        let Some(Owner::Process(holder)) = self.conflict(ino, wanted).map(|lock| lock.owner) else {
            return Ok(());
        };
        let mut at = holder;
        for _ in 0..self.waits.len() {
            match self.waits.get(&at) {
                Some(&next) => at = next,
                None => break,
            }
            if at == waiter {
                return Err(Errno::EDEADLK);
            }
        }
        self.waits.insert(waiter, holder);
        Ok(())
    }

    /// Records that a process no longer waits for a lock.
    pub fn end_wait(&mut self, process: u32) {
        self.waits.remove(&process);
    }

    /// Locks a whole file.
    ///
    /// # Errors
    /// `EAGAIN` if another description's lock conflicts; as on Linux, a lock of the other kind that
    /// `file` had is lost then. `ENOLCK` if there are too many locks.
    pub fn lock_whole(&mut self, ino: Ino, file: FileId, exclusive: bool) -> Result<(), Errno> {
        let holders = self.whole.get(&ino).map_or(&[][..], Vec::as_slice);
        if holders.contains(&(file, exclusive)) {
            return Ok(());
        }
        let in_the_way =
            |&(other, is_exclusive): &(FileId, bool)| other != file && (exclusive || is_exclusive);
        let refused = holders.iter().any(in_the_way);
        self.unlock_whole(ino, file);
        match refused {
            true => Err(Errno::EAGAIN),
            false if self.count >= MAX_LOCKS => Err(Errno::ENOLCK),
            false => {
                self.whole.entry(ino).or_default().push((file, exclusive));
                self.count += 1;
                Ok(())
            }
        }
    }

    /// Unlocks a whole file, and wakes the tasks that wait for a lock on it. Returns whether there
    /// was a lock.
    pub fn unlock_whole(&mut self, ino: Ino, file: FileId) -> bool {
        let Some(holders) = self.whole.get_mut(&ino) else {
            return false;
        };
        let before = holders.len();
        holders.retain(|&(other, _)| other != file);
        let removed = before - holders.len();
        self.count -= removed;
        if holders.is_empty() {
            self.whole.remove(&ino);
        }
        if removed > 0 {
            self.wake(ino);
        }
        removed > 0
    }

    /// Removes all locks of an open file description on its file. Returns whether there were any.
    pub fn release(&mut self, ino: Ino, file: FileId) -> bool {
        let ranges = self.unlock_all(ino, Owner::File(file));
        self.unlock_whole(ino, file) || ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino::new(7);

    fn lock(process: u32, exclusive: bool, range: Range<u64>) -> RangeLock {
        RangeLock {
            owner: Owner::Process(process),
            exclusive,
            range,
        }
    }

    #[test]
    fn ranges_split_and_conflict() {
        let mut locks = Locks::default();
        locks.lock(INO, lock(1, true, 0..100)).unwrap();
        assert!(locks.unlock(INO, Owner::Process(1), 40..60));
        assert_eq!(locks.count, 2);
        locks.lock(INO, lock(2, true, 40..60)).unwrap();
        assert_eq!(locks.lock(INO, lock(2, false, 39..50)), Err(Errno::EAGAIN));
        // A process can downgrade its own lock, so that others can share it.
        locks.lock(INO, lock(1, false, 0..40)).unwrap();
        locks.lock(INO, lock(2, false, 39..40)).unwrap();
        assert!(locks.unlock_all(INO, Owner::Process(1)));
        assert!(locks.unlock_all(INO, Owner::Process(2)));
        assert!(!locks.unlock_all(INO, Owner::Process(2)));
        assert_eq!((locks.count, locks.ranges.len()), (0, 0));
    }

    #[test]
    fn waiting_in_a_circle_is_refused() {
        let mut locks = Locks::default();
        for process in 1..4_u32 {
            let at = u64::from(process);
            locks.lock(INO, lock(process, true, at..at + 1)).unwrap();
        }
        locks.wait(INO, &lock(1, true, 2..3)).unwrap();
        locks.wait(INO, &lock(2, true, 3..4)).unwrap();
        assert_eq!(locks.wait(INO, &lock(3, true, 1..2)), Err(Errno::EDEADLK));
        locks.end_wait(2);
        locks.wait(INO, &lock(3, true, 1..2)).unwrap();
    }

    #[test]
    fn whole_files() {
        let mut locks = Locks::default();
        let (a, b) = (FileId(1), FileId(2));
        locks.lock_whole(INO, a, false).unwrap();
        locks.lock_whole(INO, b, false).unwrap();
        assert_eq!(locks.lock_whole(INO, a, true), Err(Errno::EAGAIN));
        // The old lock is lost.
        assert!(!locks.unlock_whole(INO, a));
        assert!(locks.release(INO, b));
        locks.lock_whole(INO, a, true).unwrap();
        assert_eq!(locks.lock_whole(INO, b, false), Err(Errno::EAGAIN));
        assert!(locks.release(INO, a));
        assert_eq!(locks.count, 0);
    }
}
