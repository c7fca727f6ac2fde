//! Advisory locks: on ranges of bytes, owned by a process (`F_SETLK`) or an open file
//! description (`F_OFD_SETLK`), and on whole files (`flock`). They count within the VM.

use super::process::FileId;
use super::types::Ino;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_linux::errno::Errno;

/// Most locks in a VM.
const MAX_LOCKS: usize = 1 << 16;

/// Who has a lock on a range.
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
    /// Who has it.
    pub owner: Owner,
    /// Nobody else may have any lock there.
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

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    ranges: BTreeMap<Ino, Vec<RangeLock>>,
    /// Holders of locks on whole files, and whether theirs is exclusive.
    whole: BTreeMap<Ino, Vec<(FileId, bool)>>,
    count: usize,
    /// Processes that wait for a lock of another one.
    waits: BTreeMap<u32, u32>,
}

impl Locks {
    /// A lock of somebody else that keeps `wanted` away.
    pub fn conflict(&self, ino: Ino, wanted: &RangeLock) -> Option<&RangeLock> {
        let locks = self.ranges.get(&ino)?;
        locks.iter().find(|lock| lock.conflicts(wanted))
    }

    /// Gives `wanted` to its owner in place of what that has there, unless somebody else
    /// is in the way. It becomes one with locks of the same kind beside it.
    ///
    /// # Errors
    /// `EAGAIN`; `ENOLCK` if there are too many locks.
    pub fn lock(&mut self, ino: Ino, wanted: RangeLock) -> Result<(), Errno> {
        if self.conflict(ino, &wanted).is_some() {
            return Err(Errno::EAGAIN);
        }
        // One more, and one that is split.
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

    /// Takes a range away from an owner. Result: whether it had any of it.
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
        changed
    }

    /// Takes everything away from an owner. Result: whether it had anything.
    pub fn unlock_all(&mut self, ino: Ino, owner: Owner) -> bool {
        self.unlock(ino, owner, 0..u64::MAX)
    }

    /// Notes that a process waits for who keeps `wanted` away.
    ///
    /// # Errors
    /// `EDEADLK` if that one waits, perhaps through others, for the process.
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

    /// A process does not wait for a lock any more.
    pub fn end_wait(&mut self, process: u32) {
        self.waits.remove(&process);
    }

    /// Locks a whole file.
    ///
    /// # Errors
    /// `EAGAIN` if somebody else's lock is in the way; a lock of another kind that the file
    /// had is lost then, as on Linux. `ENOLCK` if there are too many locks.
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

    /// Whether an open file description has a lock on its whole file.
    pub fn holds_whole(&self, ino: Ino, file: FileId) -> bool {
        let mut holders = self.whole.get(&ino).into_iter().flatten();
        holders.any(|&(other, _)| other == file)
    }

    /// Takes the lock on a whole file away. Result: whether there was one.
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
        removed > 0
    }

    /// Takes everything away that an open file description has on its file. Result:
    /// whether it had anything.
    pub fn release(&mut self, ino: Ino, file: FileId) -> bool {
        let ranges = self.unlock_all(ino, Owner::File(file));
        self.unlock_whole(ino, file) || ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(7);

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
        // Its own lock becomes a shared one; then others may share it.
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
        // What it had is lost.
        assert!(!locks.unlock_whole(INO, a));
        assert!(locks.release(INO, b));
        locks.lock_whole(INO, a, true).unwrap();
        assert_eq!(locks.lock_whole(INO, b, false), Err(Errno::EAGAIN));
        assert!(locks.release(INO, a));
        assert_eq!(locks.count, 0);
    }
}
