//! What an open file may know of the task that calls it, and do on its behalf.

use super::Io;
use super::pty::pair::PtyId;
use crate::drivers::streams::Streams;
use crate::fs::process::Process;
use crate::mm::AddressSpace;
use crate::wait::{Registration, WaitQueue};
use hartline_linux::errno::Errno;
use hartline_linux::signalfd::SignalfdSiginfo;

/// The numbers of the calling task, and of what it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Number of the task.
    pub tid: u32,
    /// Number of its process.
    pub pid: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// Session of its controlling terminal; [`NO_SESSION`](crate::ids::NO_SESSION) if the
    /// process has released the terminal.
    pub terminal_session: u32,
}

/// The state of a call that is repeated after it has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// When the call gives up, ns of `CLOCK_MONOTONIC`.
    pub deadline: u64,
    /// The progress that the call reported before it waited.
    pub progress: u64,
}

/// The task that calls an operation of an open file.
///
/// The kernel implements it. Reads and writes do not use it, except those that wait by themselves:
/// everything else that they need is in their [`Transfer`](super::transfer::Transfer).
pub trait Caller: JobControl {
    /// The files of the VM with what they lead to, and the descriptors of the calling process.
    fn io(&mut self) -> (Io<'_>, &mut Process);

    /// Memory of the calling process.
    fn memory(&mut self) -> &mut AddressSpace;

    /// As [`io`](Self::io) and [`memory`](Self::memory) at once.
    fn io_and_memory(&mut self) -> (Io<'_>, &mut AddressSpace);

    /// The VM's standard streams.
    fn streams(&mut self) -> &mut Streams;

    /// The numbers of the calling task.
    fn identity(&self) -> Identity;

    /// The state of the call before it waited; none if it has not waited.
    fn waited(&self) -> Option<Waited>;

    /// Makes the call wait in the wait queue of a file until `deadline`
    /// ([`NEVER`](crate::wait::time::NEVER): without a limit). The call returns the result, and is
    /// repeated later with `progress`. `EINTR` if a signal is deliverable.
    fn block_at(&mut self, registration: Registration, deadline: u64, progress: u64) -> Errno;

    /// As [`block_at`](Self::block_at), until a request to a disk is complete.
    fn await_disk(&mut self, progress: u64) -> Errno;

    /// Counts the expirations of all timers up to now.
    fn run_timers(&mut self);

    /// Removes the first pending signal of `set` from the task or its process.
    fn take_signal(&mut self, set: u64) -> Option<SignalfdSiginfo>;

    /// The pending signals of the task and its process, a bit for each.
    fn pending_signals(&self) -> u64;

    /// The queue that is woken when the process receives a signal that a task has blocked.
    fn signal_waiters(&self) -> &WaitQueue;

    /// Whether process `pid` has ended.
    fn has_ended(&self, pid: u32) -> bool;

    /// Reseeds the random number generator from the entropy device.
    ///
    /// # Errors
    /// `ENODEV`, `EIO`.
    fn reseed(&mut self) -> Result<(), Errno>;

    /// Mixes memory of the calling process into the random number generator.
    ///
    /// # Errors
    /// `EFAULT`.
    fn mix(&mut self, address: u64, length: u64) -> Result<(), Errno>;
}

/// Job control: sessions, process groups and their terminals.
pub trait JobControl {
    /// The foreground process group of the VM's terminal.
    fn console_foreground(&mut self) -> &mut u32;

    /// Checks that the calling process may read from the terminal of `session`: a background process
    /// is stopped.
    ///
    /// # Errors
    /// `EIO` if the process cannot be stopped, `EINTR` if it is.
    fn check_background_read(&mut self, session: u32, foreground: u32) -> Result<(), Errno>;

    /// Checks that the calling process may write to or change the terminal of `session`: a
    /// background process is stopped unless it blocks or ignores `SIGTTOU`.
    ///
    /// # Errors
    /// `EIO` if the process cannot be stopped, `EINTR` if it is.
    fn check_background_write(&mut self, session: u32, foreground: u32) -> Result<(), Errno>;

    /// Returns the process group that `TIOCSPGRP` makes the foreground group of the terminal of
    /// `session`, in place of `foreground`. Its number is at `address` in the caller's memory.
    ///
    /// # Errors
    /// `ESRCH`, `EPERM`, `EFAULT`; the errors of
    /// [`check_background_write`](Self::check_background_write).
    fn new_foreground(&mut self, session: u32, foreground: u32, address: u64)
    -> Result<u32, Errno>;

    /// Sends a signal to a process group (0: to none).
    ///
    /// # Errors
    /// `EINVAL` for a number that is no signal.
    fn signal_group(&mut self, group: u32, signal: u64) -> Result<(), Errno>;

    /// Whether a session has a controlling terminal.
    fn has_terminal(&self, session: u32) -> bool;

    /// Attaches the calling process to the controlling terminal of its session.
    fn join_terminal(&mut self);

    /// Detaches the calling process and its later children from the controlling terminal. Other
    /// processes of the session keep it.
    fn leave_own_terminal(&mut self);

    /// Detaches the pair from its session; its foreground process group gets `signals`.
    fn give_up_terminal(&mut self, id: PtyId, signals: &[u8]);
}
