//! The scheduler: which task runs, switching between tasks, and waiting.

mod disks;
pub mod load;
mod switching;
mod waiting;

use crate::kernel::Kernel;
use crate::kernel::process::{FIRST, IDLE, Process};
use crate::kernel::task::Task;
use crate::wait::Woken;
use crate::wait::time::NEVER;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;
use hartline_linux::errno::Errno;

/// Most tasks of a VM; small enough that the owners of a page can be counted.
pub const MAX_TASKS: usize = 1 << 14;
/// Upper limit of task numbers, exclusive (`pid_max`).
const PID_MAX: u32 = 1 << 22;
/// Number of the first vCPU's idle task; the idle tasks of the others follow.
pub(crate) const FIRST_IDLE: u32 = PID_MAX;
/// Time slice of a task while others could run, ns.
const SLICE: u64 = 10_000_000;
/// Shorter waits spin, since leaving the VM takes longer, ns.
pub(crate) const SPIN: u64 = 50_000;

/// The queues of tasks, and the scheduler's state.
#[derive(Debug)]
pub struct Scheduler {
    /// Tasks that are ready.
    ready: VecDeque<u32>,
    /// Tasks of stopped processes that are ready otherwise.
    suspended: Vec<u32>,
    /// Times at which waiting tasks are woken.
    timers: BTreeSet<(u64, u32)>,
    /// Tasks that the wait queues of files have woken, and that are not ready yet.
    pub(crate) woken: Woken,
    /// The task number that was assigned last.
    last_tid: u32,
    /// There is a new event for idle vCPUs to wait for: a time, or input.
    pub(crate) has_earlier_event: bool,
    /// The host kicks the vCPUs periodically.
    ticking: bool,
    /// Tasks that are woken now run before others, because their timers have expired.
    urgent: bool,
    /// One of these tasks waits for the vCPU.
    preempts: bool,
    /// How long the network is polled before the vCPU leaves the VM, ns.
    watching: u64,
    /// Load averages.
    pub(crate) load: load::LoadAverage,
}

impl Scheduler {
    /// Creates a scheduler for the running task `first`.
    #[must_use]
    pub fn new(first: u32) -> Scheduler {
        Scheduler {
            ready: VecDeque::new(),
            suspended: Vec::new(),
            timers: BTreeSet::new(),
            woken: Woken::default(),
            last_tid: first,
            has_earlier_event: false,
            ticking: false,
            urgent: false,
            preempts: false,
            watching: 0,
            load: load::LoadAverage::default(),
        }
    }

    /// Whether there are ready tasks.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The time at which the next waiting task is woken.
    pub(crate) fn first_timer(&self) -> Option<u64> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Makes tasks that are woken from now on run next, until [`end_urgent`](Self::end_urgent) is
    /// called with the returned value.
    pub(crate) fn begin_urgent(&mut self) -> bool {
        mem::replace(&mut self.urgent, true)
    }

    /// See [`begin_urgent`](Self::begin_urgent).
    pub(crate) fn end_urgent(&mut self, before: bool) {
        self.urgent = before;
    }

    /// Whether the host kicks the vCPUs periodically; from now on it is not asked to.
    pub(crate) fn take_ticking(&mut self) -> bool {
        mem::take(&mut self.ticking)
    }

    /// The task number that was assigned last.
    pub(crate) fn last_tid(&self) -> u32 {
        self.last_tid
    }

    /// Removes a task, which will never run again, from all queues.
    fn forget_task(&mut self, task: &mut Task) {
        self.ready.retain(|&other| other != task.tid);
        self.suspended.retain(|&other| other != task.tid);
        self.end_wait(task);
        task.pass_on();
    }

    /// Ends the wait of a task. Returns whether it waited.
    fn end_wait(&mut self, task: &mut Task) -> bool {
        let Some(wait) = task.wait.take() else {
            return false;
        };
        if wait.deadline != NEVER {
            self.timers.remove(&(wait.deadline, task.tid));
        }
        // A place that was woken for this task alone is kept, in case the task does not use it.
        task.registrations
            .retain(|location| location.is_exclusive() && location.was_woken());
        true
    }
}

impl Kernel {
    /// All tasks, in the order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.range(..FIRST_IDLE)
    }

    /// The task with the number that a program names; none for an idle task.
    #[must_use]
    pub fn program_task(&self, tid: u32) -> Option<&Task> {
        match tid {
            ..FIRST_IDLE => self.tasks.get(tid),
            _ => None,
        }
    }

    /// Number of all tasks.
    #[must_use]
    pub fn task_count(&self) -> usize {
        // Each vCPU has an idle task.
        self.tasks.count() - self.cpus.len()
    }

    /// All processes, zombies included, in the order of their numbers.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.range(IDLE + 1..)
    }

    /// Numbers of the tasks of a process.
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let threads = self.tasks().filter(|task| task.pid == pid);
        threads.map(|task| task.tid).collect()
    }

    /// Whether there is no other task than the running one.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.task_count() == usize::from(!self.is_idle())
    }

    /// Assigns a number for a new task.
    ///
    /// # Errors
    /// `EAGAIN` beyond [`MAX_TASKS`].
    pub fn new_tid(&mut self) -> Result<u32, Errno> {
        if self.tasks.count() + self.processes.count() >= MAX_TASKS {
            return Err(Errno::EAGAIN);
        }
        let last = &mut self.scheduler.last_tid;
        loop {
            *last = match *last + 1 {
                PID_MAX => FIRST + 1,
                tid => tid,
            };
            if !self.tasks.contains(*last) && !self.processes.contains(*last) {
                return Ok(*last);
            }
        }
    }

    /// Adds a ready task.
    pub fn add_task(&mut self, task: Task) {
        self.scheduler.ready.push_back(task.tid);
        self.tasks.insert(task.tid, task);
    }

    /// Affinities of the ready tasks, in order.
    pub(super) fn ready_affinities(&self) -> impl Iterator<Item = u64> {
        let tasks = self.scheduler.ready.iter().copied();
        let running = self.task().tid;
        tasks.map(move |tid| match self.tasks.get(tid) {
            // The running task can stay on this vCPU.
            Some(task) if tid != running => task.affinity,
            _ => 0,
        })
    }
}
