//! `linux/capability.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

pub const _LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

pub const CAP_LAST_CAP: u64 = 40;
