//! A debugger outside of the VM: GDB's remote serial protocol ([`crate::debugger`]) over a connection
//! of the host ([`hartline_abi::spawn::Event::Debug`]).
//!
//! The debugger sees all threads of the processes that are *debugged* stop together ("all-stop"). A
//! stopped thread is *held*: it is in no queue but that of suspended tasks, and has its registers in RAM,
//! or in the hart of the vCPU that waits for a task. A thread on another vCPU is kicked, and held at its
//! next safepoint. Everything here is done with the kernel's lock while the threads stand still.

pub(crate) mod code;
mod commands;
mod crash;
mod detached;
mod events;
mod files;
mod memory;
mod monitor;
mod registers;
mod session;
mod step;
mod transfer;

use crate::kernel::Kernel;
use crate::kernel::process::FIRST;
use crate::kernel::signals::{SigInfo, bit};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_linux::signal::SIGKILL;

pub(crate) use code::SpaceDebug;
pub(crate) use crash::Crash;
pub(crate) use events::{Event, Reason};

/// What a debugger does with a task.
#[derive(Debug, Default)]
pub struct Traced {
    /// It must not run.
    pub(super) held: bool,
    /// It executes one instruction, or those at these addresses, and stops.
    pub(super) step: Option<Range<u64>>,
    /// The signal with which it stopped, which it has not received.
    pub(super) info: Option<SigInfo>,
    /// The signal that the debugger lets it receive.
    pub(super) passes: Option<u8>,
    /// The progress of a system call that stops at its start and its end.
    pub(super) call: Call,
    /// The debugger has changed the program counter: the system call at the old one is forgotten.
    pub(super) moved: bool,
}

impl Traced {
    /// Whether the task must not run.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Makes the task execute one instruction and stop.
    pub(super) fn step_once(&mut self, steps: bool) {
        self.step = steps.then_some(0..0);
    }

    /// Holds the task, or lets it run.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }
}

/// The progress of a system call that the debugger catches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Call {
    /// It is not caught, or has not begun.
    #[default]
    Outside,
    /// The debugger has been told that it begins.
    Begun,
}

/// Whether the debugged threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// They run.
    Running,
    /// They are held, but some have not reached a safepoint.
    Stopping,
    /// All stand still.
    Stopped,
}

/// The features that the debugger has told ("qSupported").
#[derive(Debug, Clone, Copy, Default)]
struct Features {
    multiprocess: bool,
    swbreak: bool,
    hwbreak: bool,
    fork_events: bool,
    vfork_events: bool,
    exec_events: bool,
}

/// The system calls that the debugger catches.
#[derive(Debug, Clone, Default)]
enum Catches {
    #[default]
    None,
    All,
    Some(BTreeSet<u64>),
}

impl Catches {
    fn include(&self, number: u64) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(numbers) => numbers.contains(&number),
        }
    }
}

/// The debugger.
#[derive(Debug)]
pub(crate) struct Debugger {
    link: session::Link,
    phase: Phase,
    /// What stopped threads and has not been told.
    events: alloc::collections::VecDeque<Event>,
    /// What was told last.
    told: Option<Event>,
    /// The debugger waits for the next stop.
    owes_stop: bool,
    features: Features,
    /// The thread whose registers and memory packets are about.
    thread: u32,
    /// The last thread that `qfThreadInfo` or `qsThreadInfo` has listed.
    listed: u32,
    /// Signals that threads receive without a stop.
    passed: u64,
    catches: Catches,
    files: files::Files,
    /// If the connection breaks, the processes stay stopped.
    stops_when_lost: bool,
    /// Debugged processes use code with exact registers at each fault.
    is_precise: bool,
}

impl Kernel {
    /// Whether a debugger or a tracer holds the running task.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.task().is_held()
    }

    /// Holds the first process until a debugger continues it, if the VMM wants that.
    pub(crate) fn await_debugger(&mut self) {
        if self.host.boot().debug != 0
            && let Some(process) = self.processes.get_mut(FIRST)
        {
            process.debugged = true;
            self.hold_debugged();
            self.kick_self();
        }
    }

    /// The threads of debugged processes.
    fn debugged(&self) -> Vec<u32> {
        let is_debugged = |pid| {
            let process = self.processes.get(pid);
            process.is_some_and(|process| process.debugged && !process.is_zombie())
        };
        let tasks = self.tasks().filter(|task| is_debugged(task.pid));
        tasks.map(|task| task.tid).collect()
    }

    /// Whether a task is debugged.
    fn is_debugged(&self, tid: u32) -> bool {
        let task = self.program_task(tid);
        task.is_some_and(|task| self.processes[task.process].debugged)
    }

    /// Whether a stopped process has a `SIGKILL` that waits until the debugger knows.
    fn is_killed(&self, pid: u32) -> bool {
        let process = self.processes.get(pid);
        let shared = process.map_or(0, |process| process.signals.pending());
        let own = self.tasks().filter(|task| task.pid == pid);
        own.fold(shared, |set, task| set | task.signals.pending()) & bit(SIGKILL) != 0
    }

    /// Whether `SIGKILL` does not end a held task now. The end of the first process ends the VM, so it
    /// ends when the debugger continues it: the debugger then receives the stop reply.
    pub(crate) fn is_kept_from_kill(&self, pid: u32) -> bool {
        let is_stopped = |debugger: &Debugger| debugger.phase == Phase::Stopped;
        pid == FIRST && self.debugger.as_deref().is_some_and(is_stopped)
    }

    /// Lets the tasks of a process run that were held, because they are to end.
    pub(crate) fn release_hold(&mut self, pid: u32) {
        let mut is_held = false;
        for task in self.tasks.iter_mut().filter(|task| task.pid == pid) {
            is_held |= core::mem::take(&mut task.debug.held);
        }
        if is_held {
            self.resume_tasks(pid);
        }
    }
}
