//! Selection of the next task, and task switches.

use super::SLICE;
use crate::arch::clock;
use crate::arch::cpus;
use crate::arch::kick;
use crate::kernel::Kernel;
use crate::kernel::current::Current;
use crate::kernel::process::State;
use crate::kernel::task::{Registers, Task};
use alloc::collections::VecDeque;
use core::mem;

impl Kernel {
    /// Preempts the running task if another task can run and either the time slice is over or the
    /// other task has an expired timer. Returns whether it did.
    pub(crate) fn preempt(&mut self) -> bool {
        if self.is_alone() {
            return false;
        }
        self.expire_timers();
        let now = clock::monotonic();
        let preempts = mem::take(&mut self.scheduler.preempts);
        let is_over = match self.chaos.preempts() {
            true => self.chaos.ends_turn(),
            false => now.saturating_sub(self.cpus[self.cpu].started) >= SLICE,
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
        let tid = self.task().tid;
        self.scheduler.ready.push_back(tid);
        let next = self.next_task();
        if next == tid {
            self.account_time();
            return false;
        }
        self.switch_to(next);
        true
    }

    /// Whether the affinity of the running task allows this vCPU.
    pub(crate) fn may_stay(&self) -> bool {
        !cpus::several() || self.task().affinity >> self.cpu & 1 != 0
    }

    /// Makes the running task continue on another vCPU.
    pub(crate) fn move_away(&mut self) {
        self.scheduler.ready.push_back(self.task().tid);
        let next = self.next_task();
        self.switch_to(next);
    }

    /// The next task that can run here, in order. If there is none, one vCPU waits for one; with
    /// several vCPUs it is the idle task.
    pub(in crate::kernel) fn next_task(&mut self) -> u32 {
        loop {
            if self.checkpoint.is_due() {
                return self.idle_task();
            }
            if let Some(tid) = self.take_ready() {
                if self.arm_disks() {
                    // Tasks that become ready replace the idle task at the next safepoint.
                    kick::kick(self.kick());
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
            if self.reaches_checkpoint() {
                continue;
            }
            self.account_time();
            self.idle();
            self.restart_slice();
        }
    }

    /// The idle task of this vCPU.
    fn idle_task(&self) -> u32 {
        self.tasks[self.cpus[self.cpu].idle].tid
    }

    /// Switches from the running task, which stays ready, to the idle task.
    pub(in crate::kernel) fn stand_aside(&mut self) {
        let tid = self.task().tid;
        self.scheduler.ready.push_front(tid);
        self.switch_to(self.idle_task());
    }

    /// Makes the running task, which waits for nothing, ready: it is to run next.
    pub(in crate::kernel) fn make_next(&mut self) {
        let tid = self.task().tid;
        self.scheduler.ready.push_front(tid);
    }

    /// Takes the next ready task that can run on this vCPU, in order.
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        let own = 1 << self.cpu;
        let chosen = self.chaos.choose(self.scheduler.ready.len());
        self.scheduler.ready.rotate_left(chosen);
        let mut elsewhere = VecDeque::new();
        let mut found = None;
        while let Some(tid) = self.scheduler.ready.pop_front() {
            let Some(task) = self.tasks.get(tid) else {
                continue;
            };
            match self.processes[task.process].state {
                State::Running if task.is_held() => self.scheduler.suspended.push(tid),
                State::Running if task.affinity & own == 0 => elsewhere.push_back(tid),
                State::Running => {
                    found = Some(tid);
                    break;
                }
                State::Stopped if self.writes_core(tid) || !self.must_stand(task) => {
                    found = Some(tid);
                    break;
                }
                State::Stopped => {
                    self.scheduler.suspended.push(tid);
                    if let Some(task) = self.tasks.get_mut(tid) {
                        task.pass_on();
                        self.wake_tasks();
                    }
                }
                State::Zombie(_) => {}
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
            match self.tasks.get(tid).is_some_and(|task| task.pid == pid) {
                true => self.scheduler.ready.push_back(tid),
                false => self.scheduler.suspended.push(tid),
            }
        }
    }

    /// Makes suspended tasks ready that neither their process's state nor a debugger stops any more.
    pub(in crate::kernel) fn release_suspended(&mut self) {
        for tid in mem::take(&mut self.scheduler.suspended) {
            match self.tasks.get(tid).is_some_and(Task::is_held) {
                false => self.scheduler.ready.push_back(tid),
                true => self.scheduler.suspended.push(tid),
            }
        }
    }

    /// Whether a task waits until its process continues, or a debugger lets it run.
    pub(in crate::kernel) fn is_suspended(&self, tid: u32) -> bool {
        self.scheduler.suspended.contains(&tid)
    }

    /// Makes a suspended task of a stopped process run next.
    pub(in crate::kernel) fn resume_first(&mut self, tid: u32) {
        let suspended = &mut self.scheduler.suspended;
        let before = suspended.len();
        suspended.retain(|&other| other != tid);
        if suspended.len() < before {
            self.scheduler.ready.push_front(tid);
        }
    }

    /// Stops the running task: it waits until its process continues by `SIGCONT`, or a debugger lets
    /// it run.
    pub(crate) fn suspend(&mut self) {
        let tid = self.task().tid;
        self.scheduler.suspended.push(tid);
        self.settle_stop(false);
        let next = self.next_task();
        match next == tid {
            // Meanwhile a debugger may have sent it a signal.
            true => self.kick_self(),
            false => self.switch_to(next),
        }
    }

    /// Ends the running task, and switches to another one.
    pub(crate) fn leave_task(&mut self) {
        let tid = self.task().tid;
        self.forget_task(tid);
        self.wake_tasks();
        let next = self.next_task();
        self.switch_to(next);
        self.tasks.remove(tid);
    }

    /// Ends another task.
    pub(crate) fn remove_task(&mut self, tid: u32) {
        self.forget_task(tid);
        self.wake_tasks();
        self.tasks.remove(tid);
    }

    /// Removes a task, which will never run again, from all queues.
    fn forget_task(&mut self, tid: u32) {
        self.forget_disks(tid);
        self.ipc.semaphores.forget_task(tid);
        if let Some(task) = self.tasks.get_mut(tid) {
            self.scheduler.forget_task(task);
        }
    }

    /// Switches to `tid`, which is not running.
    pub(crate) fn switch_to(&mut self, tid: u32) {
        let Some(next) = self.current_of(tid) else {
            return;
        };
        let before = self.task().tid;
        let dumped = self.process().dump.is_some().then(|| self.process().pid);
        self.account_time();
        self.interrupt_sequence();
        let registers = Registers::save(self.hart());
        self.task_mut().registers = Some(registers);
        self.run(next);
        self.record_switch();
        if let Some(registers) = self.task_mut().registers.take() {
            registers.restore(self.hart());
        }
        let alone = self.is_alone() && !self.net.has_device() && !self.spawned.is_possible();
        self.streams.set_alone(alone);
        self.resume_sequence();
        if self.signals().is_deliverable() || self.process().dump.is_some() {
            kick::kick(self.kick());
        }
        if let Some(pid) = dumped {
            self.wake_dump(pid);
        }
        self.stop_left(before);
        self.settle_stop(false);
    }

    /// The handles of a task, its process and its address space.
    fn current_of(&self, tid: u32) -> Option<Current> {
        let task = self.tasks.handle(tid)?;
        let process = self.tasks[task].process;
        let space = self.processes[process].space;
        Some(Current {
            task,
            process,
            space,
        })
    }

    /// Adds the time since the last switch to the running process's CPU time.
    pub(crate) fn account_time(&mut self) {
        let now = clock::monotonic();
        self.sample_load(now);
        let started = mem::replace(&mut self.cpus[self.cpu].started, now);
        let used = now.saturating_sub(started);
        self.process_mut().cpu_time += used;
        self.task_mut().cpu_time += used;
    }

    /// Begins a new time slice of the running task after the vCPU was idle: no task used that time.
    fn restart_slice(&mut self) {
        self.cpus[self.cpu].started = clock::monotonic();
    }
}
