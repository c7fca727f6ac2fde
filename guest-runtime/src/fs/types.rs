//! Limits of files, and the small types that the whole VFS shares.

pub use crate::ids::{Ino, MountId};

use crate::convert::low_u32;
use hartline_linux::fcntl::{
    __O_TMPFILE, FASYNC, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL,
    O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_SYNC, O_TRUNC,
};

/// Most symbolic links that one path resolution follows.
pub const MAX_LINKS: u32 = 40;
/// Most bytes that one read or write moves (`MAX_RW_COUNT`).
pub const MAX_RW_COUNT: usize = 0x7fff_f000;

/// Every flag that `openat2` accepts (`VALID_OPEN_FLAGS` of the kernel).
pub const VALID_OPEN_FLAGS: u32 = O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_NOCTTY
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | FASYNC
    | O_DIRECT
    | O_LARGEFILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_CLOEXEC
    | O_PATH
    | __O_TMPFILE
    | O_SYNC;
/// Flags that `F_SETFL` simply sets; `FASYNC`, which it sets too, may be refused.
pub const SETFL_MASK: u32 = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME;

/// A point in time since 1970, or a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, 0–999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Converts from nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        const SECOND: u64 = 1_000_000_000;
        Self {
            seconds: (ns / SECOND).cast_signed(),
            nanoseconds: low_u32(ns % SECOND),
        }
    }

    /// Returns the time in nanoseconds; 0 for a time before 1970.
    pub fn as_ns(self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        (seconds.saturating_mul(SECOND)).saturating_add(u64::from(self.nanoseconds))
    }
}

/// `makedev` as it appears in `st_rdev` and `st_dev` (`new_encode_dev`).
pub const fn device_number(major: u64, minor: u64) -> u64 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Major number of an encoded device number.
pub const fn major(device: u64) -> u64 {
    (device >> 8) & 0xfff
}

/// Minor number of an encoded device number.
pub const fn minor(device: u64) -> u64 {
    (device & 0xff) | ((device >> 12) & 0xf_ff00)
}
