//! Tasks that trace others (`ptrace`): who traces whom, and how stopped tasks continue.
//!
//! A stopped tracee is *held* as a debugger outside of the VM holds tasks ([`super::debug`]): it is in
//! no queue but that of suspended tasks, or waits in its system call, and its registers are in RAM.

mod stops;

use crate::kernel::Kernel;
use crate::kernel::process::Status;
use crate::kernel::signals::{SigInfo, UNBLOCKABLE, bit};
use crate::kernel::task::Task;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hartline_linux::capability::CAP_SYS_PTRACE;
use hartline_linux::errno::Errno;
use hartline_linux::ptrace::{
    PTRACE_EVENT_SECCOMP, PTRACE_EVENT_STOP, PTRACE_O_EXITKILL, PTRACE_SYSCALL_INFO_ENTRY,
    PTRACE_SYSCALL_INFO_EXIT, PTRACE_SYSCALL_INFO_NONE, PTRACE_SYSCALL_INFO_SECCOMP,
};
use hartline_linux::siginfo::{SI_KERNEL, SI_USER};
use hartline_linux::signal::{SIGKILL, SIGSTOP, SIGTRAP};

/// What the kernel knows of all tracing.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// A task has been traced since the start.
    pub has_begun: bool,
    /// Tracees that have ended, for which their tracers have not waited.
    pub ended: Vec<Ended>,
}

/// The end of a tracee that its tracer has not waited for as a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// The tracer's process.
    pub tracer: u32,
    pub tid: u32,
    pub uid: u32,
    pub group: u32,
    pub status: Status,
    /// The process that executes a program, and waits for its thread to be waited for.
    executing: Option<u32>,
}

/// A stop of a tracee.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    /// The signal, and the event from bit 8 on.
    pub code: u32,
    pub kind: Kind,
    pub info: SigInfo,
    /// The value for `PTRACE_GETEVENTMSG`.
    pub message: u64,
    /// The tracer has not waited for it.
    pub is_new: bool,
}

/// Kinds of stops (ptrace(2), "Stopped states").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Signal,
    Group,
    Event,
    Entry,
    Return,
}

/// How a tracee continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Continue,
    /// Up to the start or the end of a system call.
    SystemCall,
    /// For one instruction.
    Step,
}

/// The progress of a system call of a tracee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Outside,
    /// It has stopped at the start; its first argument.
    Begun(u64),
    /// It has stopped because a filter of `seccomp` asks the tracer; its first argument.
    Asked(u64),
    Served,
}

/// The state of a traced task.
#[derive(Debug)]
pub(crate) struct Tracee {
    /// The task that traces it, and the process of that.
    tracer: (u32, u32),
    /// By `PTRACE_SEIZE`.
    pub is_seized: bool,
    pub options: u64,
    pub stop: Option<Stop>,
    /// It stays in its stop, which the tracer does not use any more, until something happens
    /// (`PTRACE_LISTEN`).
    pub listens: bool,
    /// Stops that follow at once.
    next: VecDeque<Stop>,
    /// A stop at the next safepoint.
    wanted: Option<Stop>,
    mode: Mode,
    call: Call,
    pub message: u64,
    /// The signal that it receives without a stop.
    passes: Option<u8>,
    /// The tracer has been told that it is to end.
    ends: bool,
}

impl Tracee {
    fn new(tracer: (u32, u32), is_seized: bool, options: u64) -> Tracee {
        Tracee {
            tracer,
            is_seized,
            options,
            stop: None,
            listens: false,
            next: VecDeque::new(),
            wanted: None,
            mode: Mode::Continue,
            call: Call::Outside,
            message: 0,
            passes: None,
            ends: false,
        }
    }

    /// Whether it stands still until its tracer continues it.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// The task that traces it.
    pub fn tracer_task(&self) -> u32 {
        self.tracer.0
    }

    /// The process that traces it.
    pub fn process(&self) -> u32 {
        self.tracer.1
    }

    /// The first argument of the call at whose start it stands.
    pub fn first_argument(&self) -> Option<u64> {
        match self.call {
            Call::Begun(argument) | Call::Asked(argument) => Some(argument),
            _ => None,
        }
    }

    /// Replaces the first argument of the call at whose start it stands.
    pub fn set_first_argument(&mut self, value: u64) {
        if let Call::Begun(argument) | Call::Asked(argument) = &mut self.call {
            *argument = value;
        }
    }

    /// Adds the stop that tells that its process continues, once, behind the one in which it stands.
    fn continue_later(&mut self, stop: Stop) {
        if !self.next.iter().any(Stop::is_continuation) {
            self.next.push_back(stop);
        }
    }

    /// Whether it stands because a filter asks its tracer.
    fn was_asked(&self) -> bool {
        matches!(self.call, Call::Asked(_))
    }

    fn has(&self, option: u64) -> bool {
        self.options & option != 0
    }
}

impl Stop {
    fn new(kind: Kind, code: u32, message: u64) -> Stop {
        let signal = crate::convert::low_u8(u64::from(code) & 0x7f);
        // `si_code` of a stop that no signal caused is its code.
        let info = match kind {
            Kind::Signal => SigInfo::sent(signal, SI_USER, 0, 0),
            _ => SigInfo::sent(signal, code.cast_signed(), 0, 0),
        };
        Stop {
            code,
            kind,
            info,
            message,
            is_new: true,
        }
    }

    fn of_event(event: u32, message: u64) -> Stop {
        Stop::new(Kind::Event, event << 8 | u32::from(SIGTRAP), message)
    }

    /// The kind of [`PtraceSyscallInfo`](hartline_linux::ptrace::PtraceSyscallInfo). Stops at calls have one
    /// with `PTRACE_O_TRACESYSGOOD` only.
    pub fn call_kind(&self) -> u8 {
        let is_marked = self.code & stops::SYSTEM_CALL != 0;
        match self.kind {
            Kind::Entry if is_marked => PTRACE_SYSCALL_INFO_ENTRY,
            Kind::Return if is_marked => PTRACE_SYSCALL_INFO_EXIT,
            Kind::Event if self.code >> 8 == PTRACE_EVENT_SECCOMP => PTRACE_SYSCALL_INFO_SECCOMP,
            _ => PTRACE_SYSCALL_INFO_NONE,
        }
    }

    /// Whether it tells that the process continues, or was interrupted.
    fn is_continuation(&self) -> bool {
        self.kind == Kind::Event && self.code >> 8 == PTRACE_EVENT_STOP
    }
}

impl Kernel {
    fn tracee_mut(&mut self, tid: u32) -> Option<&mut Tracee> {
        self.tasks.get_mut(tid)?.tracee.as_deref_mut()
    }

    /// Makes `tracer` trace a task.
    ///
    /// # Errors
    /// `EPERM`: it is traced.
    pub(crate) fn begin_tracing(
        &mut self,
        tid: u32,
        tracer: (u32, u32),
        seized: Option<u64>,
    ) -> Result<(), Errno> {
        let task = self.tasks.get_mut(tid).ok_or(Errno::ESRCH)?;
        if task.tracee.is_some() {
            return Err(Errno::EPERM);
        }
        let tracee = Tracee::new(tracer, seized.is_some(), seized.unwrap_or(0));
        task.tracee = Some(Box::new(tracee));
        task.signals.set_traced(true);
        let space = self.processes[task.process].space;
        self.tracing.has_begun = true;
        self.update_watches();
        self.use_precise_code(space);
        Ok(())
    }

    /// Whether the running task has a tracer that must not control a program with more rights
    /// (execve(2)).
    pub(crate) fn is_traced_by_user(&self) -> bool {
        let tracee = self.task().tracee.as_deref();
        tracee.is_some_and(|tracee| {
            let tracer = self.processes.get(tracee.process());
            tracer.is_none_or(|tracer| !tracer.has(CAP_SYS_PTRACE))
        })
    }

    /// Attaches to a task with a stop (`PTRACE_ATTACH`).
    pub(crate) fn stop_attached(&mut self, tid: u32) {
        self.signal_thread(tid, SigInfo::sent(SIGSTOP, SI_KERNEL, 0, 0));
    }

    /// Stops a task without a signal (`PTRACE_INTERRUPT`).
    pub(crate) fn interrupt_tracee(&mut self, tid: u32) {
        match self.tracee_mut(tid) {
            Some(tracee) if tracee.listens => self.stop_listening(tid, false),
            Some(tracee) if !tracee.is_stopped() => {
                self.stop_soon(tid, Stop::of_event(PTRACE_EVENT_STOP, 0));
            }
            _ => {}
        }
    }

    /// Stops a tracee that has not stopped, at its next safepoint.
    fn stop_soon(&mut self, tid: u32, stop: Stop) {
        let Some(handle) = self.tasks.handle(tid) else {
            return;
        };
        let runs = self.cpus.iter().any(|cpu| cpu.current.task == handle);
        match (runs, self.tracee_mut(tid)) {
            (true, Some(tracee)) => {
                tracee.wanted = Some(stop);
                self.ask_task(handle);
            }
            // It waits, or is ready: its registers are in RAM.
            _ => self.stop_tracee(tid, stop),
        }
    }

    /// Lets a tracee listen in its stop. If its process has continued meanwhile, it stops again at once.
    pub(crate) fn listen(&mut self, tid: u32) {
        if let Some(tracee) = self.tracee_mut(tid) {
            tracee.listens = true;
            let before = tracee.next.len();
            tracee.next.retain(|stop| !stop.is_continuation());
            if tracee.next.len() < before {
                self.stop_listening(tid, true);
            }
        }
    }

    /// Lets a stopped task continue, with a signal if that is not 0.
    pub(crate) fn continue_tracee(&mut self, tid: u32, mode: Mode, signal: u8) {
        let Some(tracee) = self.tracee_mut(tid) else {
            return;
        };
        let (tracer, Some(stop)) = (tracee.tracer.1, tracee.stop.take()) else {
            return;
        };
        tracee.mode = mode;
        let next = tracee.next.pop_front();
        let next = next.filter(|stop| stop.kind != Kind::Return || mode == Mode::SystemCall);
        if stop.kind == Kind::Signal {
            self.inject(tid, tracer, (signal, stop.info));
        } else if signal != 0 && matches!(stop.kind, Kind::Entry | Kind::Return) {
            let uid = self
                .processes
                .get(tracer)
                .map_or(0, |process| process.uid());
            self.signal_thread(tid, SigInfo::sent(signal, SI_USER, tracer, uid));
        }
        if let Some(next) = next {
            return self.stop_tracee(tid, next);
        }
        if let Some(task) = self.tasks.get_mut(tid) {
            task.debug.step_once(mode == Mode::Step);
        }
        self.release_suspended();
    }

    /// Makes a task receive the signal with which it stopped, another one, or none.
    fn inject(&mut self, tid: u32, tracer: u32, (signal, info): (u8, SigInfo)) {
        let uid = self
            .processes
            .get(tracer)
            .map_or(0, |process| process.uid());
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let info = match signal == info.signal() {
            true => info,
            false => {
                task.fault = None;
                SigInfo::sent(signal, SI_USER, tracer, uid)
            }
        };
        if signal == 0 {
            return;
        }
        let is_blocked = task.signals.blocked() & bit(signal) & !UNBLOCKABLE != 0;
        if let Some(tracee) = task.tracee.as_deref_mut()
            && !is_blocked
        {
            tracee.passes = Some(signal);
        }
        task.signals.push_front(info);
    }

    /// Ends the tracing of a task, which goes on with `signal`.
    pub(crate) fn detach_tracee(&mut self, tid: u32, signal: u8) {
        if let Some(tracee) = self.tracee_mut(tid) {
            tracee.next.clear();
            tracee.wanted = None;
        }
        self.continue_tracee(tid, Mode::Continue, signal);
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        // A call at whose start it stands begins again.
        let argument = task.tracee.as_deref().and_then(Tracee::first_argument);
        task.is_call_allowed = task.tracee.as_deref().is_some_and(Tracee::was_asked);
        task.tracee = None;
        task.signals.set_traced(false);
        task.debug.step_once(false);
        if let Some(argument) = argument
            && let Some(mut registers) = self.stopped_registers(tid)
        {
            registers.x[10] = argument;
            registers.pc = registers.pc.wrapping_sub(crate::kernel::call::ECALL_LENGTH);
            if let Some(task) = self.tasks.get_mut(tid) {
                task.registers = Some(registers);
            }
        }
        self.update_watches();
        self.release_suspended();
    }

    /// Ends all tracing by and of the running task, which ends; `is_last`: its process ends too. Its tracer
    /// can wait for the end. Its own tracees continue, or are killed by `PTRACE_O_EXITKILL`.
    pub(super) fn end_tracing(&mut self, status: Status, is_last: bool) {
        if !self.tracing.has_begun {
            return;
        }
        let (tid, pid, parent) = (self.task().tid, self.task().pid, self.process().parent);
        self.tell_ends(status, None, |task, tracer| match is_last {
            // A parent waits for the process.
            true => task.pid == pid && (task.tid != pid || tracer != parent),
            // The first thread of a process ends with the process.
            false => task.tid == tid && task.tid != pid,
        });
        self.leave_tracees(|tracer| match is_last {
            true => tracer.1 == pid,
            false => tracer.0 == tid,
        });
        if is_last {
            let (own, others) = self
                .tracing
                .ended
                .drain(..)
                .partition(|end| end.tracer == pid);
            self.tracing.ended = others;
            let own: Vec<Ended> = own;
            for end in own {
                self.hand_to_parent(end);
            }
        }
    }

    /// Ends all tracing by and of the other threads of the running process, which end because the running
    /// task executes a program, and gets the number of the process.
    pub(super) fn end_tracing_of_others(&mut self) {
        if !self.tracing.has_begun {
            return;
        }
        let (own, pid) = (self.task().tid, self.task().pid);
        self.tell_ends(Status::Exited(0), Some(pid), |task, _| {
            task.pid == pid && task.tid != own && task.tid != pid
        });
        self.leave_tracees(|tracer| tracer.1 == pid && tracer.0 != own);
        let tracees = self
            .tasks
            .iter_mut()
            .filter_map(|task| task.tracee.as_deref_mut());
        for tracee in tracees.filter(|tracee| tracee.tracer.0 == own) {
            tracee.tracer.0 = pid;
        }
    }

    /// Tells the tracers of the tracees that `ends` selects, by task and tracer's process, of their end.
    fn tell_ends(
        &mut self,
        status: Status,
        executing: Option<u32>,
        ends: impl Fn(&Task, u32) -> bool,
    ) {
        let (uid, group) = (self.process().uid(), self.process().group);
        let ended = self.tasks().filter_map(|task| {
            let tracer = task.tracee.as_deref()?.process();
            ends(task, tracer).then_some(Ended {
                tracer,
                tid: task.tid,
                uid,
                group,
                status,
                executing,
            })
        });
        for end in ended.collect::<Vec<_>>() {
            self.tracing.ended.push(end);
            self.tell_tracer(end.tracer, end.status.info(end.tid, uid));
        }
    }

    /// Ends the tracing by tracers that `ends` selects, by task and process. Their tracees continue, or are
    /// killed by `PTRACE_O_EXITKILL`.
    fn leave_tracees(&mut self, ends: impl Fn((u32, u32)) -> bool) {
        let tracees = self.tasks().filter_map(|task| {
            let tracee = task.tracee.as_deref();
            let tracee = tracee.filter(|tracee| ends(tracee.tracer))?;
            Some((task.tid, tracee.has(PTRACE_O_EXITKILL)))
        });
        for (tracee, is_killed) in tracees.collect::<Vec<_>>() {
            self.detach_tracee(tracee, 0);
            if is_killed {
                self.signal_thread(tracee, SigInfo::sent(SIGKILL, SI_KERNEL, 0, 0));
            }
        }
    }

    /// Whether tracers have yet to wait for threads of the running process that its execution of a program
    /// has ended.
    pub(crate) fn has_awaited_threads(&self) -> bool {
        let pid = self.task().pid;
        let mut ended = self.tracing.ended.iter();
        ended.any(|end| end.executing == Some(pid))
    }

    /// Tells the parent of a process of its end, or the process that executes a program of the end of its
    /// thread, for which the tracer has waited.
    pub(crate) fn hand_to_parent(&mut self, end: Ended) {
        if let Some(pid) = end.executing {
            self.wake_parent(pid);
        }
        let is_zombie = self
            .processes
            .get(end.tid)
            .is_some_and(|process| process.is_zombie());
        if is_zombie {
            self.tell_parent(end.tid, end.status);
        }
    }

    /// Whether a tracer has yet to wait for a process that has ended, before its parent may.
    pub(crate) fn is_awaited_by_tracer(&self, pid: u32) -> bool {
        self.tracing.ended.iter().any(|end| end.tid == pid)
    }
}
