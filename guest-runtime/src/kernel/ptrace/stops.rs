//! The stops of traced tasks, and their reports to tracers.

use super::{Call, Kind, Mode, Stop, Tracee};
use crate::convert::low_u8;
use crate::kernel::call::ECALL_LENGTH;
use crate::kernel::process::{State, Status};
use crate::kernel::signals::{SigInfo, bit};
use crate::kernel::task::Task;
use crate::kernel::{Control, Kernel};
use alloc::boxed::Box;
use hartline_linux::errno::Errno;
use hartline_linux::ptrace::{
    PTRACE_EVENT_CLONE, PTRACE_EVENT_EXEC, PTRACE_EVENT_EXIT, PTRACE_EVENT_FORK,
    PTRACE_EVENT_SECCOMP, PTRACE_EVENT_STOP, PTRACE_EVENT_VFORK, PTRACE_EVENT_VFORK_DONE,
    PTRACE_EVENTMSG_SYSCALL_ENTRY, PTRACE_EVENTMSG_SYSCALL_EXIT, PTRACE_O_TRACEEXEC,
    PTRACE_O_TRACEEXIT, PTRACE_O_TRACESECCOMP, PTRACE_O_TRACESYSGOOD, PTRACE_O_TRACEVFORKDONE,
};
use hartline_linux::sched::{CLONE_PTRACE, CLONE_UNTRACED, CLONE_VFORK, CloneArgs};
use hartline_linux::siginfo::{SI_USER, TRAP_TRACE};
use hartline_linux::signal::{SIGCHLD, SIGKILL, SIGSTOP, SIGTRAP};
use hartline_linux::syscall::{LIMIT, nr};

/// The bit in the signal of a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
pub(super) const SYSTEM_CALL: u32 = 0x80;
const A0: usize = 10;
const A7: usize = 17;

impl Kernel {
    /// Whether a task must not run: it is held, or its process is stopped and nothing traces it.
    pub(in crate::kernel) fn must_stand(&self, task: &Task) -> bool {
        let is_stopped = self.processes[task.process].state == State::Stopped;
        task.is_held() || is_stopped && task.tracee.is_none()
    }

    /// Stops a tracee, and tells its tracer. If it has stopped, the stop follows the other one.
    pub(super) fn stop_tracee(&mut self, tid: u32, stop: Stop) {
        let Some(tracee) = self.tracee_mut(tid) else {
            return;
        };
        if tracee.is_stopped() {
            tracee.next.push_back(stop);
            return;
        }
        tracee.message = stop.message;
        tracee.stop = Some(stop);
        let tracer = tracee.tracer.1;
        let Some(handle) = self.tasks.handle(tid) else {
            return;
        };
        let uid = self.processes[self.tasks[handle].process].uid();
        self.ask_task(handle);
        self.tell_tracer(tracer, Status::Trapped(stop.code).info(tid, uid));
    }

    fn stop_here(&mut self, stop: Stop) {
        self.stop_tracee(self.task().tid, stop);
        self.kick_self();
    }

    /// Sends `SIGCHLD` to a tracer, and wakes it.
    pub(super) fn tell_tracer(&mut self, tracer: u32, info: SigInfo) {
        let process = self.processes.get(tracer);
        let Some(process) = process.filter(|process| !process.is_zombie()) else {
            return;
        };
        if process.signals.wants_stopped_children() && info.signal() == SIGCHLD {
            self.signal_process(tracer, info);
        }
        self.wake_parent(tracer);
    }

    /// Stops the running task where another one has asked for it.
    pub(in crate::kernel) fn enter_wanted_stop(&mut self) {
        let tracee = self.task_mut().tracee.as_deref_mut();
        if let Some(stop) = tracee.and_then(|tracee| tracee.wanted.take())
            && !self.is_held()
        {
            self.stop_here(stop);
        }
    }

    /// Stops a task that has left its vCPU before it has seen that another one has asked for it: it waits in
    /// a system call, or is ready.
    pub(in crate::kernel) fn stop_left(&mut self, tid: u32) {
        if !self.tracing.has_begun {
            return;
        }
        let tracee = self.tracee_mut(tid);
        if let Some(stop) = tracee.and_then(|tracee| tracee.wanted.take()) {
            self.stop_tracee(tid, stop);
        }
    }

    /// Stops the running task with a signal that it is about to receive. Returns whether it must not
    /// receive it now.
    pub(in crate::kernel) fn stop_with_signal(&mut self) -> bool {
        if self.task().tracee.is_none() {
            return false;
        }
        if self.is_held() {
            self.kick_self();
            return true;
        }
        let Some(signal) = self.signals().next_info().map(|info| info.signal()) else {
            return false;
        };
        let Some(tracee) = self.task_mut().tracee.as_deref_mut() else {
            return false;
        };
        let passes = tracee.passes.take_if(|passed| *passed == signal);
        if signal == SIGKILL || passes.is_some() {
            return false;
        }
        let Some(info) = self.signals().take(bit(signal)) else {
            return false;
        };
        let stop = Stop::new(Kind::Signal, signal.into(), 0);
        self.stop_here(Stop { info, ..stop });
        true
    }

    /// Stops the tracees of the running process, which a signal stops ("Group-stop").
    pub(in crate::kernel) fn stop_tracees_of_group(&mut self, signal: u8) {
        let (own, pid) = (self.task().tid, self.task().pid);
        for tid in self.threads(pid) {
            let Some(tracee) = self.tracee_mut(tid) else {
                continue;
            };
            let event = match tracee.is_seized {
                true => PTRACE_EVENT_STOP << 8,
                false => 0,
            };
            let stop = Stop::new(Kind::Group, event | u32::from(signal), 0);
            if tid == own {
                self.stop_here(stop);
            } else if tracee.is_stopped() {
                tracee.next.push_back(stop);
            } else {
                self.stop_soon(tid, stop);
            }
        }
    }

    /// Stops a task again that listens, because its tracer interrupts it (the same stop) or its process
    /// continues.
    pub(super) fn stop_listening(&mut self, tid: u32, continues: bool) {
        if let Some(tracee) = self.tracee_mut(tid)
            && core::mem::take(&mut tracee.listens)
            && let Some(last) = tracee.stop.take()
        {
            let stop = match continues {
                true => Stop::of_event(PTRACE_EVENT_STOP, 0),
                false => Stop {
                    is_new: true,
                    ..last
                },
            };
            self.stop_tracee(tid, stop);
        }
    }

    /// Stops the threads of a process that were seized, because it receives `SIGCONT`, whatever it does: those
    /// that listen stop again.
    pub(in crate::kernel) fn stop_with_continuation(&mut self, pid: u32) {
        if !self.tracing.has_begun {
            return;
        }
        for tid in self.threads(pid) {
            let stop = Stop::of_event(PTRACE_EVENT_STOP, 0);
            if let Some(tracee) = self.tracee_mut(tid) {
                tracee.next.retain(|stop| stop.kind != Kind::Group);
                tracee.wanted.take_if(|stop| stop.kind == Kind::Group);
            }
            match self.tracee_mut(tid) {
                Some(tracee) if !tracee.is_seized => {}
                Some(tracee) if tracee.listens => self.stop_listening(tid, true),
                Some(tracee) if tracee.is_stopped() => tracee.continue_later(stop),
                Some(tracee) if tracee.wanted.is_some() => {}
                Some(_) => self.stop_soon(tid, stop),
                None => {}
            }
        }
    }

    /// Whether the parent of the running process traces the running task.
    pub(in crate::kernel) fn is_traced_by_parent(&self) -> bool {
        let tracee = self.task().tracee.as_deref();
        tracee.is_some_and(|tracee| tracee.process() == self.process().parent)
    }

    /// Lets a task run that was stopped, because it is killed.
    pub(in crate::kernel) fn forget_stop(&mut self, tid: u32) {
        if let Some(tracee) = self.tracee_mut(tid) {
            tracee.wanted = None;
            tracee.listens = false;
            tracee.next.clear();
            if tracee.stop.take().is_some() {
                self.release_suspended();
            }
        }
    }

    fn stop_of_call(&self, kind: Kind) -> Option<Stop> {
        let tracee = self.task().tracee.as_deref()?;
        let mark = match tracee.has(PTRACE_O_TRACESYSGOOD) {
            true => SYSTEM_CALL,
            false => 0,
        };
        let message = match kind {
            Kind::Entry => PTRACE_EVENTMSG_SYSCALL_ENTRY,
            _ => PTRACE_EVENTMSG_SYSCALL_EXIT,
        };
        let stop = Stop::new(kind, u32::from(SIGTRAP) | mark, message);
        (tracee.mode == Mode::SystemCall).then_some(stop)
    }

    /// Stops at the start of a system call, behind its `ecall`. Returns whether it did: then the call
    /// begins when the task continues.
    pub(in crate::kernel) fn stop_at_call(&mut self) -> bool {
        let tracee = self.task().tracee.as_deref();
        if tracee.is_none_or(|tracee| tracee.call != Call::Outside) {
            return false;
        }
        let stop = self.stop_of_call(Kind::Entry);
        if let Some(stop) = stop {
            self.stop_in_call(Call::Begun, stop);
        }
        stop.is_some()
    }

    /// Stops a call because a filter asks the tracer, if the tracer wants that. Returns whether it did:
    /// then the call begins again when the task continues.
    pub(in crate::kernel) fn stop_for_filter(&mut self, data: u16) -> bool {
        let tracee = self.task().tracee.as_deref();
        let is_wanted = tracee.is_some_and(|tracee| tracee.has(PTRACE_O_TRACESECCOMP));
        if is_wanted {
            let stop = Stop::of_event(PTRACE_EVENT_SECCOMP, data.into());
            self.stop_in_call(Call::Asked, stop);
        }
        is_wanted
    }

    /// Stops a call before it is served.
    fn stop_in_call(&mut self, call: fn(u64) -> Call, stop: Stop) {
        let hart = self.hart();
        let call = call(hart.x(A0));
        // As on Linux, the result before the call is served.
        hart.set_x(A0, Errno::ENOSYS.as_result());
        if let Some(tracee) = self.task_mut().tracee.as_deref_mut() {
            tracee.call = call;
        }
        self.stop_here(stop);
    }

    /// Whether the tracer was told that the running task is to end.
    pub(in crate::kernel) fn has_told_end(&self) -> bool {
        let tracee = self.task().tracee.as_deref();
        tracee.is_some_and(|tracee| tracee.ends)
    }

    /// Stops before a task ends by itself, if its tracer wants that. The call begins again.
    pub(in crate::kernel) fn stops_at_exit(&mut self, number: u64) -> bool {
        let hart = self.hart();
        let Some(tracee) = self.task_mut().tracee.as_deref_mut() else {
            return false;
        };
        let is_exit = matches!(number, nr::exit | nr::exit_group);
        if !is_exit || !tracee.has(PTRACE_O_TRACEEXIT) || core::mem::replace(&mut tracee.ends, true)
        {
            return false;
        }
        let status = u64::from(low_u8(hart.x(A0))) << 8;
        hart.pc.set(hart.pc.get().wrapping_sub(ECALL_LENGTH));
        self.stop_here(Stop::of_event(PTRACE_EVENT_EXIT, status));
        true
    }

    /// Stops before a signal ends the running task, if its tracer wants that. Returns whether it did.
    pub(in crate::kernel) fn stop_at_end_by(&mut self, info: SigInfo) -> bool {
        let signal = info.signal();
        let task = self.task_mut();
        let Some(tracee) = task.tracee.as_deref_mut() else {
            return false;
        };
        if !tracee.has(PTRACE_O_TRACEEXIT) || core::mem::replace(&mut tracee.ends, true) {
            return false;
        }
        tracee.passes = Some(signal);
        task.signals.push_front(info);
        self.stop_here(Stop::of_event(PTRACE_EVENT_EXIT, signal.into()));
        true
    }

    /// Serves the call at whose start the running task has stopped, now that it continues.
    pub(in crate::kernel) fn resume_traced_call(&mut self) -> Option<Control> {
        let tracee = self.task().tracee.as_deref()?;
        let argument = tracee.first_argument()?;
        if self.is_held() {
            self.suspend();
            return Some(Control::Restart);
        }
        let is_killed = self.signals().pending() & bit(SIGKILL) != 0;
        let number = self.hart().x(A7);
        let task = self.task_mut();
        if let Some(tracee) = task.tracee.as_deref_mut() {
            task.is_call_allowed = tracee.was_asked();
            tracee.call = Call::Served;
        }
        if is_killed {
            self.kick_self();
            return None;
        }
        if number >= LIMIT as u64 {
            // The tracer has replaced the call: `a0` has its result.
            let task = self.task_mut();
            task.is_call_allowed = false;
            task.retry = None;
            self.stop_at_return();
            self.kick_self();
            return None;
        }
        let hart = self.hart();
        hart.set_x(A0, argument);
        hart.pc.set(hart.pc.get().wrapping_sub(ECALL_LENGTH));
        Some(self.system_call())
    }

    /// Stops at the end of a system call.
    pub(in crate::kernel) fn stop_at_return(&mut self) {
        if matches!(self.control, Control::End(_)) {
            return;
        }
        if let Some(tracee) = self.task_mut().tracee.as_deref_mut() {
            tracee.call = Call::Outside;
        }
        if let Some(stop) = self.stop_of_call(Kind::Return) {
            self.stop_here(stop);
        }
    }

    /// Stops after a single step. Returns whether the running task is traced.
    pub(in crate::kernel) fn stop_after_step(&mut self) -> bool {
        if self
            .task()
            .tracee
            .as_deref()
            .is_none_or(|tracee| tracee.mode != Mode::Step)
        {
            return false;
        }
        let info = SigInfo::fault(SIGTRAP, TRAP_TRACE, self.hart().pc.get());
        let stop = Stop::new(Kind::Signal, SIGTRAP.into(), 0);
        self.stop_here(Stop { info, ..stop });
        true
    }

    /// Stops the running task, which has made `child`, and makes its tracer trace that, if the options
    /// say so.
    pub(crate) fn stop_after_clone(&mut self, child: u32, args: &CloneArgs) {
        let Some(tracee) = self.task().tracee.as_deref() else {
            return;
        };
        let event = match args.flags & CLONE_VFORK != 0 {
            true => PTRACE_EVENT_VFORK,
            false if args.exit_signal == u64::from(SIGCHLD) => PTRACE_EVENT_FORK,
            false => PTRACE_EVENT_CLONE,
        };
        let is_told = tracee.has(1 << event) && args.flags & CLONE_UNTRACED == 0;
        if is_told || args.flags & CLONE_PTRACE != 0 {
            let mut of_child = Tracee::new(tracee.tracer, tracee.is_seized, tracee.options);
            let is_seized = tracee.is_seized;
            of_child.mode = Mode::Continue;
            if let Some(task) = self.tasks.get_mut(child) {
                task.tracee = Some(Box::new(of_child));
                task.signals.set_traced(true);
                if !is_seized {
                    task.signals
                        .push_front(SigInfo::sent(SIGSTOP, SI_USER, 0, 0));
                }
            }
            if is_seized {
                self.stop_tracee(child, Stop::of_event(PTRACE_EVENT_STOP, 0));
            }
        }
        if is_told {
            self.stop_here(Stop::of_event(event, child.into()));
        }
    }

    /// Stops a task whose child by `vfork` has released the memory.
    pub(in crate::kernel) fn stop_after_vfork(&mut self, tid: u32) {
        let Some(tracee) = self.tasks.get(tid).and_then(|task| task.tracee.as_deref()) else {
            return;
        };
        if tracee.has(PTRACE_O_TRACEVFORKDONE) {
            let child = self.task().pid.into();
            self.stop_tracee(tid, Stop::of_event(PTRACE_EVENT_VFORK_DONE, child));
        }
    }

    /// Stops the running task, which executes another program and had the number `former`.
    pub(crate) fn stop_after_exec(&mut self, former: u64) {
        let tid = self.task().tid;
        let Some(tracee) = self.task_mut().tracee.as_deref_mut() else {
            return;
        };
        let is_in_call = core::mem::replace(&mut tracee.call, Call::Outside) == Call::Served;
        if tracee.has(PTRACE_O_TRACEEXEC) {
            self.stop_here(Stop::of_event(PTRACE_EVENT_EXEC, former));
        } else if !tracee.is_seized {
            self.signal_thread(tid, SigInfo::sent(SIGTRAP, SI_USER, 0, 0));
        }
        let space = self.current.space;
        self.use_precise_code(space);
        if is_in_call && let Some(stop) = self.stop_of_call(Kind::Return) {
            self.stop_here(stop);
        }
        self.kick_self();
    }
}
