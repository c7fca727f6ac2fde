//! Usage and limits of volumes. [`super::cost`] defines the costs.

use super::backend::{self, Errno};
use super::cost;
use super::space::Space;
use hartline_abi::volume::NodeAttributes;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// Usage and limit of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The space of its contents, as [`measure`](super::measure) counts it.
    pub used: Space,
    /// The largest allowed space.
    pub limit: Space,
}

impl Usage {
    /// The space that is left.
    pub fn left(self) -> Space {
        self.limit.minus(self.used)
    }

    /// Takes space. A want of 0 also fits a volume above its limit.
    ///
    /// # Errors
    /// `ENOSPC` if the space does not fit.
    fn take(&mut self, wanted: Space) -> Result<(), Errno> {
        let left = self.left();
        let fits = |wanted: u64, left: u64| wanted == 0 || wanted <= left;
        if !fits(wanted.bytes, left.bytes) || !fits(wanted.inodes, left.inodes) {
            return Err(libc::ENOSPC);
        }
        self.used = self.used.plus(wanted);
        Ok(())
    }

    /// Returns space.
    fn release(&mut self, space: Space) {
        self.used = self.used.minus(space);
    }

    /// Changes a cost from `before` to `after` bytes, whether that fits or not.
    fn change(&mut self, before: u64, after: u64) {
        self.used.bytes = self.used.bytes.saturating_sub(before).saturating_add(after);
    }
}

/// Cost of an open file without its names.
pub fn cost_of(file: &NodeAttributes) -> u64 {
    cost::node(file.mode, file.size, file.blocks)
}

/// Total cost of directories, which are different ones.
fn cost_of_all(directories: &[BorrowedFd<'_>]) -> Result<u64, Errno> {
    let costs = directories.iter().map(|directory| {
        let (attributes, _) = backend::attributes(*directory)?;
        Ok(cost_of(&attributes))
    });
    costs.sum()
}

/// A change of names in directories.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The directories whose names change, each once.
    pub directories: &'a [BorrowedFd<'a>],
    /// Space of the added names and files.
    pub added: Space,
    /// Space of the removed names and files.
    pub removed: Space,
}

/// Device and inode of a file of the host.
type Identity = (u64, u64);

/// The usage of each volume that has a limit.
#[derive(Debug)]
pub struct Limits {
    volumes: Vec<Option<Usage>>,
    /// Costs of directories without a name that the guest still knows. File systems report them as
    /// empty, although their blocks still exist.
    nameless: HashMap<Identity, u64>,
}

impl Limits {
    /// The usages, by volume. `None` for a volume without a limit.
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

    /// Runs an action that changes the length of a file. `end` maps the current length to the wanted
    /// one.
    ///
    /// # Errors
    /// `ENOSPC` if the length does not fit, or the action's.
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
        let before = backend::attributes(file)?.0.size;
        let most = end(before).max(before);
        usage.take(Space::bytes(most - before))?;
        let result = action();
        let after = backend::attributes(file).map_or(most, |(attributes, _)| attributes.size);
        usage.release(Space::bytes(most.saturating_sub(after)));
        result
    }

    /// Runs an action that changes names, and creates or removes their files.
    ///
    /// If a directory grows, its cost counts even above the limit, and later additions fail. Its
    /// names cost more than its blocks, so the host's usage stays below the limit.
    ///
    /// # Errors
    /// `ENOSPC` if the names do not fit, or the action's.
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
            Ok(_) => usage.release(names.removed.minus(names.added)),
            Err(_) => usage.release(taken),
        }
        usage.change(before, cost_of_all(names.directories).unwrap_or(before));
        result
    }

    /// Checks that a file may move from one volume to another. It may not if one of them has a limit,
    /// because the usage of the other would not change.
    ///
    /// # Errors
    /// `EXDEV` if the file may not move.
    pub fn stay(&self, from: usize, to: usize) -> Result<(), Errno> {
        let is_limited = |volume| self.of(volume).is_some();
        match from != to && (is_limited(from) || is_limited(to)) {
            true => Err(libc::EXDEV),
            false => Ok(()),
        }
    }

    /// Handles the removal of a directory that cost `cost`. The cost counts until the guest forgets
    /// the directory.
    pub fn directory_removed(&mut self, volume: usize, identity: Identity, cost: u64, known: bool) {
        match (known, self.of_mut(volume)) {
            (true, Some(_)) => _ = self.nameless.insert(identity, cost),
            (false, Some(usage)) => usage.release(Space::inode(cost)),
            (_, None) => {}
        }
    }

    /// Releases the cost of a file that has no name and that the guest has forgotten.
    pub fn file_removed(&mut self, volume: usize, file: &NodeAttributes, device: u64) {
        let cost = match file.mode & libc::S_IFMT {
            libc::S_IFDIR => self.nameless.remove(&(device, file.ino)),
            _ => Some(cost_of(file)),
        };
        if let (Some(cost), Some(usage)) = (cost, self.of_mut(volume)) {
            usage.release(Space::inode(cost));
        }
    }
}

/// Properties of every usage. Kani proves them for all numbers; tests try all small numbers and the
/// largest ones.
#[cfg(any(test, kani))]
mod properties {
    use super::*;

    /// Bytes and inodes have separate limits.
    const PARTS: [fn(Space) -> u64; 2] = [|space| space.bytes, |space| space.inodes];

    /// Space is taken completely or not at all. It is taken if and only if bytes and inodes fit.
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
                after.release(wanted);
                assert_eq!(after, before);
            }
            Err(errno) => assert_eq!((errno, after), (libc::ENOSPC, before)),
        }
    }

    /// The space that is left can be taken, and nothing more.
    fn leaves_nothing(mut usage: Usage) {
        let left = usage.left();
        assert_eq!(usage.take(left), Ok(()));
        assert_eq!(usage.left(), Space::default());
        assert_eq!(usage.take(Space::bytes(1)), Err(libc::ENOSPC));
        assert_eq!(usage.take(Space::inode(0)), Err(libc::ENOSPC));
    }

    /// A release never increases the usage, and a change is exact if its result fits 64 bits.
    fn gives_and_changes(usage: Usage, before: Space, after: u64) {
        let mut given = usage;
        given.release(before);
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
