//! Numbers by which parts of the runtime refer to objects of parts that they do not know.

use core::cmp::Ordering;

/// The number of a mount. Number 0 is the first root file system's, and that of inodes outside file
/// systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MountId(pub u16);

/// An inode number of this VM, which is never reused, and the mount through which the inode was
/// reached. Two are equal if the inodes are; [`is_at`](Self::is_at) compares both.
#[derive(Debug, Clone, Copy)]
pub struct Ino(pub u64, pub MountId);

impl Ino {
    /// The inode with this number, through mount 0.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number, MountId(0))
    }

    /// The same inode through a mount.
    #[must_use]
    pub const fn on(self, mount: MountId) -> Self {
        Self(self.0, mount)
    }

    /// The same inode through the mount of `other`.
    #[must_use]
    pub const fn at(self, other: Self) -> Self {
        Self(self.0, other.1)
    }

    /// Whether both are the same inode through the same mount: the same place.
    #[must_use]
    pub fn is_at(self, other: Self) -> bool {
        self == other && self.1 == other.1
    }
}

impl PartialEq for Ino {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Ino {}

impl PartialOrd for Ino {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ino {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

/// The number of an open file description. Numbers are not reused, so a number that outlives its
/// description (in an interest of epoll, or in a poll that waits) refers to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Number of the first process, whose end ends the VM. As the first process of a container, it is the
/// `init` of the others.
pub const FIRST: u32 = 1;
/// The value for no session.
pub const NO_SESSION: u32 = u32::MAX;

/// Names of the network interfaces, by their index from 1: the loopback interface, and the one that
/// leads out of the VM, if there is one.
pub const INTERFACES: [&str; 2] = ["lo", "eth0"];
