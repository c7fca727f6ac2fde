//! `linux/magic.h`: types of file systems.
#![allow(missing_docs, reason = "the names are Linux's")]

pub const TMPFS_MAGIC: u64 = 0x102_1994;
pub const PROC_SUPER_MAGIC: u64 = 0x9fa0;
pub const SYSFS_MAGIC: u64 = 0x6265_6572;
pub const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
pub const PIPEFS_MAGIC: u64 = 0x5049_5045;
pub const ANON_INODE_FS_MAGIC: u64 = 0x904_1934;
pub const DEVPTS_SUPER_MAGIC: u64 = 0x1cd1;
pub const SOCKFS_MAGIC: u64 = 0x534f_434b;
pub const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
pub const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
