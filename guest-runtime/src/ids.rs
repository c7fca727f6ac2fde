//! Numbers by which parts of the runtime refer to objects of parts that they do not know.

/// An inode number of this VM; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// The number of an open file description. Numbers are not reused, so a number that outlives its
/// description (in an interest of epoll, or in a poll that waits) refers to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64);
