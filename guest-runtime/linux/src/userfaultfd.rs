//! `linux/userfaultfd.h`: page faults that the program handles.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A flag of `userfaultfd`, besides `O_CLOEXEC` and `O_NONBLOCK`.
pub const UFFD_USER_MODE_ONLY: u32 = 1;

pub const UFFD_API: u64 = 0xaa;

// Numbers of the requests, as bits of `ioctls`.
pub const _UFFDIO_REGISTER: u64 = 0;
pub const _UFFDIO_UNREGISTER: u64 = 1;
pub const _UFFDIO_WAKE: u64 = 2;
pub const _UFFDIO_COPY: u64 = 3;
pub const _UFFDIO_ZEROPAGE: u64 = 4;
pub const _UFFDIO_WRITEPROTECT: u64 = 6;
pub const _UFFDIO_API: u64 = 0x3f;

// Requests of `ioctl`.
pub const UFFDIO_API: u32 = 0xc018_aa3f;
pub const UFFDIO_REGISTER: u32 = 0xc020_aa00;
pub const UFFDIO_UNREGISTER: u32 = 0x8010_aa01;
pub const UFFDIO_WAKE: u32 = 0x8010_aa02;
pub const UFFDIO_COPY: u32 = 0xc028_aa03;
pub const UFFDIO_ZEROPAGE: u32 = 0xc020_aa04;
pub const UFFDIO_WRITEPROTECT: u32 = 0xc018_aa06;

// Features.
pub const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
pub const UFFD_FEATURE_THREAD_ID: u64 = 1 << 8;
pub const UFFD_FEATURE_EXACT_ADDRESS: u64 = 1 << 11;

// Modes of the requests.
pub const UFFDIO_REGISTER_MODE_MISSING: u64 = 1 << 0;
pub const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
pub const UFFDIO_COPY_MODE_DONTWAKE: u64 = 1 << 0;
pub const UFFDIO_COPY_MODE_WP: u64 = 1 << 1;
pub const UFFDIO_ZEROPAGE_MODE_DONTWAKE: u64 = 1 << 0;
pub const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1 << 0;
pub const UFFDIO_WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;

// An event, and its flags.
pub const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
pub const UFFD_PAGEFAULT_FLAG_WRITE: u64 = 1 << 0;
pub const UFFD_PAGEFAULT_FLAG_WP: u64 = 1 << 1;

/// `struct uffdio_api`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct UffdioApi {
    pub api: u64,
    pub features: u64,
    pub ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct UffdioRange {
    pub start: u64,
    pub len: u64,
}

/// `struct uffdio_register`; its last field is the result.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct UffdioRegister {
    pub range: UffdioRange,
    pub mode: u64,
    pub ioctls: u64,
}

/// `struct uffdio_copy`; its last field is the result.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct UffdioCopy {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    pub copy: i64,
}

/// `struct uffdio_zeropage`; its last field is the result.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct UffdioZeropage {
    pub range: UffdioRange,
    pub mode: u64,
    pub zeropage: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct UffdioWriteprotect {
    pub range: UffdioRange,
    pub mode: u64,
}

/// `struct uffd_msg` of a page fault.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct UffdMsg {
    pub event: u8,
    pub reserved: [u8; 7],
    pub flags: u64,
    pub address: u64,
    pub ptid: u32,
    pub pad: u32,
}

const _: () = assert!(size_of::<UffdMsg>() == 32 && offset_of!(UffdMsg, ptid) == 24);
