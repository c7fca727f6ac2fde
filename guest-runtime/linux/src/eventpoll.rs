//! `linux/eventpoll.h`. The events themselves are in [`poll`](crate::poll).
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Operations of `epoll_ctl`.
pub const EPOLL_CTL_ADD: u64 = 1;
pub const EPOLL_CTL_DEL: u64 = 2;
pub const EPOLL_CTL_MOD: u64 = 3;

// Flags of an interest.
pub const EPOLLEXCLUSIVE: u32 = 0x1000_0000;
pub const EPOLLWAKEUP: u32 = 0x2000_0000;
pub const EPOLLONESHOT: u32 = 0x4000_0000;
pub const EPOLLET: u32 = 0x8000_0000;

/// `struct epoll_event`, which is packed on x86-64 only.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
pub struct EpollEvent {
    pub events: u32,
    pub pad: u32,
    pub data: u64,
}

const _: () = assert!(size_of::<EpollEvent>() == 16);
