//! `linux/vm_sockets.h`: vsock.
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// Options; their level is `AF_VSOCK`.
pub const SO_VM_SOCKETS_BUFFER_SIZE: i32 = 0;
pub const SO_VM_SOCKETS_BUFFER_MIN_SIZE: i32 = 1;
pub const SO_VM_SOCKETS_BUFFER_MAX_SIZE: i32 = 2;
pub const SO_VM_SOCKETS_CONNECT_TIMEOUT_OLD: i32 = 6;
pub const SO_VM_SOCKETS_CONNECT_TIMEOUT_NEW: i32 = 8;

// Any port.
pub const VMADDR_PORT_ANY: u32 = u32::MAX;

// A flag of an address.
pub const VMADDR_FLAG_TO_HOST: u8 = 1;

// A request on `/dev/vsock`.
pub const IOCTL_VM_SOCKETS_GET_LOCAL_CID: u32 = 0x7b9;

/// `struct sockaddr_vm`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SockaddrVm {
    pub svm_family: u16,
    pub svm_reserved1: u16,
    pub svm_port: u32,
    pub svm_cid: u32,
    pub svm_flags: u8,
    pub svm_zero: [u8; 3],
}

const _: () = assert!(size_of::<SockaddrVm>() == 16);
const _: () = assert!(offset_of!(SockaddrVm, svm_flags) == 12);
