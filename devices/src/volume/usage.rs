//! How much volumes hold, and that they hold no more than they may. [`super::cost`] says what
//! counts.

use super::cost;
use super::host::{self, Errno};
use super::tree;
use hartline_abi::volume::NodeAttributes;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// What a directory of the host holds, as the limits of a volume count it.
///
/// # Errors
/// It cannot be read.
pub fn measure(directory: &Path) -> io::Result<Space> {
    tree::measure(File::open(directory)?.as_fd())
}

/// Room in a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes, as [`super::cost`] counts them.
    pub bytes: u64,
    /// Files, directories and links. Several names of one file count once.
    pub inodes: u64,
}

impl Space {
    /// An inode that costs so many bytes.
    pub fn inode(bytes: u64) -> Self {
        Self { bytes, inodes: 1 }
    }

    /// Bytes of an inode that is there already, or of a name.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes, inodes: 0 }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    /// What is left of it without the other one; nothing, of what the other one has more of.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }
}

/// What a volume holds and may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// What it holds, as [`measure`] counts it.
    pub used: Space,
    /// What it may hold.
    pub limit: Space,
}

impl Usage {
    /// What still fits.
    pub fn left(self) -> Space {
        self.limit.minus(self.used)
    }

    /// Takes room for something. What needs nothing fits into a volume that holds too much, too.
    fn take(&mut self, wanted: Space) -> Result<(), Errno> {
        let left = self.left();
        let fits = |wanted: u64, left: u64| wanted == 0 || wanted <= left;
        if !fits(wanted.bytes, left.bytes) || !fits(wanted.inodes, left.inodes) {
            return Err(libc::ENOSPC);
        }
        self.used = self.used.plus(wanted);
        Ok(())
    }

    fn give(&mut self, room: Space) {
        self.used = self.used.minus(room);
    }

    /// What cost `before` bytes costs `after` now, whether that fits or not.
    fn change(&mut self, before: u64, after: u64) {
        self.used.bytes = self.used.bytes.saturating_sub(before).saturating_add(after);
    }
}

/// What an open file costs without its names.
pub fn cost_of(file: &NodeAttributes) -> u64 {
    cost::node(file.mode, file.size, file.blocks)
}

/// What directories cost; none of them counts twice.
fn cost_of_all(directories: &[BorrowedFd<'_>]) -> Result<u64, Errno> {
    let costs = directories.iter().map(|directory| {
        let (attributes, _) = host::attributes(*directory)?;
        Ok(cost_of(&attributes))
    });
    costs.sum()
}

/// A change of names.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The directories whose names change, each once.
    pub directories: &'a [BorrowedFd<'a>],
    /// Cost of what is added.
    pub added: Space,
    /// Cost of what is removed.
    pub removed: Space,
}

/// Device and inode of a file of the host.
type Identity = (u64, u64);

/// The usage of each volume that has a limit.
#[derive(Debug)]
pub struct Limits {
    volumes: Vec<Option<Usage>>,
    /// What directories cost that have no name and that the guest still knows: file systems say
    /// that they are empty then, while their blocks are still there.
    nameless: HashMap<Identity, u64>,
}

impl Limits {
    pub fn new(volumes: Vec<Option<Usage>>) -> Self {
        Self {
            volumes,
            nameless: HashMap::new(),
        }
    }

    /// The usage of a volume, if it has a limit.
    pub fn of(&self, volume: usize) -> Option<Usage> {
        self.volumes.get(volume).copied().flatten()
    }

    fn of_mut(&mut self, volume: usize) -> Option<&mut Usage> {
        self.volumes.get_mut(volume)?.as_mut()
    }

    /// Does what changes the length of a file; `end` tells the length that it wants from the
    /// one that there is.
    ///
    /// # Errors
    /// `ENOSPC` if it does not fit; the action's.
    pub fn resize<T>(
        &mut self,
        volume: usize,
        file: BorrowedFd<'_>,
        end: impl FnOnce(u64) -> u64,
        action: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(usage) = self.of_mut(volume) else {
            return action();
        };
        let before = host::attributes(file)?.0.size;
        let most = end(before).max(before);
        usage.take(Space::bytes(most - before))?;
        let result = action();
        let after = host::attributes(file).map_or(most, |(attributes, _)| attributes.size);
        usage.give(Space::bytes(most.saturating_sub(after)));
        result
    }

    /// Does what changes names, and makes or removes what they lead to.
    ///
    /// A directory that needs more room than before counts even if that does not fit: nothing is
    /// added then. Its names cost more than its blocks, so the host still holds no more than the
    /// limit.
    ///
    /// # Errors
    /// `ENOSPC` if it does not fit; the action's.
    pub fn rename<T>(
        &mut self,
        volume: usize,
        names: Names<'_>,
        action: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(usage) = self.of_mut(volume) else {
            return action();
        };
        let before = cost_of_all(names.directories)?;
        let taken = names.added.minus(names.removed);
        usage.take(taken)?;
        let result = action();
        match result {
            Ok(_) => usage.give(names.removed.minus(names.added)),
            Err(_) => usage.give(taken),
        }
        usage.change(before, cost_of_all(names.directories).unwrap_or(before));
        result
    }

    /// Whether what is in volume `from` may get into volume `to`: what counts for one would not
    /// count for the other.
    ///
    /// # Errors
    /// `EXDEV` if it may not.
    pub fn stay(&self, from: usize, to: usize) -> Result<(), Errno> {
        let is_limited = |volume| self.of(volume).is_some();
        match from != to && (is_limited(from) || is_limited(to)) {
            true => Err(libc::EXDEV),
            false => Ok(()),
        }
    }

    /// The last name of a directory is gone, which cost `cost`. It counts as long as the guest
    /// knows it.
    pub fn directory_removed(&mut self, volume: usize, identity: Identity, cost: u64, known: bool) {
        match (known, self.of_mut(volume)) {
            (true, Some(_)) => _ = self.nameless.insert(identity, cost),
            (false, Some(usage)) => usage.give(Space::inode(cost)),
            (_, None) => {}
        }
    }

    /// A file with these attributes has no name, and the guest does not know it any more.
    pub fn gone(&mut self, volume: usize, file: &NodeAttributes, device: u64) {
        let cost = match file.mode & libc::S_IFMT {
            libc::S_IFDIR => self.nameless.remove(&(device, file.ino)),
            _ => Some(cost_of(file)),
        };
        if let (Some(cost), Some(usage)) = (cost, self.of_mut(volume)) {
            usage.give(Space::inode(cost));
        }
    }
}

/// What holds of every usage. Kani proves it for all numbers; tests try all small ones and the
/// largest.
#[cfg(any(test, kani))]
mod properties {
    use super::*;

    /// Bytes and inodes, each with a limit of its own.
    const PARTS: [fn(Space) -> u64; 2] = [|space| space.bytes, |space| space.inodes];

    /// Room is taken as a whole or not at all: it is if bytes and inodes fit, and only then.
    fn takes_what_fits(before: Usage, wanted: Space) {
        let mut after = before;
        let taken = after.take(wanted);
        let fits = |part: &fn(Space) -> u64| {
            let sum = u128::from(part(before.used)) + u128::from(part(wanted));
            part(wanted) == 0 || sum <= u128::from(part(before.limit))
        };
        assert_eq!(taken.is_ok(), PARTS.iter().all(fits));
        match taken {
            Ok(()) => {
                for part in PARTS {
                    let sum = u128::from(part(before.used)) + u128::from(part(wanted));
                    assert_eq!(u128::from(part(after.used)), sum);
                }
                assert_eq!(after.limit, before.limit);
                after.give(wanted);
                assert_eq!(after, before);
            }
            Err(errno) => assert_eq!((errno, after), (libc::ENOSPC, before)),
        }
    }

    /// What is left can be taken, and nothing more.
    fn leaves_nothing(mut usage: Usage) {
        let left = usage.left();
        assert_eq!(usage.take(left), Ok(()));
        assert_eq!(usage.left(), Space::default());
        assert_eq!(usage.take(Space::bytes(1)), Err(libc::ENOSPC));
        assert_eq!(usage.take(Space::inode(0)), Err(libc::ENOSPC));
    }

    /// What is given back never makes room that was not taken, and a change is exact where its
    /// result is a number.
    fn gives_and_changes(usage: Usage, before: Space, after: u64) {
        let mut given = usage;
        given.give(before);
        assert!(
            PARTS
                .iter()
                .all(|part| part(given.used) <= part(usage.used))
        );
        assert_eq!(given.limit, usage.limit);
        let mut changed = usage;
        changed.change(before.bytes, after);
        let used = i128::from(usage.used.bytes);
        let exact = used - i128::from(before.bytes) + i128::from(after);
        assert_eq!(
            (changed.limit, changed.used.inodes),
            (usage.limit, usage.used.inodes)
        );
        let changed = i128::from(changed.used.bytes);
        assert!(changed >= exact.min(u64::MAX.into()));
        if before.bytes <= usage.used.bytes && exact <= i128::from(u64::MAX) {
            assert_eq!(changed, exact);
        }
    }

    #[cfg(kani)]
    mod proofs {
        use super::*;

        fn space() -> Space {
            Space {
                bytes: kani::any(),
                inodes: kani::any(),
            }
        }

        fn any() -> Usage {
            Usage {
                used: space(),
                limit: space(),
            }
        }

        #[kani::proof]
        fn usage_takes_what_fits() {
            takes_what_fits(any(), space());
        }

        #[kani::proof]
        fn usage_leaves_nothing() {
            leaves_nothing(any());
        }

        #[kani::proof]
        fn usage_gives_and_changes() {
            gives_and_changes(any(), space(), kani::any());
        }
    }

    #[test]
    fn small_and_large_numbers() {
        let numbers: Vec<u64> = (0..4).chain(u64::MAX - 2..=u64::MAX).collect();
        let pairs = || {
            let inodes = |&bytes: &u64| numbers.iter().map(move |&inodes| (bytes, inodes));
            let pairs = numbers.iter().flat_map(inodes);
            pairs.map(|(bytes, inodes)| Space { bytes, inodes })
        };
        for (used, limit) in pairs().flat_map(|used| pairs().map(move |limit| (used, limit))) {
            let usage = Usage { used, limit };
            leaves_nothing(usage);
            for wanted in pairs() {
                takes_what_fits(usage, wanted);
                for &after in &numbers {
                    gives_and_changes(usage, wanted, after);
                }
            }
        }
    }
}
