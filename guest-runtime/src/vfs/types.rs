//! Numbers of the file ABI: modes, flags, limits (Linux asm-generic values, which
//! differ from x86's), and the small types that the whole VFS shares.

use alloc::rc::Rc;

/// Longest file name, bytes.
pub const NAME_MAX: usize = 255;
/// Longest path with its NUL, bytes.
pub const PATH_MAX: usize = 4096;
/// Most symbolic links that one path resolution follows.
pub const MAX_LINKS: u32 = 40;
/// Most bytes that one read or write moves (`MAX_RW_COUNT`).
pub const MAX_RW_COUNT: usize = 0x7fff_f000;

/// File type bits of `st_mode`.
pub const S_IFMT: u32 = 0o170_000;
/// Socket.
pub const S_IFSOCK: u32 = 0o140_000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// Regular file.
pub const S_IFREG: u32 = 0o100_000;
/// Block device.
pub const S_IFBLK: u32 = 0o060_000;
/// Directory.
pub const S_IFDIR: u32 = 0o040_000;
/// Character device.
pub const S_IFCHR: u32 = 0o020_000;
/// FIFO or pipe.
pub const S_IFIFO: u32 = 0o010_000;
/// Set-user-ID.
pub const S_ISUID: u32 = 0o4000;
/// Set-group-ID.
pub const S_ISGID: u32 = 0o2000;
/// Sticky.
pub const S_ISVTX: u32 = 0o1000;

/// `open` flags.
pub mod o {
    /// Access mode bits.
    pub const ACCMODE: u32 = 3;
    /// Read only.
    pub const RDONLY: u32 = 0;
    /// Write only.
    pub const WRONLY: u32 = 1;
    /// Read and write.
    pub const RDWR: u32 = 2;
    /// Create if it does not exist.
    pub const CREAT: u32 = 0o100;
    /// With `CREAT`: fail if it exists.
    pub const EXCL: u32 = 0o200;
    /// Do not become the controlling terminal.
    pub const NOCTTY: u32 = 0o400;
    /// Truncate.
    pub const TRUNC: u32 = 0o1000;
    /// Write at the end.
    pub const APPEND: u32 = 0o2000;
    /// Do not block.
    pub const NONBLOCK: u32 = 0o4000;
    /// Synchronous data.
    pub const DSYNC: u32 = 0o10_000;
    /// Signal-driven I/O.
    pub const ASYNC: u32 = 0o20_000;
    /// Direct I/O.
    pub const DIRECT: u32 = 0o40_000;
    /// Always on for 64-bit programs' own files.
    pub const LARGEFILE: u32 = 0o100_000;
    /// Only a directory.
    pub const DIRECTORY: u32 = 0o200_000;
    /// Do not follow a final symbolic link.
    pub const NOFOLLOW: u32 = 0o400_000;
    /// Leave atime alone.
    pub const NOATIME: u32 = 0o1_000_000;
    /// Close on exec.
    pub const CLOEXEC: u32 = 0o2_000_000;
    /// Only a location, no access.
    pub const PATH: u32 = 0o10_000_000;
    /// Unnamed file; comes with [`DIRECTORY`].
    pub const TMPFILE: u32 = 0o20_000_000;
    /// Synchronous everything.
    pub const SYNC: u32 = 0o4_000_000 | DSYNC;
    /// Every flag that `openat2` accepts.
    pub const VALID: u32 = ACCMODE
        | CREAT
        | EXCL
        | NOCTTY
        | TRUNC
        | APPEND
        | NONBLOCK
        | ASYNC
        | DIRECT
        | LARGEFILE
        | DIRECTORY
        | NOFOLLOW
        | NOATIME
        | CLOEXEC
        | PATH
        | TMPFILE
        | SYNC;
    /// Flags that `F_SETFL` simply sets.
    pub const SETTABLE: u32 = APPEND | NONBLOCK | DIRECT | NOATIME;
}

/// A point in time since 1970, or a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timespec {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, 0–999,999,999.
    pub nanoseconds: u32,
}

impl Timespec {
    /// From nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        const SECOND: u64 = 1_000_000_000;
        Self {
            seconds: (ns / SECOND) as i64,
            nanoseconds: (ns % SECOND) as u32,
        }
    }

    /// In nanoseconds; 0 for a time before 1970.
    pub fn as_ns(self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        (seconds.saturating_mul(SECOND)).saturating_add(u64::from(self.nanoseconds))
    }
}

/// An inode of this VM; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User; 0 may do everything but execute what nobody may execute.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, in ascending order.
    pub groups: Rc<[u32]>,
}

impl Credentials {
    /// A user without supplementary groups.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: Rc::default(),
        }
    }

    /// The user who may do everything.
    pub fn root() -> Self {
        Self::new(0, 0)
    }

    /// Whether this is one of its groups.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
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
