//! Checkpoints: the runtime stops all tasks and asks the VMM for a snapshot of RAM
//! ([`Operation::Checkpoint`](crate::call::Operation::Checkpoint)).
//!
//! A VM that starts with the RAM of a snapshot gets new shared pages and new devices. Its first vCPU
//! starts at the runtime's ELF entry point with the boot page table, as at the first start. The
//! runtime finds its own state in RAM, so it continues there. If it has a network device then, it ends
//! all connections over it, and starts the network device of the new VM.

/// Values of [`BootInfo::checkpoint`](crate::boot::BootInfo::checkpoint).
pub mod trigger {
    /// There is no checkpoint.
    pub const NONE: u32 = 0;
    /// Before the first read of standard input.
    pub const STDIN: u32 = 1;
    /// When no task can run for the first time while a task waits in `accept`, `epoll_wait`, `poll`
    /// or `select`, and not only for answers of other hosts.
    pub const LISTEN: u32 = 2;
    /// At each [`SIGNAL`](super::SIGNAL) from outside.
    pub const SIGNAL: u32 = 3;
    /// When a task waits for a call of the host for the first time ([`crate::exports::operation::SERVE`]).
    pub const CALL: u32 = 4;
    /// After each [`SIGNAL`](super::SIGNAL) from outside, when no task can run while a task waits as for
    /// [`LISTEN`].
    pub const IDLE: u32 = 5;
    /// When a VM with the RAM of a snapshot is ready to go on, before any task runs.
    pub const RESTORED: u32 = 6;
}

/// Random bytes for a VM that is reset to a checkpoint.
pub const SEED: usize = 32;

/// The signal that requests a checkpoint if [`trigger::SIGNAL`] or [`trigger::IDLE`] is set: `SIGUSR2`. The
/// program does not receive it then.
pub const SIGNAL: u8 = 12;
