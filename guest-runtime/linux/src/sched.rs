//! `linux/sched.h`: creating processes and threads, scheduling policies.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Flags of `clone`.
pub const CSIGNAL: u64 = 0xff;
pub const CLONE_VM: u64 = 0x100;
pub const CLONE_FS: u64 = 0x200;
pub const CLONE_FILES: u64 = 0x400;
pub const CLONE_SIGHAND: u64 = 0x800;
pub const CLONE_PIDFD: u64 = 0x1000;
pub const CLONE_PTRACE: u64 = 0x2000;
pub const CLONE_VFORK: u64 = 0x4000;
pub const CLONE_PARENT: u64 = 0x8000;
pub const CLONE_THREAD: u64 = 0x1_0000;
pub const CLONE_NEWNS: u64 = 0x2_0000;
pub const CLONE_SYSVSEM: u64 = 0x4_0000;
pub const CLONE_SETTLS: u64 = 0x8_0000;
pub const CLONE_PARENT_SETTID: u64 = 0x10_0000;
pub const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
pub const CLONE_DETACHED: u64 = 0x40_0000;
pub const CLONE_UNTRACED: u64 = 0x80_0000;
pub const CLONE_CHILD_SETTID: u64 = 0x100_0000;
pub const CLONE_NEWCGROUP: u64 = 0x200_0000;
pub const CLONE_NEWUTS: u64 = 0x400_0000;
pub const CLONE_NEWIPC: u64 = 0x800_0000;
pub const CLONE_NEWUSER: u64 = 0x1000_0000;
pub const CLONE_NEWPID: u64 = 0x2000_0000;
pub const CLONE_NEWNET: u64 = 0x4000_0000;
pub const CLONE_IO: u64 = 0x8000_0000;
// A flag of `unshare` and `clone3` only.
pub const CLONE_NEWTIME: u64 = 0x80;
pub const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

// Policies.
pub const SCHED_OTHER: u64 = 0;
pub const SCHED_FIFO: u64 = 1;
pub const SCHED_RR: u64 = 2;
pub const SCHED_BATCH: u64 = 3;
pub const SCHED_IDLE: u64 = 5;

// A flag of a policy.
pub const SCHED_RESET_ON_FORK: u64 = 0x4000_0000;

// Flags of `struct sched_attr`.
pub const SCHED_FLAG_RESET_ON_FORK: u64 = 1;
pub const SCHED_FLAG_KEEP_POLICY: u64 = 8;
pub const SCHED_FLAG_KEEP_PARAMS: u64 = 0x10;

/// `struct sched_attr`, first version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
pub struct SchedAttr {
    pub size: u32,
    pub sched_policy: u32,
    pub sched_flags: u64,
    pub sched_nice: i32,
    pub sched_priority: u32,
    pub sched_runtime: u64,
    pub sched_deadline: u64,
    pub sched_period: u64,
}
const _: () = assert!(size_of::<SchedAttr>() == 48);

/// `struct clone_args`, first version.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
}

const _: () = assert!(size_of::<CloneArgs>() == 64);
