//! `linux/sem.h` and `asm-generic/sembuf.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use crate::ipc::Ipc64Perm;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub const SEMMNI: u32 = 32000;
pub const SEMMSL: u64 = 32000;
pub const SEMMNS: u64 = SEMMNI as u64 * SEMMSL;
pub const SEMOPM: u64 = 500;
pub const SEMVMX: i32 = 32767;
pub const SEMAEM: i32 = SEMVMX;

/// Flag of an operation: it is reversed when the process ends.
pub const SEM_UNDO: i16 = 0x1000;

// Commands.
pub const GETPID: u64 = 11;
pub const GETVAL: u64 = 12;
pub const GETALL: u64 = 13;
pub const GETNCNT: u64 = 14;
pub const GETZCNT: u64 = 15;
pub const SETVAL: u64 = 16;
pub const SETALL: u64 = 17;
pub const SEM_STAT: u64 = 18;
pub const SEM_INFO: u64 = 19;
pub const SEM_STAT_ANY: u64 = 20;

/// `struct sembuf`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Sembuf {
    pub sem_num: u16,
    pub sem_op: i16,
    pub sem_flg: i16,
}

const _: () = assert!(size_of::<Sembuf>() == 6);

/// `struct semid64_ds`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Semid64Ds {
    pub sem_perm: Ipc64Perm,
    pub sem_otime: i64,
    pub sem_ctime: i64,
    pub sem_nsems: u64,
    pub __unused3: u64,
    pub __unused4: u64,
}

const _: () = assert!(size_of::<Semid64Ds>() == 88);

/// `struct seminfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Seminfo {
    pub semmap: i32,
    pub semmni: i32,
    pub semmns: i32,
    pub semmnu: i32,
    pub semmsl: i32,
    pub semopm: i32,
    pub semume: i32,
    pub semusz: i32,
    pub semvmx: i32,
    pub semaem: i32,
}

const _: () = assert!(size_of::<Seminfo>() == 40);
