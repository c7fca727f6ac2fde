//! Space of a volume: bytes and inodes as [`super::cost`] counts them.

use super::cost;
use std::ffi::CStr;

/// Space in a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes, as [`super::cost`] counts them.
    pub bytes: u64,
    /// Files, directories and links. Several names of one file count once.
    pub inodes: u64,
}

impl Space {
    /// The space of an inode that costs `bytes`.
    pub fn inode(bytes: u64) -> Self {
        Self { bytes, inodes: 1 }
    }

    /// Bytes of an existing inode or of a name.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes, inodes: 0 }
    }

    /// The space of a name.
    pub fn name(name: &CStr) -> Self {
        Self::bytes(cost::name(name.count_bytes()))
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    /// The difference, with 0 instead of negative numbers.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }
}
