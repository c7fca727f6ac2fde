//! Which task runs: the tasks, processes and address spaces of the VM, switching
//! between them, and waiting.
//!
//! What the running task, its process and its address space consist of lies in the
//! fields of [`Kernel`]; of the others it is here.

mod disks;
pub mod load;
mod switching;
mod waiting;

use crate::clock;
use crate::images::Images;
use crate::interp::CodeId;
use crate::kernel::Kernel;
use crate::memory::AddressSpace;
use crate::process::{IDLE, Process};
use crate::task::{Task, Wait};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;
use hartline_linux::errno::Errno;

/// Most tasks of a VM; small enough that the owners of a page can be counted.
pub const MAX_TASKS: usize = 1 << 14;
/// Task numbers are less than this (`pid_max`).
const PID_MAX: u32 = 1 << 22;
/// Number of the first vCPU's idle task; those of the others follow.
pub(crate) const FIRST_IDLE: u32 = PID_MAX;
/// A task runs at most this long while others could, ns.
const SLICE: u64 = 10_000_000;
/// Shorter waits spin: leaving the VM takes longer. ns.
pub(crate) const SPIN: u64 = 50_000;

/// An address space with the code in it, while it is not loaded.
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
    /// None while it is loaded.
    space: Option<Box<Space>>,
}

/// Everything but what runs.
#[derive(Debug)]
pub struct Scheduler {
    tasks: BTreeMap<u32, Box<Task>>,
    processes: BTreeMap<u32, Box<Process>>,
    spaces: BTreeMap<u32, SpaceUse>,
    /// Tasks that can run.
    ready: VecDeque<u32>,
    /// Tasks of stopped processes that could run otherwise.
    suspended: Vec<u32>,
    /// Times at which waiting tasks are woken.
    timers: BTreeSet<(u64, u32)>,
    /// Tasks that wait for files, children, or standard input.
    waiting: Vec<u32>,
    /// The last number given to a task.
    last_tid: u32,
    last_space: u32,
    /// When the running task was switched to.
    pub(crate) started: u64,
    /// There is something new to wait for: a time, or input.
    pub(crate) has_news: bool,
    /// The host asks for attention from time to time.
    ticking: bool,
    /// Tasks that are woken now run before the others: their time has come.
    urgent: bool,
    /// One of them waits for the vCPU.
    preempts: bool,
    /// How long the network is watched before the VM is left, ns.
    watching: u64,
    /// Load averages.
    pub(crate) load: load::LoadAverage,
}

impl Scheduler {
    /// The state with nothing but the running task `first`.
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
            waiting: Vec::new(),
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

    /// Whether there is no task but one that runs.
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

    /// Tasks that this vCPU does not run, in the order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.range(..FIRST_IDLE).map(|(_, task)| &**task)
    }

    /// Processes that this vCPU does not run.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let others = self.processes.range(IDLE + 1..);
        others.map(|(_, process)| &**process)
    }

    /// A process that this vCPU does not run, to look at.
    pub fn process_ref(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid).map(|process| &**process)
    }

    /// A process that this vCPU does not run.
    pub fn process(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid).map(|process| &mut **process)
    }

    /// The process of a task that this vCPU does not run.
    pub(crate) fn pid_of(&self, tid: u32) -> Option<u32> {
        self.tasks.get(&tid).map(|task| task.pid)
    }

    /// A task that this vCPU does not run.
    pub fn task(&mut self, tid: u32) -> Option<&mut Task> {
        self.tasks.get_mut(&tid).map(|task| &mut **task)
    }

    /// Takes a zombie out.
    pub fn remove_process(&mut self, pid: u32) -> Option<Box<Process>> {
        self.processes.remove(&pid)
    }

    /// A number for a new task.
    ///
    /// # Errors
    /// `EAGAIN` beyond [`MAX_TASKS`].
    pub fn new_tid(&mut self) -> Result<u32, Errno> {
        if self.tasks.len() + self.processes.len() >= MAX_TASKS {
            return Err(Errno::EAGAIN);
        }
        loop {
            self.last_tid = match self.last_tid + 1 {
                PID_MAX => crate::process::FIRST + 1,
                tid => tid,
            };
            let tid = self.last_tid;
            if !self.tasks.contains_key(&tid) && !self.processes.contains_key(&tid) {
                return Ok(tid);
            }
        }
    }

    /// Adds a task that can run.
    pub fn add_task(&mut self, task: Task) {
        self.ready.push_back(task.tid);
        self.tasks.insert(task.tid, Box::new(task));
    }

    /// Adds a task that runs when there is nothing else.
    pub(crate) fn add_idle_task(&mut self, task: Task) {
        self.tasks.insert(task.tid, Box::new(task));
    }

    /// Takes a task out for a vCPU to run it.
    pub(crate) fn take_task(&mut self, tid: u32) -> Option<Box<Task>> {
        self.tasks.remove(&tid)
    }

    /// Takes a task back.
    pub(crate) fn keep_task(&mut self, task: Box<Task>) {
        self.tasks.insert(task.tid, task);
    }

    /// Whether there are tasks that can run.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// vCPUs that tasks may run on that can, in order.
    pub(crate) fn ready_affinities(&self) -> impl Iterator<Item = u64> {
        let tasks = self.ready.iter().map(|tid| self.tasks.get(tid));
        // The running one is not there: it may run here.
        tasks.map(|task| task.map_or(0, |task| task.affinity))
    }

    /// The next time at which a waiting task is woken.
    pub(crate) fn first_timer(&self) -> Option<u64> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Tasks that are woken from now on run next, until [`end_urgent`](Self::end_urgent)
    /// with the result.
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

    /// Adds an address space with one user, and gives its number.
    pub(crate) fn add_space(&mut self, space: Space) -> u32 {
        self.last_space += 1;
        let space = Some(Box::new(space));
        let entry = SpaceUse { users: 1, space };
        self.spaces.insert(self.last_space, entry);
        self.last_space
    }

    /// One more process uses an address space.
    pub(crate) fn retain_space(&mut self, id: u32) {
        if let Some(entry) = self.spaces.get_mut(&id) {
            entry.users += 1;
        }
    }

    /// Processes that use an address space.
    pub(crate) fn space_users(&self, id: u32) -> u32 {
        self.spaces.get(&id).map_or(0, |entry| entry.users)
    }

    /// An address space that is not loaded.
    pub(crate) fn space(&self, id: u32) -> Option<&Space> {
        self.spaces.get(&id)?.space.as_deref()
    }

    /// Takes all pages of an address space that is not loaded away. Whether there were any.
    pub(crate) fn empty_space(&mut self, id: u32) -> bool {
        let entry = self.spaces.get_mut(&id);
        let space = entry.and_then(|entry| entry.space.as_mut());
        space.is_some_and(|space| space.memory.empty())
    }

    /// The number that was given to a task last.
    pub(crate) fn last_tid(&self) -> u32 {
        self.last_tid
    }

    /// Address spaces that are not loaded.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = &Space> {
        let spaces = self.spaces.values();
        spaces.filter_map(|entry| entry.space.as_deref())
    }

    /// One process less does. One that is loaded goes when another one is loaded.
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

    /// Forgets everything about tasks that will never run again.
    fn forget_waiting(&mut self, tid: u32, wait: Option<Wait>) {
        self.ready.retain(|&other| other != tid);
        self.suspended.retain(|&other| other != tid);
        self.waiting.retain(|&other| other != tid);
        if let Some(wait) = wait {
            self.timers.remove(&(wait.deadline, tid));
        }
    }
}

impl Kernel {
    /// A process, running or not.
    pub fn process_mut(&mut self, pid: u32) -> Option<&mut Process> {
        match pid == self.process.pid {
            true => Some(&mut self.process),
            false => self.scheduler.process(pid),
        }
    }

    /// A process, running or not, to look at.
    pub fn process_ref(&self, pid: u32) -> Option<&Process> {
        match pid == self.process.pid {
            true => Some(&self.process),
            false => self.scheduler.process_ref(pid),
        }
    }

    /// A task, running or not.
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
