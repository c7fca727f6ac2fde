//! Delivery of signals to processes, and how processes stop, continue and end.

use crate::arch::clock;
use crate::convert::low_u8;
use crate::kernel::Kernel;
use crate::kernel::exit::{self, End};
use crate::kernel::futex;
use crate::kernel::process::{FIRST, IDLE, Process, State, Status};
use crate::kernel::signals::{ProcessSignals, QUEUE_LIMIT, SigInfo, bit};
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use crate::wait::{READABLE, Registration};
use alloc::vec::Vec;
use hartline_abi::boot::strace;
use hartline_abi::call::Operation;
use hartline_linux::errno::Errno;
use hartline_linux::resource::RLIMIT_SIGPENDING;
use hartline_linux::siginfo::{SI_KERNEL, SI_USER};
use hartline_linux::signal::{
    SIGCHLD, SIGCONT, SIGHUP, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
};

/// Signals that stop a process unless they are handled or ignored.
const STOPPING: u64 = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// The effect of a job control signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Nothing,
    Process,
    Machine,
}

impl Kernel {
    /// The signal state of a process; none after its end.
    fn signals_of(&mut self, pid: u32) -> Option<&mut ProcessSignals> {
        let process = self.processes.get_mut(pid);
        let process = process.filter(|process| !process.is_zombie());
        process.map(|process| &mut process.signals)
    }

    /// Whether the signal of a process's POSIX timer is pending.
    pub(crate) fn is_timer_pending(&self, pid: u32, number: u32) -> bool {
        let process = self.processes.get(pid);
        let mut threads = self.tasks().filter(|task| task.pid == pid);
        process.is_some_and(|process| process.signals.is_timer_pending(number))
            || threads.any(|task| task.signals.is_timer_pending(number))
    }

    /// Whether one more signal may be queued for a process: `RLIMIT_SIGPENDING` limits the pending
    /// signals and POSIX timers of its user.
    #[must_use]
    pub fn may_queue_signal(&self, target: &Process) -> bool {
        let limit = target.limits[RLIMIT_SIGPENDING].rlim_cur;
        let is_of_user = |process: &Process| process.uid() == target.uid();
        let processes = self.processes().filter(|process| is_of_user(process));
        let shared = processes.map(|process| process.signals.queued() + process.timers.posix.len());
        let tasks = self.tasks();
        let tasks = tasks.filter(|task| is_of_user(&self.processes[task.process]));
        let own = tasks.map(|task| task.signals.queued());
        let queued = shared.sum::<usize>() + own.sum::<usize>();
        queued < QUEUE_LIMIT && (queued as u64) < limit
    }

    /// Sends a signal to a process; it has no effect on a zombie.
    pub fn signal_process(&mut self, pid: u32, info: SigInfo) {
        let signal = info.signal();
        self.change_state_by(pid, signal);
        let (mut threads, mut kept) = (Vec::new(), 0);
        for task in self.tasks().filter(|task| task.pid == pid) {
            threads.push(task.tid);
            kept |= task.signals.kept();
        }
        let Some(signals) = self.signals_of(pid) else {
            return;
        };
        signals.send(info, kept);
        for tid in threads {
            self.notice(tid, signal);
        }
    }

    /// Sends a signal to a thread.
    pub fn signal_thread(&mut self, tid: u32, info: SigInfo) {
        let signal = info.signal();
        let Some(pid) = self.program_task(tid).map(|task| task.pid) else {
            return;
        };
        self.change_state_by(pid, signal);
        if let Some(task) = self.tasks.get_mut(tid)
            && let Some(process) = self.processes.get(pid)
        {
            process.signals.send_to(&mut task.signals, info);
        }
        self.notice(tid, signal);
    }

    /// Drops the pending signals of `set` of a process and its threads.
    pub(crate) fn drop_pending(&mut self, pid: u32, set: u64) {
        if let Some(process) = self.processes.get_mut(pid) {
            process.signals.drop_pending(set);
        }
        for task in self.tasks.iter_mut().filter(|task| task.pid == pid) {
            task.signals.drop_pending(set);
        }
    }

    /// Sends a signal to all processes of a group. Returns whether there are any.
    pub fn signal_group(&mut self, group: u32, info: SigInfo) -> bool {
        let members: Vec<u32> = (self.processes())
            .filter(|process| process.group == group)
            .map(|process| process.pid)
            .collect();
        for &pid in &members {
            self.signal_process(pid, info);
        }
        !members.is_empty()
    }

    /// Kicks or wakes a task to which a signal was sent.
    fn notice(&mut self, tid: u32, signal: u8) {
        let Some(handle) = self.tasks.handle(tid) else {
            return;
        };
        let task = &self.tasks[handle];
        if task.signals.blocked() & bit(signal) != 0 {
            // A signalfd may read it.
            if let Some(process) = self.processes.get(task.pid) {
                process.signal_waiters.wake_all(READABLE);
                self.wake_tasks();
            }
            return;
        }
        let waits = task.wait.is_some();
        let pid = task.pid;
        let ends = signal == SIGKILL && !self.is_kept_from_kill(pid);
        if task.debug.held && ends {
            self.release_hold(pid);
        }
        if signal == SIGKILL {
            self.forget_stop(tid);
        }
        self.ask_task(handle);
        if waits {
            self.wake(tid);
        }
    }

    /// Applies the immediate effects of a signal, whether it is handled or not.
    fn change_state_by(&mut self, pid: u32, signal: u8) {
        let dropped = match signal {
            SIGCONT => STOPPING,
            _ if STOPPING & bit(signal) != 0 => bit(SIGCONT),
            _ => 0,
        };
        if dropped != 0 {
            self.drop_pending(pid, dropped);
        }
        if !matches!(signal, SIGCONT | SIGKILL) {
            return;
        }
        if signal == SIGCONT {
            self.stop_with_continuation(pid);
        }
        let Some(process) = self.processes.get_mut(pid) else {
            return;
        };
        if process.state == State::Stopped {
            process.state = State::Running;
            if signal == SIGCONT {
                self.tell_parent(pid, Status::Continued);
            }
            self.resume_tasks(pid);
        }
    }

    /// What stops if a job control signal stops the running process. Nothing in the VM could
    /// continue the first process.
    fn stopped_by(&self, signal: u8) -> Stopped {
        let process = self.process();
        match signal {
            _ if process.pid == FIRST => Stopped::Machine,
            SIGSTOP => Stopped::Process,
            _ if process.group == FIRST => Stopped::Machine,
            _ if self.is_orphaned(process.group, process.session) => Stopped::Nothing,
            _ => Stopped::Process,
        }
    }

    /// Stops the VM, which is a job of a shell of the host, and continues the first process's group
    /// afterwards.
    fn stop_machine(&mut self) {
        // Earlier output becomes visible; there is no program to report an error to.
        let _ = self.streams.flush();
        let _ = self.host.call(Operation::Stop, &mut [0; 6]);
        let info = SigInfo::sent(SIGCONT, SI_KERNEL, 0, 0);
        self.signal_group(FIRST, info);
    }

    /// Whether no member of a process group has a parent in the same session but
    /// outside the group.
    pub(crate) fn is_orphaned(&self, group: u32, session: u32) -> bool {
        let has_controller = |parent: u32| {
            let parent = self
                .processes
                .get(parent)
                .filter(|parent| parent.pid != IDLE);
            parent.is_some_and(|parent| parent.session == session && parent.group != group)
        };
        let is_member = |process: &&Process| process.group == group && !process.is_zombie();
        let mut members = self.processes().filter(is_member);
        !members.any(|process| has_controller(process.parent))
    }

    /// The groups that the end of the running process may orphan: its own and those of its
    /// children.
    fn dependent_groups(&self) -> Vec<u32> {
        let Process { pid, session, .. } = *self.process();
        let children = self.processes().filter(|process| process.parent == pid);
        let children = children.filter(|child| child.session == session && !child.is_zombie());
        let own = self.process().group;
        let mut groups: Vec<u32> = children.map(|child| child.group).chain([own]).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.retain(|&group| !self.is_orphaned(group, session));
        groups
    }

    /// Sends `SIGHUP` and `SIGCONT` to stopped groups of `groups` that the end of the running
    /// process has orphaned.
    fn hang_up_orphans(&mut self, groups: &[u32]) {
        let session = self.process().session;
        for &group in groups {
            let is_stopped =
                |process: &Process| process.group == group && process.state == State::Stopped;
            if self.processes().any(is_stopped) && self.is_orphaned(group, session) {
                for signal in [SIGHUP, SIGCONT] {
                    let info = SigInfo::sent(signal, SI_KERNEL, 0, 0);
                    self.signal_group(group, info);
                }
            }
        }
    }

    /// Stops the running process by a signal, if that is allowed, and switches to another one.
    pub(crate) fn stop_process(&mut self, signal: u8) {
        match self.stopped_by(signal) {
            Stopped::Nothing => return,
            Stopped::Machine => return self.stop_machine(),
            Stopped::Process => {}
        }
        self.process_mut().state = State::Stopped;
        let pid = self.process().pid;
        self.stop_tracees_of_group(signal);
        if !self.is_traced_by_parent() {
            self.tell_parent(pid, Status::Stopped(signal));
        }
        self.ask_process();
        for tid in self.threads(pid) {
            // A wake-up for one task must not reach a stopped one: it repeats its call later.
            let task = self.tasks.get(tid);
            if task.is_some_and(|task| task.registrations.iter().any(Registration::is_exclusive)) {
                self.wake(tid);
            }
        }
        self.suspend();
    }

    /// Reports a state change of a process to its parent.
    pub(super) fn tell_parent(&mut self, pid: u32, status: Status) {
        let Some(process) = self.processes.get_mut(pid) else {
            return;
        };
        let (parent, uid) = (process.parent, process.uid());
        let ended = process.is_zombie();
        if !ended {
            process.unreported = Some(status);
        }
        let wanted = match ended {
            true => process.exit_signal,
            false => SIGCHLD,
        };
        let Some(signals) = self.signals_of(parent) else {
            return;
        };
        if wanted != 0 && (ended || signals.wants_stopped_children()) {
            let info = status.info(pid, uid);
            let info = match wanted == info.signal() {
                true => info,
                false => SigInfo::sent(wanted, SI_USER, pid, uid),
            };
            self.signal_process(parent, info);
        }
        self.wake_parent(parent);
    }

    /// Ends the running process, or the VM if it is the first process, and switches to another
    /// task. If other vCPUs run its threads and there is a core dump to write, the process ends later.
    pub(crate) fn end_process(&mut self, end: &End) {
        let Some(has_core) = self.dump_core(end) else {
            return;
        };
        let (pid, status) = (self.process().pid, end.status(has_core));
        if self.traces != strace::OFF {
            self.trace_end(status);
        }
        if pid == FIRST {
            self.tell_end(end);
            exit::end(self, end);
        }
        self.note_end(status);
        self.end_tracing(status, true);
        let first = self.tasks.get(pid).map(|task| task.name);
        self.process_mut().last_name = first.unwrap_or(self.task().name);
        self.remove_other_threads();
        futex::forget(self, self.task().tid);
        self.end_task_memory();
        self.undo_semaphores(pid);
        self.account_time();
        self.leave_terminal();
        let groups = self.dependent_groups();
        let (mut io, process) = self.io();
        io.close_all(process);
        self.spawned.note_end(pid, status);
        self.give_memory_back();
        self.release_space();
        self.orphan_children(pid);
        let process = self.process_mut();
        process.state = State::Zombie(status);
        process.signals = ProcessSignals::default();
        process.files.registry.end_threads(pid);
        self.hang_up_orphans(&groups);
        let parent = self.process().parent;
        // Nobody waits for a process of the host.
        let ignores = parent == IDLE
            || self
                .signals_of(parent)
                .is_none_or(|signals| signals.ignores_children());
        self.tell_parent(pid, status);
        self.process().exit_waiters.wake_all(READABLE);
        self.serve_wakeups();
        self.leave_task();
        // A zombie whose parent does not want it is removed.
        if ignores {
            self.reap(pid);
        }
    }

    /// Reverses the operations of a process on semaphores of System V (`SEM_UNDO`).
    pub(crate) fn undo_semaphores(&mut self, pid: u32) {
        let now = (clock::realtime() / 1_000_000_000).cast_signed();
        let mut woken = Vec::new();
        self.ipc.semaphores.undo(pid, now, &mut woken);
        for tid in woken {
            self.wake(tid);
        }
    }

    /// Removes a zombie.
    pub(crate) fn reap(&mut self, pid: u32) {
        self.processes.remove(pid);
        self.process().files.registry.remove(pid);
    }

    /// The new parent of the children of an ended process: the nearest ancestor with
    /// `PR_SET_CHILD_SUBREAPER`, or the first process.
    fn reaper(&self, pid: u32) -> u32 {
        let mut at = self.processes.get(pid);
        while let Some(process) = at {
            let parent = self.processes.get(process.parent);
            at = parent.filter(|parent| parent.pid != IDLE && !parent.is_zombie());
            if at.is_some_and(|ancestor| ancestor.is_subreaper) {
                return process.parent;
            }
        }
        FIRST
    }

    /// Gives the children of an ended process another parent.
    fn orphan_children(&mut self, pid: u32) {
        let children: Vec<u32> = (self.processes())
            .filter(|process| process.parent == pid)
            .map(|process| process.pid)
            .collect();
        let reaper = self.reaper(pid);
        let waits = self
            .signals_of(reaper)
            .is_some_and(|signals| !signals.ignores_children());
        for child in children {
            let Some(process) = self.processes.get_mut(child) else {
                continue;
            };
            process.parent = reaper;
            process.exit_signal = SIGCHLD;
            let (state, death) = (process.state, process.parent_death_signal);
            if let State::Zombie(status) = state {
                match waits {
                    true => self.tell_parent(child, status),
                    false => self.reap(child),
                }
            } else if death != 0 {
                let info = SigInfo::sent(low_u8(death), SI_USER, pid, 0);
                self.signal_process(child, info);
            }
        }
    }

    /// Releases the address space of the running process, and resumes the parent that made the
    /// process by `vfork`.
    pub(crate) fn give_memory_back(&mut self) {
        if let Some(parent) = self.process_mut().vfork_parent.take() {
            self.wake(parent);
            self.note_vfork_done(parent);
            self.stop_after_vfork(parent);
        }
    }

    /// Updates the program's memory at the end of the running task.
    fn end_task_memory(&mut self) {
        futex::leave_robust_list(self);
        let address = core::mem::take(&mut self.task_mut().clear_child_tid);
        let shared = self.process().threads > 1 || self.space().is_shared();
        // An invalid address is ignored.
        if address != 0 && shared && user::write(self.memory_mut(), address, &0u32).is_ok() {
            futex::wake_address(self, address, 1);
        }
    }

    /// Ends the running thread, which is not the last of its process.
    pub(crate) fn end_thread(&mut self, status: Status) {
        self.end_tracing(status, false);
        self.end_task_memory();
        let tid = self.task().tid;
        futex::forget(self, tid);
        let process = self.process_mut();
        process.threads -= 1;
        process.files.registry.remove_thread(process.pid, tid);
        self.leave_task();
    }

    /// Removes all threads of the running process except the running one.
    fn remove_other_threads(&mut self) {
        let own = self.task().tid;
        for tid in self.threads(self.process().pid) {
            if tid != own {
                futex::forget(self, tid);
                self.take_from_cpu(tid);
                self.remove_task(tid);
            }
        }
    }

    /// Ends all threads of the running process except the running one, which becomes its first
    /// thread; for `execve`.
    pub(crate) fn end_other_threads(&mut self) {
        self.end_tracing_of_others();
        self.remove_other_threads();
        let process = self.process_mut();
        process.threads = 1;
        process.files.registry.end_threads(process.pid);
        let (tid, pid) = (self.task().tid, self.process().pid);
        if tid != pid {
            self.tasks.renumber(tid, pid);
            self.task_mut().tid = pid;
        }
    }

    /// Makes the running task wait until its child by `vfork` has released the memory.
    ///
    /// # Errors
    /// `ERESTARTSYS`: it waits. `EINTR`: it is killed.
    pub(crate) fn wait_for_vfork(&mut self, child: u32) -> Result<(), Errno> {
        let tid = self.task().tid;
        let process = self.processes.get_mut(child);
        let waits = process.is_some_and(|process| process.vfork_parent == Some(tid));
        match waits {
            true => Err(self.block_killable(Wait::for_event(Event::Vfork), child.into())),
            false => Ok(()),
        }
    }
}
