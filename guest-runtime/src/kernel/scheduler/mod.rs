//! The scheduler: the tasks, processes and address spaces of the VM, switching between them, and
//! waiting.
//!
//! The running task, its process and its address space are in the fields of [`Kernel`]; the others
//! are here.

mod disks;
pub mod load;
mod switching;
mod wait_queues;
mod waiting;

use crate::arch::clock;
use crate::exec::images::Images;
use crate::exec::interp::CodeId;
use crate::kernel::Kernel;
use crate::kernel::process::{IDLE, Process};
use crate::kernel::task::{NEVER, Task};
use crate::mm::AddressSpace;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;
use hartline_linux::errno::Errno;
use wait_queues::WaitQueues;

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

/// An address space that is not loaded, with the code in it.
#[derive(Debug)]
pub(crate) struct Space {
    pub memory: AddressSpace,
    pub images: Images,
    pub code: CodeId,
}

/// An address space and the number of processes that use it.
#[derive(Debug)]
struct SpaceUse {
    users: u32,
    /// None while the address space is loaded.
    space: Option<Box<Space>>,
}

/// All tasks, processes and address spaces that are not running, and the scheduler's state.
#[derive(Debug)]
pub struct Scheduler {
    tasks: BTreeMap<u32, Box<Task>>,
    processes: BTreeMap<u32, Box<Process>>,
    spaces: BTreeMap<u32, SpaceUse>,
    /// Tasks that are ready.
    ready: VecDeque<u32>,
    /// Tasks of stopped processes that are ready otherwise.
    suspended: Vec<u32>,
    /// Times at which waiting tasks are woken.
    timers: BTreeSet<(u64, u32)>,
    /// Tasks that wait for files or standard input.
    queues: WaitQueues,
    /// The task number that was assigned last.
    last_tid: u32,
    last_space: u32,
    /// When the running task was switched to, ns.
    pub(crate) started: u64,
    /// There is a new event for idle vCPUs to wait for: a time, or input.
    pub(crate) has_news: bool,
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
    /// Creates a scheduler with only the running task `first`.
    #[must_use]
    pub fn new(first: u32) -> Scheduler {
        let space = SpaceUse {
            users: 1,
            space: None,
        };
        Scheduler {
            tasks: BTreeMap::new(),
            processes: BTreeMap::new(),
            spaces: BTreeMap::from([(0, space)]),
            ready: VecDeque::new(),
            suspended: Vec::new(),
            timers: BTreeSet::new(),
            queues: WaitQueues::default(),
            last_tid: first,
            last_space: 0,
            started: clock::monotonic(),
            has_news: false,
            ticking: false,
            urgent: false,
            preempts: false,
            watching: 0,
            load: load::LoadAverage::default(),
        }
    }

    /// Whether the running task is the only one.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.tasks().next().is_none()
    }

    /// Number of all tasks.
    #[must_use]
    pub fn task_count(&self) -> usize {
        let idle = self.tasks.range(FIRST_IDLE..).count();
        self.tasks.len() - idle + 1
    }

    /// Tasks that this vCPU does not run, ordered by number.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.range(..FIRST_IDLE).map(|(_, task)| &**task)
    }

    /// Processes that this vCPU does not run.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let others = self.processes.range(IDLE + 1..);
        others.map(|(_, process)| &**process)
    }

    /// A process that this vCPU does not run.
    pub fn process_ref(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid).map(|process| &**process)
    }

    /// A process that this vCPU does not run, mutably.
    pub fn process(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid).map(|process| &mut **process)
    }

    /// The process of a task that this vCPU does not run.
    pub(crate) fn pid_of(&self, tid: u32) -> Option<u32> {
        self.tasks.get(&tid).map(|task| task.pid)
    }

    /// A task that this vCPU does not run, mutably.
    pub fn task(&mut self, tid: u32) -> Option<&mut Task> {
        self.tasks.get_mut(&tid).map(|task| &mut **task)
    }

    /// Removes a zombie.
    pub fn remove_process(&mut self, pid: u32) -> Option<Box<Process>> {
        self.processes.remove(&pid)
    }

    /// Assigns a number for a new task.
    ///
    /// # Errors
    /// `EAGAIN` beyond [`MAX_TASKS`].
    pub fn new_tid(&mut self) -> Result<u32, Errno> {
        if self.tasks.len() + self.processes.len() >= MAX_TASKS {
            return Err(Errno::EAGAIN);
        }
        loop {
            self.last_tid = match self.last_tid + 1 {
                PID_MAX => crate::kernel::process::FIRST + 1,
                tid => tid,
            };
            let tid = self.last_tid;
            if !self.tasks.contains_key(&tid) && !self.processes.contains_key(&tid) {
                return Ok(tid);
            }
        }
    }

    /// Adds a ready task.
    pub fn add_task(&mut self, task: Task) {
        self.ready.push_back(task.tid);
        self.tasks.insert(task.tid, Box::new(task));
    }

    /// Adds an idle task.
    pub(crate) fn add_idle_task(&mut self, task: Task) {
        self.tasks.insert(task.tid, Box::new(task));
    }

    /// Removes a task, so that a vCPU can run it.
    pub(crate) fn take_task(&mut self, tid: u32) -> Option<Box<Task>> {
        self.tasks.remove(&tid)
    }

    /// Stores a task that no longer runs on this vCPU.
    pub(crate) fn keep_task(&mut self, task: Box<Task>) {
        self.tasks.insert(task.tid, task);
    }

    /// Whether there are ready tasks.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Affinities of the ready tasks, in order.
    pub(crate) fn ready_affinities(&self) -> impl Iterator<Item = u64> {
        let tasks = self.ready.iter().map(|tid| self.tasks.get(tid));
        // The running task is not in the map; it can stay on this vCPU.
        tasks.map(|task| task.map_or(0, |task| task.affinity))
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

    /// Adds a process.
    pub fn add_process(&mut self, process: Process) {
        self.processes.insert(process.pid, Box::new(process));
    }

    /// Adds an address space with one user; returns its number.
    pub(crate) fn add_space(&mut self, space: Space) -> u32 {
        self.last_space += 1;
        let space = Some(Box::new(space));
        let entry = SpaceUse { users: 1, space };
        self.spaces.insert(self.last_space, entry);
        self.last_space
    }

    /// Counts one more process that uses an address space.
    pub(crate) fn retain_space(&mut self, id: u32) {
        if let Some(entry) = self.spaces.get_mut(&id) {
            entry.users += 1;
        }
    }

    /// Number of processes that use an address space.
    pub(crate) fn space_users(&self, id: u32) -> u32 {
        self.spaces.get(&id).map_or(0, |entry| entry.users)
    }

    /// An address space that is not loaded.
    pub(crate) fn space(&self, id: u32) -> Option<&Space> {
        self.spaces.get(&id)?.space.as_deref()
    }

    /// The address space `id`, if it is not loaded.
    pub(crate) fn space_mut(&mut self, id: u32) -> Option<&mut Space> {
        self.spaces.get_mut(&id)?.space.as_deref_mut()
    }

    /// Removes all pages of an address space that is not loaded. Returns whether there were any.
    pub(crate) fn empty_space(&mut self, id: u32) -> bool {
        let entry = self.spaces.get_mut(&id);
        let space = entry.and_then(|entry| entry.space.as_mut());
        space.is_some_and(|space| space.memory.empty())
    }

    /// The task number that was assigned last.
    pub(crate) fn last_tid(&self) -> u32 {
        self.last_tid
    }

    /// Address spaces that are not loaded.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = &Space> {
        let spaces = self.spaces.values();
        spaces.filter_map(|entry| entry.space.as_deref())
    }

    /// Counts one process less that uses an address space. A loaded one is freed when another is
    /// loaded.
    pub(crate) fn release_space(&mut self, id: u32) {
        if let Some(entry) = self.spaces.get_mut(&id) {
            entry.users = entry.users.saturating_sub(1);
            if entry.users == 0
                && let Some(space) = entry.space.take()
            {
                space.memory.tear_down();
                self.spaces.remove(&id);
            }
        }
    }

    /// Removes a task, which will never run again, from all queues.
    fn forget_task(&mut self, task: &mut Task) {
        self.ready.retain(|&other| other != task.tid);
        self.suspended.retain(|&other| other != task.tid);
        self.end_wait(task);
    }

    /// Ends the wait of `task`, which is not in the table. Returns whether it waited.
    fn end_wait(&mut self, task: &mut Task) -> bool {
        end_wait(&mut self.timers, &mut self.queues, task)
    }

    /// Ends the wait of a task in the table. Returns whether it waited.
    fn end_wait_of(&mut self, tid: u32) -> bool {
        let task = self.tasks.get_mut(&tid);
        task.is_some_and(|task| end_wait(&mut self.timers, &mut self.queues, task))
    }
}

/// Ends the wait of a task. Returns whether it waited.
fn end_wait(timers: &mut BTreeSet<(u64, u32)>, queues: &mut WaitQueues, task: &mut Task) -> bool {
    let Some(wait) = task.wait.take() else {
        return false;
    };
    if wait.deadline != NEVER {
        timers.remove(&(wait.deadline, task.tid));
    }
    queues.remove(task.tid, &wait, &task.watched);
    true
}

impl Kernel {
    /// A process, running or not, mutably.
    pub fn process_mut(&mut self, pid: u32) -> Option<&mut Process> {
        match pid == self.process.pid {
            true => Some(&mut self.process),
            false => self.scheduler.process(pid),
        }
    }

    /// A process, running or not.
    pub fn process_ref(&self, pid: u32) -> Option<&Process> {
        match pid == self.process.pid {
            true => Some(&self.process),
            false => self.scheduler.process_ref(pid),
        }
    }

    /// A task, running or not, mutably.
    pub fn task_mut(&mut self, tid: u32) -> Option<&mut Task> {
        match tid == self.task.tid {
            true => Some(&mut self.task),
            false => self.scheduler.task(tid),
        }
    }

    /// All processes, zombies included.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let running = (!self.is_idle()).then_some(&*self.process);
        running.into_iter().chain(self.scheduler.processes())
    }

    /// Numbers of the tasks of a process.
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let running = (self.process.pid == pid).then_some(self.task.tid);
        let others = self.scheduler.tasks().filter(|task| task.pid == pid);
        running
            .into_iter()
            .chain(others.map(|task| task.tid))
            .collect()
    }
}
