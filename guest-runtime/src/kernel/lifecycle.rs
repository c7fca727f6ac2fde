//! Delivery of signals to processes, and how processes stop, continue and end.

use crate::arch::clock;
use crate::fs::types::Ino;
use crate::kernel::Kernel;
use crate::kernel::exit::{self, End};
use crate::kernel::futex;
use crate::kernel::process::{FIRST, INIT, Process, State, Status};
use crate::kernel::signals::{SigInfo, Signals, ThreadSignals, bit};
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use alloc::vec::Vec;
use hartline_abi::call::Operation;
use hartline_linux::siginfo::{SI_KERNEL, SI_USER};
use hartline_linux::signal::{
    SIGCHLD, SIGCONT, SIGHUP, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
};

/// Signals that stop a process unless they are handled or ignored.
const STOPPING: u64 = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// The inode of no file. A change of it wakes tasks that wait for any file, which check their
/// pidfds.
const NOBODY: Ino = Ino(0);

/// The effect of a job control signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Nothing,
    Process,
    Machine,
}

impl Kernel {
    /// The signal state of a process; none after its end.
    fn signals_of(&mut self, pid: u32) -> Option<&mut Signals> {
        match pid == self.process.pid {
            true => Some(&mut self.signals),
            false => {
                let parked = self.scheduler.process(pid)?.parked.as_mut()?;
                Some(&mut parked.signals)
            }
        }
    }

    /// Whether the signal of a process's POSIX timer is pending.
    pub(crate) fn is_timer_pending(&mut self, pid: u32, number: u32) -> bool {
        let signals = self.signals_of(pid);
        signals.is_some_and(|signals| signals.is_timer_pending(number))
    }

    /// Sends a signal to a process; it has no effect on a zombie.
    pub fn signal_process(&mut self, pid: u32, info: SigInfo) {
        let signal = info.signal();
        let threads = self.threads(pid);
        let kept = threads.iter().fold(0, |set, &tid| {
            set | self.thread_signals(tid).map_or(0, ThreadSignals::kept)
        });
        self.change_state_by(pid, signal);
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
        let Some(pid) = self.task_mut(tid).map(|task| task.pid) else {
            return;
        };
        self.change_state_by(pid, signal);
        if tid == self.task.tid {
            self.signals.send_to_thread(info);
        } else if let Some(mut state) = self
            .scheduler
            .task(tid)
            .map(|t| core::mem::take(&mut t.signals))
        {
            if let Some(signals) = self.signals_of(pid) {
                signals.send_to_other(&mut state, info);
            }
            if let Some(task) = self.scheduler.task(tid) {
                task.signals = state;
            }
        }
        self.notice(tid, signal);
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

    /// The signal state of a thread, if the thread exists.
    fn thread_signals(&mut self, tid: u32) -> Option<&ThreadSignals> {
        match tid == self.task.tid {
            true => Some(&self.signals.thread),
            false => self.scheduler.task(tid).map(|task| &task.signals),
        }
    }

    /// Kicks or wakes a task to which a signal was sent.
    fn notice(&mut self, tid: u32, signal: u8) {
        let blocked = self.thread_signals(tid).map_or(0, ThreadSignals::blocked);
        if blocked & bit(signal) != 0 {
            // The task may wait for a signalfd.
            let wait = self.task_mut(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| wait.event == Event::AnyFile) {
                self.wake(tid);
            }
            return;
        }
        self.ask_task(tid);
        self.wake(tid);
    }

    /// Applies the immediate effects of a signal, whether it is handled or not.
    fn change_state_by(&mut self, pid: u32, signal: u8) {
        let dropped = match signal {
            SIGCONT => STOPPING,
            _ if STOPPING & bit(signal) != 0 => bit(SIGCONT),
            _ => 0,
        };
        if dropped != 0
            && let Some(signals) = self.signals_of(pid)
        {
            signals.drop_pending(dropped);
        }
        if !matches!(signal, SIGCONT | SIGKILL) {
            return;
        }
        let Some(process) = self.process_mut(pid) else {
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
        let process = &self.process;
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
        let _ = self.files.streams.flush();
        let _ = self.host.call(Operation::Stop, &mut [0; 6]);
        let info = SigInfo::sent(SIGCONT, SI_KERNEL, 0, 0);
        self.signal_group(FIRST, info);
    }

    /// Whether no member of a process group has a parent in the same session but
    /// outside the group.
    pub(crate) fn is_orphaned(&self, group: u32, session: u32) -> bool {
        let has_controller = |parent: u32| {
            let parent = self.process_ref(parent);
            parent.is_some_and(|parent| parent.session == session && parent.group != group)
        };
        let is_member = |process: &&Process| process.group == group && !process.is_zombie();
        let mut members = self.processes().filter(is_member);
        !members.any(|process| has_controller(process.parent))
    }

    /// The groups that the end of the running process may orphan: its own and those of its
    /// children.
    fn dependent_groups(&self) -> Vec<u32> {
        let Process { pid, session, .. } = *self.process;
        let children = self.processes().filter(|process| process.parent == pid);
        let children = children.filter(|child| child.session == session && !child.is_zombie());
        let own = self.process.group;
        let mut groups: Vec<u32> = children.map(|child| child.group).chain([own]).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.retain(|&group| !self.is_orphaned(group, session));
        groups
    }

    /// Sends `SIGHUP` and `SIGCONT` to stopped groups of `groups` that the end of the running
    /// process has orphaned.
    fn hang_up_orphans(&mut self, groups: &[u32]) {
        let session = self.process.session;
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
        self.process.state = State::Stopped;
        let pid = self.process.pid;
        self.tell_parent(pid, Status::Stopped(signal));
        for tid in self.threads(pid) {
            self.ask_task(tid);
        }
        self.suspend();
    }

    /// Reports a state change of a process to its parent.
    fn tell_parent(&mut self, pid: u32, status: Status) {
        let Some(process) = self.process_mut(pid) else {
            return;
        };
        let (parent, uid) = (process.parent, process.uid);
        let ended = process.is_zombie();
        if !ended {
            process.news = Some(status);
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
    /// task.
    pub(crate) fn end_process(&mut self, end: &End) {
        let (pid, status) = (
            self.process.pid,
            match end {
                End::Exited(status) => Status::Exited(*status),
                End::Signaled(signal) => Status::Signaled(*signal),
                End::Fault(fault) => Status::Signaled(fault.signal),
                End::OutOfMemory => Status::Signaled(SIGKILL),
            },
        );
        if self.traces {
            self.trace_end(status);
        }
        if pid == FIRST {
            exit::end(self, end);
        }
        let first = self.task_mut(pid).map(|task| task.name);
        self.process.last_name = first.unwrap_or(self.task.name);
        for tid in self.threads(pid) {
            futex::forget(self, tid);
            self.take_from_cpu(tid);
            self.remove_task(tid);
        }
        self.end_task_memory();
        self.undo_semaphores(pid);
        self.account_time();
        self.leave_terminal();
        let groups = self.dependent_groups();
        self.files.close_all();
        self.give_memory_back();
        self.scheduler.release_space(self.process.space);
        self.orphan_children(pid);
        self.process.state = State::Zombie(status);
        self.files.process.registry.end_threads(pid);
        self.hang_up_orphans(&groups);
        let parent = self.process.parent;
        let ignores = self
            .signals_of(parent)
            .is_none_or(|signals| signals.ignores_children());
        self.tell_parent(pid, status);
        if parent == INIT || ignores {
            self.process.parent = INIT;
        }
        self.files.vfs.changed.push(NOBODY);
        self.wake_for_files();
        self.leave_task();
    }

    /// Reverses the operations of a process that has ended on semaphores of System V.
    fn undo_semaphores(&mut self, pid: u32) {
        let now = (clock::realtime() / 1_000_000_000).cast_signed();
        let mut woken = Vec::new();
        self.ipc.semaphores.undo(pid, now, &mut woken);
        for tid in woken {
            self.wake(tid);
        }
    }

    /// Removes a zombie.
    pub(crate) fn reap(&mut self, pid: u32) {
        self.scheduler.remove_process(pid);
        self.files.process.registry.remove(pid);
    }

    /// Makes `init`, which does not wait for them, the parent of the children of an ended process.
    fn orphan_children(&mut self, pid: u32) {
        let children: Vec<u32> = (self.processes())
            .filter(|process| process.parent == pid)
            .map(|process| process.pid)
            .collect();
        for child in children {
            let Some(process) = self.process_mut(child) else {
                continue;
            };
            process.parent = INIT;
            let (zombie, death) = (process.is_zombie(), process.parent_death_signal);
            if zombie {
                self.reap(child);
            } else if death != 0 {
                let info = SigInfo::sent(death as u8, SI_USER, pid, 0);
                self.signal_process(child, info);
            }
        }
    }

    /// Releases the address space of the running process, and resumes the parent that made the
    /// process by `vfork`.
    pub(crate) fn give_memory_back(&mut self) {
        if let Some(parent) = self.process.vfork_parent.take() {
            self.wake(parent);
        }
    }

    /// Updates the program's memory at the end of the running task.
    fn end_task_memory(&mut self) {
        futex::leave_robust_list(self);
        let address = core::mem::take(&mut self.task.clear_child_tid);
        let shared = self.process.threads > 1 || self.scheduler.space_users(self.process.space) > 1;
        // An invalid address is ignored.
        if address != 0 && shared && user::write(&mut self.memory, address, &0u32).is_ok() {
            futex::wake_address(self, address, 1);
        }
    }

    /// Ends the running thread, which is not the last of its process.
    pub(crate) fn end_thread(&mut self) {
        self.end_task_memory();
        futex::forget(self, self.task.tid);
        self.process.threads -= 1;
        let registry = &self.files.process.registry;
        registry.remove_thread(self.process.pid, self.task.tid);
        self.leave_task();
    }

    /// Ends all threads of the running process except the running one, which becomes its first
    /// thread; for `execve`.
    pub(crate) fn end_other_threads(&mut self) {
        for tid in self.threads(self.process.pid) {
            if tid != self.task.tid {
                futex::forget(self, tid);
                self.take_from_cpu(tid);
                self.remove_task(tid);
            }
        }
        self.process.threads = 1;
        let registry = &self.files.process.registry;
        registry.end_threads(self.process.pid);
        self.task.tid = self.process.pid;
        if let Some(cpu) = self.cpus.get_mut(self.cpu) {
            cpu.running = self.task.tid;
        }
    }

    /// Makes a task wait for the end of a `vfork`.
    pub(crate) fn wait_for_vfork(&mut self, child: u32) -> bool {
        let tid = self.task.tid;
        let process = self.process_mut(child);
        let waits = process.is_some_and(|process| process.vfork_parent == Some(tid));
        if waits {
            self.block_uninterrupted(Wait::for_event(Event::Vfork), u64::from(child));
        }
        waits
    }
}
