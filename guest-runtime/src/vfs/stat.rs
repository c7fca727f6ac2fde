//! Structures that file system calls return to programs, in the layout of riscv64 (asm-generic)
//! Linux.

use super::inode::Attributes;
use super::types::{Timespec, major, minor};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct timespec`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct RawTimespec {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

impl From<Timespec> for RawTimespec {
    fn from(time: Timespec) -> Self {
        Self {
            seconds: time.seconds,
            nanoseconds: i64::from(time.nanoseconds),
        }
    }
}

/// `struct stat`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[allow(missing_docs, reason = "the names are those of stat(2)")]
pub struct Stat {
    pub st_dev: u64,
    pub st_ino: u64,
    pub st_mode: u32,
    pub st_nlink: u32,
    pub st_uid: u32,
    pub st_gid: u32,
    pub st_rdev: u64,
    pub pad1: u64,
    pub st_size: i64,
    pub st_blksize: i32,
    pub pad2: i32,
    pub st_blocks: i64,
    pub st_atime: RawTimespec,
    pub st_mtime: RawTimespec,
    pub st_ctime: RawTimespec,
    pub unused: [u32; 2],
}

const _: () = assert!(size_of::<Stat>() == 128);
const _: () = assert!(core::mem::offset_of!(Stat, st_size) == 48);
const _: () = assert!(core::mem::offset_of!(Stat, st_atime) == 72);

impl From<&Attributes> for Stat {
    fn from(a: &Attributes) -> Self {
        Self {
            st_dev: a.device,
            st_ino: a.ino,
            st_mode: a.mode,
            st_nlink: a.nlink,
            st_uid: a.uid,
            st_gid: a.gid,
            st_rdev: a.rdev,
            pad1: 0,
            st_size: a.size.cast_signed(),
            st_blksize: a.block_size.cast_signed(),
            pad2: 0,
            st_blocks: a.blocks.cast_signed(),
            st_atime: a.atime.into(),
            st_mtime: a.mtime.into(),
            st_ctime: a.ctime.into(),
            unused: [0; 2],
        }
    }
}

/// `struct statx_timestamp`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[allow(missing_docs, reason = "the names are those of statx(2)")]
pub struct StatxTimestamp {
    pub tv_sec: i64,
    pub tv_nsec: u32,
    pub reserved: u32,
}

impl From<Timespec> for StatxTimestamp {
    fn from(time: Timespec) -> Self {
        Self {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds,
            reserved: 0,
        }
    }
}

/// `struct statx`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[allow(missing_docs, reason = "the names are those of statx(2)")]
pub struct Statx {
    pub stx_mask: u32,
    pub stx_blksize: u32,
    pub stx_attributes: u64,
    pub stx_nlink: u32,
    pub stx_uid: u32,
    pub stx_gid: u32,
    pub stx_mode: u16,
    pub pad1: u16,
    pub stx_ino: u64,
    pub stx_size: u64,
    pub stx_blocks: u64,
    pub stx_attributes_mask: u64,
    pub stx_atime: StatxTimestamp,
    pub stx_btime: StatxTimestamp,
    pub stx_ctime: StatxTimestamp,
    pub stx_mtime: StatxTimestamp,
    pub stx_rdev_major: u32,
    pub stx_rdev_minor: u32,
    pub stx_dev_major: u32,
    pub stx_dev_minor: u32,
    pub stx_mnt_id: u64,
    pub spare: [u64; 13],
}

const _: () = assert!(size_of::<Statx>() == 256);
const _: () = assert!(core::mem::offset_of!(Statx, stx_atime) == 64);
const _: () = assert!(core::mem::offset_of!(Statx, stx_rdev_major) == 128);

/// `STATX_BASIC_STATS | STATX_BTIME`
const STATX_KNOWN: u32 = 0xfff;

impl From<&Attributes> for Statx {
    fn from(a: &Attributes) -> Self {
        Self {
            stx_mask: STATX_KNOWN,
            stx_blksize: a.block_size,
            stx_attributes: 0,
            stx_nlink: a.nlink,
            stx_uid: a.uid,
            stx_gid: a.gid,
            stx_mode: a.mode as u16,
            pad1: 0,
            stx_ino: a.ino,
            stx_size: a.size,
            stx_blocks: a.blocks,
            stx_attributes_mask: 0,
            stx_atime: a.atime.into(),
            stx_btime: a.btime.into(),
            stx_ctime: a.ctime.into(),
            stx_mtime: a.mtime.into(),
            stx_rdev_major: major(a.rdev) as u32,
            stx_rdev_minor: minor(a.rdev) as u32,
            stx_dev_major: major(a.device) as u32,
            stx_dev_minor: minor(a.device) as u32,
            stx_mnt_id: 0,
            spare: [0; 13],
        }
    }
}

/// `struct statfs`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
#[allow(missing_docs, reason = "the names are those of statfs(2)")]
pub struct Statfs {
    pub f_type: u64,
    pub f_bsize: u64,
    pub f_blocks: u64,
    pub f_bfree: u64,
    pub f_bavail: u64,
    pub f_files: u64,
    pub f_ffree: u64,
    pub f_fsid: [i32; 2],
    pub f_namelen: u64,
    pub f_frsize: u64,
    pub f_flags: u64,
    pub f_spare: [u64; 4],
}

const _: () = assert!(size_of::<Statfs>() == 120);
