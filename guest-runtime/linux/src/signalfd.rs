//! `linux/signalfd.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct signalfd_siginfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct SignalfdSiginfo {
    pub ssi_signo: i32,
    pub ssi_errno: i32,
    pub ssi_code: i32,
    pub ssi_pid: u32,
    pub ssi_uid: u32,
    pub ssi_fd: u32,
    pub ssi_tid: u32,
    pub ssi_band: u32,
    pub ssi_overrun: i32,
    pub ssi_trapno: u32,
    pub ssi_status: i32,
    pub ssi_int: u32,
    pub ssi_ptr: u64,
    pub ssi_utime: u64,
    pub ssi_stime: u64,
    pub ssi_addr: u64,
    pub ssi_addr_lsb: u16,
    pub pad1: u16,
    pub ssi_syscall: i32,
    pub ssi_call_addr: u64,
    pub ssi_arch: u32,
    pub pad2: [u32; 7],
}

const _: () = assert!(size_of::<SignalfdSiginfo>() == 128);
const _: () = assert!(offset_of!(SignalfdSiginfo, ssi_ptr) == 48);
const _: () = assert!(offset_of!(SignalfdSiginfo, ssi_addr) == 72);
const _: () = assert!(offset_of!(SignalfdSiginfo, ssi_arch) == 96);
