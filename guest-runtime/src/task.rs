//! Identity, limits and bookkeeping of the one task.

use crate::exit::Fault;
use alloc::vec::Vec;
use hartline_abi::boot::BootInfo;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The program's process and thread number. 1 is `init`, which programs treat
/// specially.
pub const PID: u32 = 2;
/// Its parent's.
pub const PARENT: u32 = 1;

/// No limit.
pub const RLIM_INFINITY: u64 = u64::MAX;

/// `struct rlimit64`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Limit {
    /// Limit in force.
    pub soft: u64,
    /// What an unprivileged program may raise it to.
    pub hard: u64,
}

/// Numbers of resource limits (asm-generic).
pub mod limit {
    /// Stack size, bytes.
    pub const STACK: usize = 3;
    /// Size of a core file, bytes.
    pub const CORE: usize = 4;
    /// Descriptors.
    pub const NOFILE: usize = 7;
    /// Number of limits.
    pub const COUNT: usize = 16;
}

/// The task.
#[derive(Debug)]
pub struct Task {
    /// User, real and effective.
    pub uid: u32,
    /// Group, real and effective.
    pub gid: u32,
    /// Name, NUL-padded (`PR_SET_NAME`).
    pub name: [u8; 16],
    /// Resource limits.
    pub limits: [Limit; limit::COUNT],
    /// `set_tid_address`.
    pub clear_child_tid: u64,
    /// `set_robust_list`: address and length.
    pub robust_list: [u64; 2],
    /// `PR_SET_DUMPABLE`.
    pub dumpable: u64,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: bool,
    /// `PR_SET_PDEATHSIG`.
    pub parent_death_signal: u64,
    /// `personality`.
    pub personality: u32,
    /// Process group and session.
    pub group: u32,
    /// Path of the program.
    pub executable: Vec<u8>,
    /// Where in memory the arguments and the environment strings are, for `/proc`.
    pub arguments: core::ops::Range<u64>,
    /// See [`arguments`](Self::arguments).
    pub environment: core::ops::Range<u64>,
    /// The fault that ends the program when its signal is delivered.
    pub fault: Option<Fault>,
}

impl Task {
    /// The task as the VMM described it.
    #[must_use]
    pub fn new(boot: &BootInfo) -> Task {
        let unlimited = Limit {
            soft: RLIM_INFINITY,
            hard: RLIM_INFINITY,
        };
        let mut limits = [unlimited; limit::COUNT];
        limits[limit::STACK].soft = boot.stack_limit;
        limits[limit::CORE].soft = 0;
        limits[limit::NOFILE] = Limit {
            soft: 1024,
            hard: 1 << 20,
        };
        Task {
            uid: boot.uid,
            gid: boot.gid,
            name: [0; 16],
            limits,
            clear_child_tid: 0,
            robust_list: [0; 2],
            dumpable: 1,
            no_new_privileges: false,
            parent_death_signal: 0,
            personality: 0,
            group: PID,
            executable: Vec::new(),
            arguments: 0..0,
            environment: 0..0,
            fault: None,
        }
    }
}
