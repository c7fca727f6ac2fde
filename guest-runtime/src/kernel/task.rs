//! Tasks: the threads of all processes, and the state of each.

use crate::exec::interp::fcsr;
use crate::kernel::debug::{Crash, Traced};
use crate::kernel::exit::Fault;
use crate::kernel::process::Process;
use crate::kernel::ptrace::Tracee;
use crate::kernel::sequences;
use crate::kernel::signals::{SigInfo, ThreadSignals};
use crate::kernel::spawn::Start;
use crate::kernel::table::Handle;
use crate::seccomp::Seccomp;
use crate::strace::Pending;
use crate::wait::Registration;
use crate::wait::time::NEVER;
use alloc::boxed::Box;
use alloc::vec::Vec;
use hartline_abi::hart::{Hart, NO_RESERVATION};
use hartline_linux::sched::{SCHED_FIFO, SCHED_RR};

/// Timer slack of the first task, ns.
const TIMER_SLACK: u64 = 50_000;

/// The event that ends the wait of a task. It is only a hint: the system call is repeated and
/// checks its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Only a timeout or a signal.
    Nothing,
    /// An event of a file, in one of the wait queues of [`Task::registrations`].
    File,
    /// A child ended, stopped or continued.
    Child,
    /// A process made by `vfork` released the memory.
    Vfork,
    /// Another task woke this one by `futex`.
    Futex,
    /// Progress of a disk request of the task.
    Disk,
    /// A change of a semaphore set or message queue of System V.
    Ipc,
}

/// The events that a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The event that wakes it.
    pub event: Event,
    /// Whether standard input wakes it too.
    pub input: bool,
    /// Latest time of `CLOCK_MONOTONIC`, ns, or [`NEVER`].
    pub deadline: u64,
}

impl Wait {
    /// Waits for an event without a time limit.
    #[must_use]
    pub const fn for_event(event: Event) -> Wait {
        Wait {
            event,
            input: false,
            deadline: NEVER,
        }
    }

    /// Waits for a time.
    #[must_use]
    pub const fn until(deadline: u64) -> Wait {
        Wait {
            event: Event::Nothing,
            input: false,
            deadline,
        }
    }
}

/// State of a system call that waits and is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Time limit, computed at the first call.
    pub deadline: u64,
    /// Progress of the call, in its own units.
    pub progress: u64,
    /// Another task has done what the call waits for.
    pub woken: bool,
    /// The operations of `io_submit` before the one that waits, which has `progress`.
    pub submitted: u64,
}

/// Registers of a task that does not run.
#[derive(Debug, Clone)]
pub struct Registers {
    /// `x0`–`x31`.
    pub x: [u64; 32],
    /// `f0`–`f31`.
    pub f: [u64; 32],
    /// Address at which the task continues.
    pub pc: u64,
    /// `fcsr`.
    pub fcsr: u32,
}

impl Registers {
    /// Saves the registers of the task that runs on `hart`.
    #[must_use]
    pub fn save(hart: &Hart) -> Registers {
        Registers {
            x: hart.x.get(),
            f: hart.f.get(),
            pc: hart.pc.get(),
            fcsr: fcsr::fcsr_read(hart),
        }
    }

    /// Restores the registers to `hart`. A reservation does not survive a task switch.
    pub fn restore(&self, hart: &Hart) {
        hart.x.set(self.x);
        hart.f.set(self.f);
        hart.pc.set(self.pc);
        hart.reservation.set(NO_RESERVATION);
        hart.resume.set(0);
        fcsr::fcsr_write(hart, self.fcsr);
    }
}

/// A scheduling policy as the program sets and sees it. All tasks are scheduled alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// `SCHED_…`.
    pub number: u64,
    /// Priority of a real-time policy, otherwise 0.
    pub priority: u32,
    /// Children do not inherit it (`SCHED_RESET_ON_FORK`).
    pub resets: bool,
}

impl Policy {
    /// Whether the policy is for real time.
    #[must_use]
    pub fn is_real_time(self) -> bool {
        matches!(self.number, SCHED_FIFO | SCHED_RR)
    }

    /// The policy of a new task that a task with this one makes.
    #[must_use]
    pub fn of_child(self) -> Policy {
        match self.resets {
            true if self.is_real_time() => Policy::default(),
            _ => Policy {
                resets: false,
                ..self
            },
        }
    }
}

/// A task.
#[derive(Debug)]
pub struct Task {
    /// Number of the task; for the first thread, the number of the process.
    pub tid: u32,
    /// Number of the process.
    pub pid: u32,
    /// The process.
    pub process: Handle<Process>,
    /// Name, NUL-padded (`PR_SET_NAME`).
    pub name: [u8; 16],
    /// `set_tid_address`: cleared, and its waiters woken, when the task ends.
    pub clear_child_tid: u64,
    /// `set_robust_list`: address and length.
    pub robust_list: [u64; 2],
    /// The registration for restartable sequences.
    pub sequences: Option<sequences::Registration>,
    /// The fault that ends the program when its signal is delivered.
    pub fault: Option<Fault>,
    /// The signal that ends the program, for its core dump.
    pub fatal: Option<SigInfo>,
    /// The system call at `pc` that is to be repeated.
    pub retry: Option<Retry>,
    /// The traced system call, while it is executed.
    pub trace: Option<Box<Pending>>,
    /// What the task waits for; none if it is runnable.
    pub wait: Option<Wait>,
    /// The program that it executes first, instead of continuing at its registers.
    pub(crate) start: Option<Box<Start>>,
    /// It is going to wait until the program has handled its page fault.
    pub(crate) awaits_page: bool,
    /// CPU time used, ns; while the task runs, up to the last switch.
    pub cpu_time: u64,
    /// The places of the task in wait queues while it waits. After that, until its repeated call
    /// ends or waits again, the exclusive ones that were woken.
    pub registrations: Vec<Registration>,
    /// The vCPUs that may run the task, as a bit set.
    pub affinity: u64,
    /// Scheduling policy.
    pub policy: Policy,
    /// `PR_SET_TIMERSLACK`: the value, and the one that the task started with, ns.
    pub timer_slack: [u64; 2],
    /// `ioprio_set`: class and level.
    pub io_priority: u16,
    /// `set_mempolicy`.
    pub memory_policy: MemoryPolicy,
    /// The system calls that it may make.
    pub seccomp: Seccomp,
    /// The tracer that a filter has asked lets the current call be served.
    pub is_call_allowed: bool,
    /// What a debugger does with it.
    pub(crate) debug: Traced,
    /// The fault after which it cannot continue.
    pub(crate) crash: Option<Box<Crash>>,
    /// The state of a task that another one traces (`ptrace`).
    pub(crate) tracee: Option<Box<Tracee>>,
    /// Registers while the task does not run.
    pub(crate) registers: Option<Registers>,
    /// Signal state of the thread.
    pub(crate) signals: ThreadSignals,
}

/// A memory policy; the default one is `MPOL_DEFAULT` without nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryPolicy {
    /// The mode (`MPOL_…`) with its flags.
    pub mode: u32,
    /// Nodes, as a bit set.
    pub nodes: u64,
}

impl Task {
    /// Creates a running task: the first one of process `pid`.
    #[must_use]
    pub fn new(pid: u32, process: Handle<Process>) -> Task {
        Task {
            tid: pid,
            pid,
            process,
            name: [0; 16],
            clear_child_tid: 0,
            robust_list: [0; 2],
            sequences: None,
            fault: None,
            fatal: None,
            retry: None,
            trace: None,
            wait: None,
            start: None,
            awaits_page: false,
            cpu_time: 0,
            registrations: Vec::new(),
            affinity: u64::MAX,
            policy: Policy::default(),
            timer_slack: [TIMER_SLACK; 2],
            io_priority: 0,
            memory_policy: MemoryPolicy::default(),
            seccomp: Seccomp::Disabled,
            is_call_allowed: false,
            debug: Traced::default(),
            crash: None,
            tracee: None,
            registers: None,
            signals: ThreadSignals::default(),
        }
    }

    /// Makes a debugger hold the task too if it holds the one that made it.
    pub fn inherit_hold(&mut self, is_held: bool) {
        self.debug.hold(is_held);
    }

    /// Whether a debugger outside of the VM or the tracer holds the task.
    pub(crate) fn is_held(&self) -> bool {
        let is_stopped = |tracee: &Tracee| tracee.is_stopped();
        self.debug.is_held() || self.tracee.as_deref().is_some_and(is_stopped)
    }

    /// Hands wake-ups that reached only this task to others, because this task will not use them.
    pub(crate) fn pass_on(&mut self) {
        self.registrations
            .drain(..)
            .for_each(|registration| registration.pass_on());
    }
}
