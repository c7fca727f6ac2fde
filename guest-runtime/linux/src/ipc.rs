//! `linux/ipc.h` and `asm-generic/ipcbuf.h`: what shared memory, semaphores and message queues of
//! System V have in common.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The key of objects that have none.
pub const IPC_PRIVATE: i32 = 0;

// Flags of `shmget`, `semget` and `msgget`.
pub const IPC_CREAT: u64 = 0o1000;
pub const IPC_EXCL: u64 = 0o2000;
pub const IPC_NOWAIT: u64 = 0o4000;

// Commands.
pub const IPC_RMID: u64 = 0;
pub const IPC_SET: u64 = 1;
pub const IPC_STAT: u64 = 2;
pub const IPC_INFO: u64 = 3;

/// Most objects of one kind: the lower bits of an identifier are an index.
pub const IPCMNI: u32 = 32768;

/// `struct ipc64_perm`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Ipc64Perm {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
    pub seq: u16,
    pub __pad2: u16,
    pub __pad3: u32,
    pub __unused1: u64,
    pub __unused2: u64,
}

const _: () = assert!(size_of::<Ipc64Perm>() == 48);
