//! Selection of the next task, and task switches.

use super::{SLICE, Space};
use crate::arch::clock;
use crate::arch::cpus;
use crate::exec::dispatch;
use crate::kernel::Kernel;
use crate::kernel::process::{Parked, State};
use crate::kernel::task::{Registers, Task};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::mem;

impl Kernel {
    /// Preempts the running task if another task can run and either the time slice is over or the
    /// other task has an expired timer. Returns whether it did.
    pub(crate) fn preempt(&mut self) -> bool {
        if self.scheduler.is_alone() {
            return false;
        }
        self.expire_timers();
        let now = clock::monotonic();
        let preempts = mem::take(&mut self.scheduler.preempts);
        let is_over = match self.chaos.preempts() {
            true => self.chaos.ends_turn(),
            false => now.saturating_sub(self.scheduler.started) >= SLICE,
        };
        if !preempts && !is_over {
            return false;
        }
        self.poll_input();
        self.yield_now()
    }

    /// Switches to another task, if one can run. Returns whether it did.
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

    /// Whether the affinity of the running task allows this vCPU.
    pub(crate) fn may_stay(&self) -> bool {
        !cpus::several() || self.task.affinity >> self.cpu & 1 != 0
    }

    /// Makes the running task continue on another vCPU.
    pub(crate) fn move_away(&mut self) {
        self.scheduler.ready.push_back(self.task.tid);
        let next = self.next_task();
        self.switch_to(next, true);
    }

    /// The next task that can run here, in order. If there is none, one vCPU waits for one; with
    /// several vCPUs it is the idle task.
    pub(super) fn next_task(&mut self) -> u32 {
        loop {
            if let Some(tid) = self.take_ready() {
                if self.arm_disks() {
                    // Tasks that become ready replace the idle task at the next safepoint.
                    dispatch::ask_attention(self.kick());
                }
                return tid;
            }
            if cpus::several() {
                if self.arm_disks() {
                    self.poll_disks();
                    continue;
                }
                return self.idle_task();
            }
            self.idle();
        }
    }

    /// Takes the next ready task that can run on this vCPU, in order.
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        let own = 1 << self.cpu;
        let chosen = self.chaos.choose(self.scheduler.ready.len());
        self.scheduler.ready.rotate_left(chosen);
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
            // The tasks for other vCPUs stay at the front of the queue.
            elsewhere.append(&mut self.scheduler.ready);
            self.scheduler.ready = elsewhere;
        }
        found
    }

    /// Makes tasks of a process that was stopped ready again.
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

    /// Ends the running task, and switches to another one.
    pub(crate) fn leave_task(&mut self) {
        let tid = self.task.tid;
        self.forget_disks(tid);
        self.ipc.semaphores.forget_task(tid);
        self.scheduler.forget_task(&mut self.task);
        let next = self.next_task();
        self.switch_to(next, false);
    }

    /// Ends another task.
    pub(crate) fn remove_task(&mut self, tid: u32) {
        if let Some(mut task) = self.scheduler.tasks.remove(&tid) {
            self.forget_disks(tid);
            self.ipc.semaphores.forget_task(tid);
            self.scheduler.forget_task(&mut task);
        }
    }

    /// Switches to `tid`, which is not running. `keep`: the old task continues later.
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
        let alone = self.scheduler.is_alone() && !self.files.vfs.net.has_device();
        self.files.streams.set_alone(alone);
        if self.signals.is_deliverable() {
            dispatch::ask_attention(self.kick());
        }
    }

    /// Exchanges the running task, with its process and address space, in the fields of the kernel.
    /// Returns the old task.
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

    /// Adds the time since the last switch to the running process's CPU time.
    pub(crate) fn account_time(&mut self) {
        let now = clock::monotonic();
        self.sample_load(now);
        let used = now.saturating_sub(self.scheduler.started);
        self.process.cpu_time += used;
        self.task.cpu_time += used;
        self.scheduler.started = now;
    }

    pub(super) fn switch_process(&mut self, pid: u32) {
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
        // A zombie without a waiting parent is removed.
        if !previous.is_zombie() || previous.parent != crate::kernel::process::INIT {
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
        if self.chaos.checks() {
            memory.audit();
            self.memory.audit();
        }
        let old = Space {
            memory: mem::replace(&mut self.memory, memory),
            images: mem::replace(&mut self.images, images),
            code: self.interpreter.code(),
        };
        self.interpreter.set_code(code);
        self.forget_fetch();
        self.use_dispatch_cache();
        // An idle vCPU keeps its page tables.
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
