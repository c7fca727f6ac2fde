//! `linux/msg.h` and `asm-generic/msgbuf.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use crate::ipc::Ipc64Perm;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub const MSGMNI: u32 = 32000;
pub const MSGMAX: u64 = 8192;
pub const MSGMNB: u64 = 16384;

// Flags of `msgrcv`.
pub const MSG_NOERROR: u64 = 0o10000;
pub const MSG_EXCEPT: u64 = 0o20000;
pub const MSG_COPY: u64 = 0o40000;

// Commands.
pub const MSG_STAT: u64 = 11;
pub const MSG_INFO: u64 = 12;
pub const MSG_STAT_ANY: u64 = 13;

/// `struct msqid64_ds`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Msqid64Ds {
    pub msg_perm: Ipc64Perm,
    pub msg_stime: i64,
    pub msg_rtime: i64,
    pub msg_ctime: i64,
    pub msg_cbytes: u64,
    pub msg_qnum: u64,
    pub msg_qbytes: u64,
    pub msg_lspid: u32,
    pub msg_lrpid: u32,
    pub __unused4: u64,
    pub __unused5: u64,
}

const _: () = assert!(size_of::<Msqid64Ds>() == 120);

/// `struct msginfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Msginfo {
    pub msgpool: i32,
    pub msgmap: i32,
    pub msgmax: i32,
    pub msgmnb: i32,
    pub msgmni: i32,
    pub msgssz: i32,
    pub msgtql: i32,
    pub msgseg: u16,
    pub __pad: u16,
}

const _: () = assert!(size_of::<Msginfo>() == 32);
