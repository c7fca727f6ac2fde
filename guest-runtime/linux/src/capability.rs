//! `linux/capability.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub const _LINUX_CAPABILITY_VERSION_1: u32 = 0x1998_0330;
pub const _LINUX_CAPABILITY_VERSION_2: u32 = 0x2007_1026;
pub const _LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

pub const CAP_CHOWN: u64 = 0;
pub const CAP_DAC_OVERRIDE: u64 = 1;
pub const CAP_DAC_READ_SEARCH: u64 = 2;
pub const CAP_FOWNER: u64 = 3;
pub const CAP_FSETID: u64 = 4;
pub const CAP_KILL: u64 = 5;
pub const CAP_SETGID: u64 = 6;
pub const CAP_SETUID: u64 = 7;
pub const CAP_SETPCAP: u64 = 8;
pub const CAP_LINUX_IMMUTABLE: u64 = 9;
pub const CAP_NET_BIND_SERVICE: u64 = 10;
pub const CAP_NET_ADMIN: u64 = 12;
pub const CAP_NET_RAW: u64 = 13;
pub const CAP_IPC_LOCK: u64 = 14;
pub const CAP_IPC_OWNER: u64 = 15;
pub const CAP_SYS_CHROOT: u64 = 18;
pub const CAP_SYS_PTRACE: u64 = 19;
pub const CAP_SYS_ADMIN: u64 = 21;
pub const CAP_SYS_NICE: u64 = 23;
pub const CAP_SYS_RESOURCE: u64 = 24;
pub const CAP_SYS_TIME: u64 = 25;
pub const CAP_SYS_TTY_CONFIG: u64 = 26;
pub const CAP_MKNOD: u64 = 27;
pub const CAP_LEASE: u64 = 28;
pub const CAP_SETFCAP: u64 = 31;
pub const CAP_MAC_OVERRIDE: u64 = 32;
pub const CAP_SYSLOG: u64 = 34;
pub const CAP_LAST_CAP: u64 = 40;

/// `struct __user_cap_header_struct`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct UserCapHeader {
    pub version: u32,
    pub pid: i32,
}

/// `struct __user_cap_data_struct`: 32 capabilities of each set.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct UserCapData {
    pub effective: u32,
    pub permitted: u32,
    pub inheritable: u32,
}
