//! What stops debugged threads, how they stop and continue, and the packets that tell of it.

use super::{Call, Debugger, Phase, Traced};
use crate::debugger::resume::{Action, to_gdb};
use crate::debugger::text::hex;
use crate::kernel::Kernel;
use crate::kernel::exit::End;
use crate::kernel::process::{FIRST, Status};
use crate::kernel::signals::{SigInfo, bit};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use hartline_linux::siginfo::SI_USER;
use hartline_linux::signal::{SIGKILL, SIGTRAP};

/// A stop, or the end of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub pid: u32,
    pub tid: u32,
    pub reason: Reason,
}

/// Why threads stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A signal, which the thread has not received; 0: the debugger asked for the stop.
    Signal(u8),
    /// A breakpoint in memory, or one that the debugger calls a hardware breakpoint.
    Breakpoint {
        is_hardware: bool,
    },
    /// The end of a step.
    Step,
    /// A watchpoint of this kind, and the address that was accessed.
    Watch(&'static str, u64),
    Fork(u32),
    Vfork(u32),
    VforkDone,
    /// The path of the new program.
    Exec(Vec<u8>),
    CallEntry(u64),
    CallReturn(u64),
    /// The process has ended.
    Ended(Status),
}

impl Debugger {
    /// The name of a thread in packets.
    pub(super) fn name(&self, pid: u32, tid: u32) -> String {
        match self.features.multiprocess {
            true => format!("p{pid:x}.{tid:x}"),
            false => format!("{tid:x}"),
        }
    }

    /// The packet that tells of a stop ("Stop Reply Packets").
    pub(super) fn stop_reply(&self, event: &Event) -> String {
        let process = match self.features.multiprocess {
            true => format!(";process:{:x}", event.pid),
            false => String::new(),
        };
        let features = &self.features;
        let (signal, what) = match &event.reason {
            Reason::Ended(Status::Signaled { signal, .. }) => {
                return format!("X{signal:02x}{process}");
            }
            Reason::Ended(Status::Exited(code)) => return format!("W{code:02x}{process}"),
            Reason::Ended(_) => return format!("W00{process}"),
            Reason::Signal(signal) => (*signal, String::new()),
            Reason::Breakpoint { is_hardware: false } if features.swbreak => {
                (SIGTRAP, "swbreak:;".into())
            }
            Reason::Breakpoint { is_hardware: true } if features.hwbreak => {
                (SIGTRAP, "hwbreak:;".into())
            }
            Reason::Breakpoint { .. } | Reason::Step => (SIGTRAP, String::new()),
            Reason::Watch(kind, address) => (SIGTRAP, format!("{kind}:{address:x};")),
            Reason::Fork(child) => (SIGTRAP, format!("fork:{};", self.name(*child, *child))),
            Reason::Vfork(child) => (SIGTRAP, format!("vfork:{};", self.name(*child, *child))),
            Reason::VforkDone => (SIGTRAP, "vforkdone:;".into()),
            Reason::Exec(path) => {
                let path = String::from_utf8(hex(path)).unwrap_or_default();
                (SIGTRAP, format!("exec:{path};"))
            }
            Reason::CallEntry(number) => (SIGTRAP, format!("syscall_entry:{number:x};")),
            Reason::CallReturn(number) => (SIGTRAP, format!("syscall_return:{number:x};")),
        };
        let thread = self.name(event.pid, event.tid);
        format!("T{:02x}{what}thread:{thread};", to_gdb(signal))
    }
}

impl Kernel {
    /// Stops all debugged threads after an event of one thread. The debugger learns of the event when all
    /// threads stand still.
    pub(super) fn debug_event(&mut self, (pid, tid): (u32, u32), reason: Reason) {
        let event = Event { pid, tid, reason };
        let Some(debugger) = &mut self.debugger else {
            return;
        };
        debugger.events.push_back(event);
        self.hold_debugged();
    }

    /// As [`debug_event`](Self::debug_event), of the running task.
    pub(super) fn debug_event_here(&mut self, reason: Reason) {
        let (pid, tid) = (self.task().pid, self.task().tid);
        self.debug_event((pid, tid), reason);
        self.kick_self();
    }

    /// Holds all debugged threads.
    pub(super) fn hold_debugged(&mut self) {
        for tid in self.debugged() {
            let Some(handle) = self.tasks.handle(tid) else {
                continue;
            };
            let debug = &mut self.tasks[handle].debug;
            debug.held = true;
            debug.step = None;
            self.ask_task(handle);
        }
        if let Some(debugger) = &mut self.debugger
            && debugger.phase == Phase::Running
        {
            debugger.phase = Phase::Stopping;
        }
    }

    /// Tells the debugger of a stop when all debugged threads stand still. `is_idle`: this vCPU executes
    /// no task, although it has one.
    pub(crate) fn settle_stop(&mut self, is_idle: bool) {
        let Some(debugger) = &self.debugger else {
            return;
        };
        if debugger.phase != Phase::Stopping {
            return;
        }
        let runs = |(number, cpu): (usize, &crate::kernel::parallel::CpuState)| {
            let task = &self.tasks[cpu.current.task];
            let stands = number == self.cpu && (is_idle || self.is_suspended(task.tid));
            task.debug.held && !stands
        };
        if self.cpus.iter().enumerate().any(runs) {
            return;
        }
        if let Some(debugger) = &mut self.debugger {
            debugger.phase = Phase::Stopped;
        }
        self.note_stop();
        self.tell_stop();
    }

    /// Tells the next stop, if the debugger waits for one.
    pub(super) fn tell_stop(&mut self) {
        let Some(debugger) = &mut self.debugger else {
            return;
        };
        if debugger.phase != Phase::Stopped || !debugger.owes_stop {
            return;
        }
        let Some(event) = debugger.events.pop_front() else {
            return;
        };
        debugger.owes_stop = false;
        debugger.thread = event.tid;
        let reply = debugger.stop_reply(&event);
        debugger.told = Some(event);
        self.answer(reply.as_bytes());
    }

    /// Lets debugged threads continue. The first action for a thread counts; threads without one stay
    /// held.
    pub(super) fn debug_resume(&mut self, actions: &[Action]) {
        let Some(debugger) = &mut self.debugger else {
            return;
        };
        debugger.owes_stop = true;
        if !debugger.events.is_empty() {
            return self.tell_stop();
        }
        debugger.phase = Phase::Running;
        let steps_only = actions.iter().all(|action| action.step.is_some());
        self.sync_code(steps_only);
        for tid in self.debugged() {
            let Some(task) = self.tasks.get_mut(tid) else {
                continue;
            };
            let action = actions
                .iter()
                .find(|action| action.threads.include(task.pid, tid));
            let Some(action) = action else {
                continue;
            };
            let debug = &mut task.debug;
            debug.held = false;
            debug.passes = None;
            debug.step.clone_from(&action.step);
            let info = debug.info.take();
            let kept = info.filter(|info| info.signal() == action.signal);
            if kept.is_none() {
                task.fault = None;
            }
            if action.signal != 0 {
                let info = kept.unwrap_or(SigInfo::sent(action.signal, SI_USER, 0, 0));
                task.debug.passes = Some(action.signal);
                task.signals.push_front(info);
            }
        }
        self.release_suspended();
    }

    /// Stops a task with a signal that it is about to receive. Returns whether it must not receive it
    /// now.
    pub(crate) fn intercept_signal(&mut self) -> bool {
        if !self.process().debugged {
            return false;
        }
        if self.is_held() {
            self.kick_self();
            return true;
        }
        let Some(info) = self.signals().next_info() else {
            return false;
        };
        let signal = info.signal();
        let debug = &mut self.task_mut().debug;
        if debug.passes.take_if(|passed| *passed == signal).is_some() {
            return false;
        }
        let passed = self.debugger.as_ref().map(|debugger| debugger.passed);
        if signal == SIGKILL || passed.is_none_or(|passed| passed & bit(signal) != 0) {
            return false;
        }
        self.task_mut().debug.info = self.signals().take(bit(signal));
        self.debug_event_here(Reason::Signal(signal));
        true
    }

    /// Stops at the start of a system call that the debugger catches. Returns whether it did: then the
    /// call begins again later.
    pub(crate) fn catch_call(&mut self, number: u64) -> bool {
        let Some(debugger) = &self.debugger else {
            return false;
        };
        let is_caught = self.process().debugged && debugger.catches.include(number);
        if !is_caught || mem::replace(&mut self.task_mut().debug.call, Call::Begun) == Call::Begun {
            return false;
        }
        self.debug_event_here(Reason::CallEntry(number));
        true
    }

    /// Forgets the calls whose starts were caught: their ends are not.
    pub(super) fn forget_calls(&mut self) {
        for task in self.tasks.iter_mut() {
            task.debug.call = Call::Outside;
        }
    }

    /// Stops at the end of a system call whose start was caught.
    pub(crate) fn catch_return(&mut self, number: u64) {
        let call = mem::take(&mut self.task_mut().debug.call);
        if call == Call::Begun && self.process().debugged {
            self.debug_event_here(Reason::CallReturn(number));
        }
    }

    /// Notes that the running task has made a process, which shares its memory or has a copy.
    pub(crate) fn note_fork(&mut self, child: u32, is_vfork: bool) {
        if !self.process().debugged {
            return;
        }
        let Some(debugger) = &self.debugger else {
            return self.leave_child(child);
        };
        let features = debugger.features;
        let (is_told, reason) = match is_vfork {
            true => (features.vfork_events, Reason::Vfork(child)),
            false => (features.fork_events, Reason::Fork(child)),
        };
        if !is_told {
            return self.leave_child(child);
        }
        if let Some(process) = self.processes.get_mut(child) {
            process.debugged = true;
        }
        self.debug_event_here(reason);
    }

    /// Notes that a process made by `vfork` no longer uses the memory of `parent`.
    pub(crate) fn note_vfork_done(&mut self, parent: u32) {
        let has_events =
            (self.debugger.as_ref()).is_some_and(|debugger| debugger.features.vfork_events);
        if has_events && self.is_debugged(parent) {
            let pid = self.tasks.get(parent).map_or(parent, |task| task.pid);
            self.debug_event((pid, parent), Reason::VforkDone);
        }
    }

    /// Notes that the running process executes another program.
    pub(crate) fn note_exec(&mut self) {
        if !self.process().debugged {
            return;
        }
        self.task_mut().debug = Traced::default();
        let Some(debugger) = &self.debugger else {
            return;
        };
        let reason = match debugger.features.exec_events {
            true => Reason::Exec(self.process().executable.clone()),
            false => Reason::Signal(SIGTRAP),
        };
        self.follow_precision(self.current.space);
        self.debug_event_here(reason);
    }

    /// Notes the end of the running process, if it is debugged.
    pub(crate) fn note_end(&mut self, status: Status) {
        if mem::take(&mut self.process_mut().debugged) {
            let pid = self.process().pid;
            self.debug_event((pid, pid), Reason::Ended(status));
        }
    }

    /// Tells the debugger of the end of the VM.
    pub(crate) fn tell_end(&mut self, end: &End) {
        let Some(debugger) = &self.debugger else {
            return;
        };
        if debugger.owes_stop {
            let event = Event {
                pid: FIRST,
                tid: FIRST,
                reason: Reason::Ended(end.status(false)),
            };
            let reply = debugger.stop_reply(&event);
            self.answer(reply.as_bytes());
        }
        self.end_session();
    }

    /// Stops debugging a process, which goes on.
    pub(super) fn stop_debugging(&mut self, pid: u32) {
        self.remove_code(pid);
        let Some(process) = self.processes.get_mut(pid) else {
            return;
        };
        process.debugged = false;
        if let Some(debugger) = &mut self.debugger {
            debugger.events.retain(|event| event.pid != pid);
        }
        for tid in self.threads(pid) {
            if let Some(task) = self.tasks.get_mut(tid) {
                let Traced { info, .. } = mem::take(&mut task.debug);
                // The signal with which it stopped reaches it.
                if let Some(info) = info {
                    task.signals.push_front(info);
                }
            }
        }
        self.release_suspended();
    }
}
