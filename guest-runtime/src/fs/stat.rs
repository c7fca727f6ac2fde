//! The structures that file system calls return, from attributes of inodes.

use super::inode::Attributes;
use super::types::{Timestamp, major, minor};
use crate::convert::{low_u16, low_u32};
use hartline_linux::stat::{STATX_BASIC_STATS, STATX_BTIME, Stat, Statx, StatxTimestamp};

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
            st_atime: a.atime.seconds,
            st_atime_nsec: u64::from(a.atime.nanoseconds),
            st_mtime: a.mtime.seconds,
            st_mtime_nsec: u64::from(a.mtime.nanoseconds),
            st_ctime: a.ctime.seconds,
            st_ctime_nsec: u64::from(a.ctime.nanoseconds),
            unused: [0; 2],
        }
    }
}

impl From<Timestamp> for StatxTimestamp {
    fn from(time: Timestamp) -> Self {
        Self {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds,
            reserved: 0,
        }
    }
}

impl From<&Attributes> for Statx {
    fn from(a: &Attributes) -> Self {
        Self {
            stx_mask: STATX_BASIC_STATS | STATX_BTIME,
            stx_blksize: a.block_size,
            stx_attributes: 0,
            stx_nlink: a.nlink,
            stx_uid: a.uid,
            stx_gid: a.gid,
            stx_mode: low_u16(a.mode.into()),
            spare0: 0,
            stx_ino: a.ino,
            stx_size: a.size,
            stx_blocks: a.blocks,
            stx_attributes_mask: 0,
            stx_atime: a.atime.into(),
            stx_btime: a.btime.into(),
            stx_ctime: a.ctime.into(),
            stx_mtime: a.mtime.into(),
            stx_rdev_major: low_u32(major(a.rdev)),
            stx_rdev_minor: low_u32(minor(a.rdev)),
            stx_dev_major: low_u32(major(a.device)),
            stx_dev_minor: low_u32(minor(a.device)),
            stx_mnt_id: 0,
            spare: [0; 13],
        }
    }
}
