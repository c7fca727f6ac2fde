//! Tasks: the threads of all processes, and what each has of its own.

use crate::exit::Fault;
use crate::interp::fcsr;
use crate::signals::ThreadSignals;
use crate::strace::Pending;
use crate::vfs::types::Ino;
use alloc::boxed::Box;
use alloc::vec::Vec;
use hartline_abi::hart::{Hart, NO_RESERVATION};

/// No time limit, as a time of `CLOCK_MONOTONIC`.
pub const NEVER: u64 = u64::MAX;

/// What ends the waiting of a task. It is only a hint: the system call is made again and
/// sees for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nothing but time or a signal.
    Nothing,
    /// Something happened to this pipe or eventfd.
    File(Ino),
    /// Something happened to any pipe or eventfd.
    AnyFile,
    /// A child ended, stopped or went on.
    Child,
    /// A process made by `vfork` gave the memory back.
    Vfork,
    /// Another task woke this one by `futex`.
    Futex,
    /// A disk did something for it.
    Disk,
}

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// What wakes it.
    pub event: Event,
    /// So does standard input.
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

/// State of a system call that has to wait and is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Time limit, computed when the call was made first.
    pub deadline: u64,
    /// What the call has done already, in its own terms.
    pub progress: u64,
    /// Another task did what the call waits for.
    pub woken: bool,
}

/// Registers of a task that does not run.
#[derive(Debug, Clone)]
pub struct Registers {
    /// `x0`–`x31`.
    pub x: [u64; 32],
    f: [u64; 32],
    /// Where it goes on.
    pub pc: u64,
    fcsr: u32,
}

impl Registers {
    /// The registers of the task that runs on `hart`.
    #[must_use]
    pub fn save(hart: &Hart) -> Registers {
        Registers {
            x: hart.x,
            f: hart.f,
            pc: hart.pc,
            fcsr: fcsr::fcsr_read(hart),
        }
    }

    /// Lets the task run on `hart`. A reservation does not survive a switch.
    pub fn restore(&self, hart: &mut Hart) {
        hart.x = self.x;
        hart.f = self.f;
        hart.pc = self.pc;
        hart.reservation = NO_RESERVATION;
        hart.resume = 0;
        fcsr::fcsr_write(hart, self.fcsr);
    }
}

/// A task.
#[derive(Debug)]
pub struct Task {
    /// Its number; that of the process for its first thread.
    pub tid: u32,
    /// The process.
    pub pid: u32,
    /// Name, NUL-padded (`PR_SET_NAME`).
    pub name: [u8; 16],
    /// `set_tid_address`: cleared, and its waiters woken, when the task ends.
    pub clear_child_tid: u64,
    /// `set_robust_list`: address and length.
    pub robust_list: [u64; 2],
    /// The fault that ends the program when its signal is delivered.
    pub fault: Option<Fault>,
    /// The system call at its `pc` is to be made again.
    pub retry: Option<Retry>,
    /// The call that it makes, if calls are traced.
    pub trace: Option<Box<Pending>>,
    /// What it waits for; none if it can run.
    pub wait: Option<Wait>,
    /// Processor time used, ns; while it runs, up to the last switch.
    pub cpu_time: u64,
    /// The files that it waits for with [`Event::AnyFile`]; empty: all there are.
    pub watched: Vec<Ino>,
    /// vCPUs that may run it, as a set of bits.
    pub affinity: u64,
    /// Its registers while it does not run.
    pub(crate) registers: Option<Registers>,
    /// Its signal state while it does not run.
    pub(crate) signals: ThreadSignals,
}

impl Task {
    /// A task that runs: the first of its process.
    #[must_use]
    pub fn new(pid: u32) -> Task {
        Task {
            tid: pid,
            pid,
            name: [0; 16],
            clear_child_tid: 0,
            robust_list: [0; 2],
            fault: None,
            retry: None,
            trace: None,
            wait: None,
            cpu_time: 0,
            watched: Vec::new(),
            affinity: u64::MAX,
            registers: None,
            signals: ThreadSignals::default(),
        }
    }
}
