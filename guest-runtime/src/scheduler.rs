//! Which task runs: the tasks, processes and address spaces of the VM, switching
//! between them, and waiting.
//!
//! What the running task, its process and its address space consist of lies in the
//! fields of [`Kernel`]; of the others it is here.

use crate::clock;
use crate::console::INPUT_READY;
use crate::cpus;
use crate::dispatch;
use crate::errno::Errno;
use crate::images::Images;
use crate::interp::CodeId;
use crate::kernel::Kernel;
use crate::memory::AddressSpace;
use crate::net::wire::Wire;
use crate::process::{IDLE, Parked, Process, State};
use crate::task::{Event, NEVER, Registers, Retry, Task, Wait};
use crate::vfs::types::Ino;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;
use hartline_abi::call::Operation;
use rand_chacha::rand_core::Rng;

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

    /// Whether an address space that is not loaded uses the image in a window.
    pub(crate) fn uses_window(&self, window: u64) -> bool {
        self.spaces().any(|space| space.images.uses_window(window))
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

    /// The time at which the call being served gives up that may take `timeout_ns`
    /// (`u64::MAX`: for ever), also when it is made again.
    pub fn deadline(&self, timeout_ns: u64) -> u64 {
        match (&self.task.retry, timeout_ns) {
            (Some(retry), _) => retry.deadline,
            (None, u64::MAX) => NEVER,
            (None, _) => clock::monotonic().saturating_add(timeout_ns).min(NEVER - 1),
        }
    }

    /// What the call being served did before it had to wait.
    pub fn progress(&self) -> u64 {
        self.task.retry.map_or(0, |retry| retry.progress)
    }

    /// Lets the call being served wait: it returns the result, and is made again later
    /// with `progress`. `EINTR` if a signal is to be delivered.
    pub fn block(&mut self, wait: Wait, progress: u64) -> Errno {
        match self.interrupted() {
            true => Errno::EINTR,
            false => self.block_uninterrupted(wait, progress),
        }
    }

    /// As [`block`](Self::block), whatever signals there are.
    pub fn block_uninterrupted(&mut self, wait: Wait, progress: u64) -> Errno {
        self.task.retry = Some(Retry {
            deadline: wait.deadline,
            progress,
            woken: false,
        });
        self.task.wait = Some(wait);
        self.task.watched = Vec::new();
        Errno::ERESTARTSYS
    }

    /// As [`block`](Self::block), for something to happen to one of `files`.
    pub fn block_for(&mut self, files: Vec<Ino>, input: bool, deadline: u64) -> Errno {
        let wait = Wait {
            event: Event::AnyFile,
            input,
            deadline,
        };
        let result = self.block(wait, 0);
        self.task.watched = files;
        result
    }

    /// Lets a waiting task run, the running one included.
    pub fn wake(&mut self, tid: u32) {
        let Some(task) = self.task_mut(tid) else {
            return;
        };
        let Some(wait) = task.wait.take() else {
            return;
        };
        if wait.deadline != NEVER {
            self.scheduler.timers.remove(&(wait.deadline, tid));
        }
        self.scheduler.waiting.retain(|&other| other != tid);
        if self.scheduler.urgent {
            self.scheduler.ready.push_front(tid);
            self.scheduler.preempts = true;
        } else {
            self.scheduler.ready.push_back(tid);
        }
    }

    /// Wakes tasks that wait for something `of` this kind.
    fn wake_waiting(&mut self, of: impl Fn(&Wait) -> bool) {
        for tid in self.scheduler.waiting.clone() {
            let wait = self.task_mut(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| of(&wait)) {
                self.wake(tid);
            }
        }
    }

    /// Wakes tasks that wait for what has happened to files since the last time.
    pub(crate) fn wake_for_files(&mut self) {
        if !self.files.vfs.has_changes() {
            return;
        }
        self.send_terminal_signals();
        let changed: Vec<Ino> = self.files.vfs.take_changes();
        for tid in self.scheduler.waiting.clone() {
            let Some(task) = self.task_mut(tid) else {
                continue;
            };
            let is_due = match task.wait.map(|wait| wait.event) {
                Some(Event::File(ino)) => changed.contains(&ino),
                Some(Event::AnyFile) => {
                    let watched = &task.watched;
                    watched.is_empty() || watched.iter().any(|ino| changed.contains(ino))
                }
                _ => false,
            };
            if is_due {
                self.wake(tid);
            }
        }
    }

    /// Wakes the tasks of `pid` that wait for children.
    pub(crate) fn wake_parent(&mut self, pid: u32) {
        for tid in self.threads(pid) {
            let wait = self.task_mut(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| wait.event == Event::Child) {
                self.wake(tid);
            }
        }
    }

    /// The next time at which something happens by itself, ns of `CLOCK_MONOTONIC`.
    pub(crate) fn first_time(&self) -> Option<u64> {
        let waits = self.scheduler.first_timer();
        let network = self.files.vfs.net.next_time();
        waits
            .into_iter()
            .chain(self.timers.first())
            .chain(network)
            .min()
    }

    /// Looks at packets that have come, and wakes who waits for them.
    pub(crate) fn poll_network(&mut self) {
        if self.files.vfs.net.has_wire() {
            self.files.vfs.net.poll_wire();
            self.wake_for_files();
        }
    }

    /// Wakes tasks whose time has come.
    pub(crate) fn expire_timers(&mut self) {
        self.run_timers();
        let Some(&(first, _)) = self.scheduler.timers.first() else {
            return;
        };
        let now = clock::monotonic();
        if first > now {
            return;
        }
        let later = self.scheduler.timers.split_off(&(now + 1, 0));
        let due = mem::replace(&mut self.scheduler.timers, later);
        let before = self.scheduler.begin_urgent();
        // The first one comes to the front last.
        for (_, tid) in due.into_iter().rev() {
            self.wake(tid);
        }
        self.scheduler.end_urgent(before);
        self.announce_time();
    }

    /// Lets others run until what the running task waits for may have happened. Whether
    /// it is the one that goes on.
    pub(crate) fn wait(&mut self) -> bool {
        let (tid, wait) = (self.task.tid, self.task.wait);
        if let Some(wait) = wait {
            if wait.deadline != NEVER {
                self.scheduler.timers.insert((wait.deadline, tid));
                self.scheduler.has_news |= self.scheduler.first_timer() == Some(wait.deadline);
            }
            self.scheduler.has_news |= wait.input;
            if wait.input || !matches!(wait.event, Event::Nothing | Event::Futex | Event::Vfork) {
                self.scheduler.waiting.push(tid);
            }
        }
        let next = self.next_task();
        if next == tid {
            self.scheduler.started = clock::monotonic();
            return true;
        }
        self.switch_to(next, true);
        if !self.is_idle() {
            self.announce_time();
        }
        false
    }

    /// Lets another task run in place of the running one, which could go on, if one can
    /// and its time is over, or the time of the other one has come. Whether it was done.
    pub(crate) fn preempt(&mut self) -> bool {
        if self.scheduler.is_alone() {
            return false;
        }
        self.expire_timers();
        let now = clock::monotonic();
        let preempts = mem::take(&mut self.scheduler.preempts);
        if !preempts && now.saturating_sub(self.scheduler.started) < SLICE {
            return false;
        }
        self.poll_input();
        self.yield_now()
    }

    /// Lets another task run in place of the running one, if one can.
    pub(crate) fn yield_now(&mut self) -> bool {
        if self.scheduler.ready.is_empty() {
            return false;
        }
        self.scheduler.ready.push_back(self.task.tid);
        let next = self.next_task();
        if next == self.task.tid {
            self.scheduler.started = clock::monotonic();
            return false;
        }
        self.switch_to(next, true);
        true
    }

    /// Whether the running task may run on this vCPU.
    pub(crate) fn may_stay(&self) -> bool {
        !cpus::several() || self.task.affinity >> self.cpu & 1 != 0
    }

    /// Lets the running task go on on another vCPU.
    pub(crate) fn move_away(&mut self) {
        self.scheduler.ready.push_back(self.task.tid);
        let next = self.next_task();
        self.switch_to(next, true);
    }

    /// Starts the network device and the stack over it.
    ///
    /// # Errors
    /// [`StartError`](crate::drivers::StartError).
    pub fn start_network(&mut self) -> Result<(), crate::drivers::StartError> {
        /// Buffers of connections may take this part of RAM.
        const SHARE: u64 = 8;
        let (receive, transmit, capabilities) = crate::drivers::net::start(self.host)?;
        let boot = self.host.boot();
        let wire = Wire::new(
            Box::new(receive),
            Box::new(transmit),
            capabilities,
            &boot.net,
            self.random.next_u64(),
            (boot.ram_length / SHARE) as usize,
        );
        self.files.vfs.net.set_wire(wire);
        self.files.streams.set_alone(false);
        self.scheduler.watching = self.least_watching();
        // The network has its times also while a task computes.
        self.start_ticking();
        Ok(())
    }

    /// There is more than one task from now on: none may run for ever.
    pub(crate) fn start_ticking(&mut self) {
        if !mem::replace(&mut self.scheduler.ticking, true) {
            // Without ticks tasks change places only when they wait.
            let _ = self.host.call(Operation::Tick, &mut [0; 6]);
        }
    }

    /// Sees without waiting whether standard input has come for somebody.
    fn poll_input(&mut self) {
        if self.wants_input() && self.files.streams.poll_input() {
            self.input_came();
        }
    }

    /// Wakes tasks that wait for standard input.
    pub(crate) fn input_came(&mut self) {
        self.wake_waiting(|wait| wait.input);
    }

    pub(crate) fn wants_input(&mut self) -> bool {
        let waiting = self.scheduler.waiting.clone();
        waiting.into_iter().any(|tid| {
            let task = self.task_mut(tid);
            task.is_some_and(|task| task.wait.is_some_and(|wait| wait.input))
        })
    }

    /// The next task that can run here, in order. With one vCPU it waits until there is
    /// one; with more it is the idle task if there is none.
    fn next_task(&mut self) -> u32 {
        loop {
            if let Some(tid) = self.take_ready() {
                return tid;
            }
            if cpus::several() {
                return self.idle_task();
            }
            self.idle();
        }
    }

    /// Takes the next task that can run on this vCPU, in order.
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        let own = 1 << self.cpu;
        let mut elsewhere = VecDeque::new();
        let mut found = None;
        while let Some(tid) = self.scheduler.ready.pop_front() {
            let Some(task) = self.task_mut(tid) else {
                continue;
            };
            let (pid, affinity) = (task.pid, task.affinity);
            match self.process_mut(pid).map(|process| process.state) {
                Some(State::Running) if affinity & own == 0 => elsewhere.push_back(tid),
                Some(State::Running) => {
                    found = Some(tid);
                    break;
                }
                Some(State::Stopped) => self.scheduler.suspended.push(tid),
                _ => {}
            }
        }
        if !elsewhere.is_empty() {
            // They were first, and still are.
            elsewhere.append(&mut self.scheduler.ready);
            self.scheduler.ready = elsewhere;
        }
        found
    }

    /// Nobody can run: leaves the VM until time, input or a signal changes that.
    fn idle(&mut self) {
        self.poll_network();
        if self.scheduler.has_ready() || self.await_packet() {
            return;
        }
        let first = self.first_time();
        let left = first.map_or(u64::MAX, |at| at.saturating_sub(clock::monotonic()));
        if left >= SPIN {
            let set = if self.wants_input() { INPUT_READY } else { 0 };
            // Back a little early: the host is late by about that much.
            let left = if left == u64::MAX { left } else { left - SPIN };
            // An error is as good as a signal: whoever waits looks again.
            let ready = self.files.streams.wait(set, left).unwrap_or(0);
            if ready & INPUT_READY != 0 {
                self.input_came();
            }
        } else {
            core::hint::spin_loop();
        }
        self.expire_timers();
        self.absorb_signals();
    }

    /// Watches the network for a time that follows how often it was worth it, but not beyond
    /// the next time limit. Result: whether a packet came.
    fn await_packet(&mut self) -> bool {
        if !self.files.vfs.net.has_wire() {
            return false;
        }
        let now = clock::monotonic();
        let limit = self.first_time().unwrap_or(NEVER);
        let end = limit.min(now + self.scheduler.watching);
        while !self.files.vfs.net.is_pending() {
            if clock::monotonic() >= end {
                let shorter = self.scheduler.watching / 2;
                self.scheduler.watching = shorter.max(self.least_watching());
                return false;
            }
            core::hint::spin_loop();
        }
        let longer = self.scheduler.watching * 2;
        self.scheduler.watching = longer.min(self.most_watching());
        true
    }

    /// Longest time for which the network is watched, ns.
    pub(crate) fn most_watching(&self) -> u64 {
        self.host.boot().net.polling_ns
    }

    /// Shortest time, ns.
    fn least_watching(&self) -> u64 {
        SPIN.min(self.most_watching())
    }

    /// Tasks of a process that was stopped can run again.
    pub(crate) fn resume_tasks(&mut self, pid: u32) {
        for tid in mem::take(&mut self.scheduler.suspended) {
            match self.task_mut(tid).is_some_and(|task| task.pid == pid) {
                true => self.scheduler.ready.push_back(tid),
                false => self.scheduler.suspended.push(tid),
            }
        }
    }

    /// Stops the running process: its tasks wait for `SIGCONT`.
    pub(crate) fn suspend(&mut self) {
        self.scheduler.suspended.push(self.task.tid);
        let next = self.next_task();
        if next != self.task.tid {
            self.switch_to(next, true);
        }
    }

    /// Ends the running task and lets another one run.
    pub(crate) fn leave_task(&mut self) {
        let tid = self.task.tid;
        self.scheduler.forget_waiting(tid, self.task.wait.take());
        let next = self.next_task();
        self.switch_to(next, false);
    }

    /// Ends another task.
    pub(crate) fn remove_task(&mut self, tid: u32) {
        if let Some(task) = self.scheduler.tasks.remove(&tid) {
            self.scheduler.forget_waiting(tid, task.wait);
        }
    }

    /// Lets `tid` run, which is not running. `keep`: the task that runs now goes on later.
    pub(crate) fn switch_to(&mut self, tid: u32, keep: bool) {
        let Some(next) = self.scheduler.tasks.remove(&tid) else {
            return;
        };
        self.account_time();
        let mut previous = self.exchange_task(next);
        if let Some(cpu) = self.cpus.get_mut(self.cpu) {
            cpu.running = tid;
        }
        previous.registers = Some(Registers::save(self.hart()));
        if let Some(registers) = self.task.registers.take() {
            registers.restore(self.hart());
        }
        if keep {
            self.scheduler.tasks.insert(previous.tid, previous);
        }
        let alone = self.scheduler.is_alone() && !self.files.vfs.net.has_wire();
        self.files.streams.set_alone(alone);
        if self.signals.is_deliverable() {
            dispatch::ask_attention(self.hart_pointer());
        }
    }

    /// Puts another task, with its process and address space, into the fields of the
    /// kernel. The result is the one that was there.
    pub(crate) fn exchange_task(&mut self, next: Box<Task>) -> Box<Task> {
        let mut previous = mem::replace(&mut self.task, next);
        let own = mem::take(&mut self.task.signals);
        if previous.pid != self.task.pid {
            previous.signals = mem::take(&mut self.signals.thread);
            self.switch_process(self.task.pid);
            self.signals.thread = own;
        } else {
            previous.signals = mem::replace(&mut self.signals.thread, own);
        }
        previous
    }

    /// Adds the time since the last switch to the running process.
    pub(crate) fn account_time(&mut self) {
        let now = clock::monotonic();
        let used = now.saturating_sub(self.scheduler.started);
        self.process.cpu_time += used;
        self.task.cpu_time += used;
        self.scheduler.started = now;
    }

    fn switch_process(&mut self, pid: u32) {
        let Some(next) = self.scheduler.processes.remove(&pid) else {
            return;
        };
        let mut previous = mem::replace(&mut self.process, next);
        if let Some(Parked { files, signals }) = self.process.parked.take() {
            let files = mem::replace(&mut self.files.process, files);
            let signals = mem::replace(&mut self.signals, signals);
            if !previous.is_zombie() {
                previous.parked = Some(Parked { files, signals });
            }
        }
        if previous.space != self.process.space {
            self.load_space(previous.space);
        }
        // A zombie that nobody waits for is gone.
        if !previous.is_zombie() || previous.parent != crate::process::INIT {
            self.scheduler.processes.insert(previous.pid, previous);
        } else {
            self.files.process.registry.remove(previous.pid);
        }
    }

    /// Loads the address space of the running process in place of `previous`.
    pub(crate) fn load_space(&mut self, previous: u32) {
        let entry = self.scheduler.spaces.get_mut(&self.process.space);
        let Some(next) = entry.and_then(|entry| entry.space.take()) else {
            return;
        };
        let Space {
            memory,
            images,
            code,
        } = *next;
        let old = Space {
            memory: mem::replace(&mut self.memory, memory),
            images: mem::replace(&mut self.images, images),
            code: self.interpreter.code(),
        };
        self.interpreter.set_code(code);
        self.forget_fetch();
        self.use_dispatch_cache();
        // A vCPU without a task goes on using the tables that it has.
        if !self.is_idle() {
            self.memory.load();
            self.catch_up_translations();
        }
        match self.scheduler.spaces.get_mut(&previous) {
            Some(entry) if entry.users > 0 => entry.space = Some(Box::new(old)),
            _ => {
                old.memory.tear_down();
                self.scheduler.spaces.remove(&previous);
            }
        }
    }
}
