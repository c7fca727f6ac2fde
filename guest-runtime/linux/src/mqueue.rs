//! `linux/mqueue.h`: POSIX message queues.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub const MQ_PRIO_MAX: u32 = 32_768;

// The message to the socket of `SIGEV_THREAD`: its length, and what its last byte says.
pub const NOTIFY_COOKIE_LEN: usize = 32;
pub const NOTIFY_WOKENUP: u8 = 1;
pub const NOTIFY_REMOVED: u8 = 2;

/// `struct mq_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct MqAttr {
    pub mq_flags: i64,
    pub mq_maxmsg: i64,
    pub mq_msgsize: i64,
    pub mq_curmsgs: i64,
    pub __reserved: [i64; 4],
}

const _: () = assert!(size_of::<MqAttr>() == 64);
