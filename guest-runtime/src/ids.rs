//! Numbers by which parts of the runtime refer to objects of parts that they do not know.

/// An inode number of this VM; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// The number of an open file description. Numbers are not reused, so a number that outlives its
/// description (in an interest of epoll, or in a poll that waits) refers to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Number of the first process, whose end ends the VM. Number 1 is `init`, which programs treat
/// specially.
pub const FIRST: u32 = 2;
/// The value for no session.
pub const NO_SESSION: u32 = u32::MAX;
