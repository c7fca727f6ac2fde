//! Core dumps: the memory and the threads of a process that a signal ends, as an ELF file for
//! debuggers (core(5)).
//!
//! The threads stand still while the file is written. A thread that runs on another vCPU has its
//! registers in host registers until its next safepoint, so the thread with the signal waits until the
//! others have been suspended there.

mod guest_file;
mod host_file;
mod memory;
mod notes;

pub(crate) use host_file::HostFile;

use crate::kernel::Kernel;
use crate::kernel::exit::End;
use crate::kernel::process::State;
use crate::kernel::signals::SigInfo;
use crate::kernel::task::Registers;
use crate::mm::UserSlice;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::signal::{
    SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT, SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ,
};

/// A core dump that waits for the other threads of its process.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// The thread that got the signal.
    pub tid: u32,
    /// The end of the process.
    pub end: End,
}

/// A thread in a core dump.
struct Thread {
    tid: u32,
    registers: Registers,
    /// Pending and blocked signals.
    signals: [u64; 2],
}

/// A file that a core dump is written to.
trait Output {
    /// Appends bytes.
    fn put(&mut self, bytes: UserSlice<'_>) -> Result<(), Errno>;
    /// Appends zeros, which need no space.
    fn skip(&mut self, length: u64) -> Result<(), Errno>;
    /// Writes what has collected.
    fn finish(&mut self) -> Result<(), Errno>;
}

/// Whether the default action of a signal is to write a core dump.
fn is_dumped(signal: u8) -> bool {
    matches!(
        signal,
        SIGQUIT
            | SIGILL
            | SIGTRAP
            | SIGABRT
            | SIGBUS
            | SIGFPE
            | SIGSEGV
            | SIGSYS
            | SIGXCPU
            | SIGXFSZ
    )
}

impl Kernel {
    /// Writes the core dump of the running process if it ends by such a signal, and the host or the
    /// process itself wants one. Returns whether the process has left one in a file of its own, or
    /// `None`: the end must wait for other threads, and another task runs.
    pub(super) fn dump_core(&mut self, end: &End) -> Option<bool> {
        let limit = self.core_limit();
        if self.core.is_none() && limit.is_none() {
            return Some(false);
        }
        let (signal, info) = match end {
            // The registers are not known.
            End::Fault(fault) if fault.host.is_some() => return Some(false),
            End::Fault(fault) => {
                let info = SigInfo::fault(fault.signal, fault.code, fault.address);
                (fault.signal, info)
            }
            End::Signaled(signal) => {
                let sent = self.task().fatal.filter(|info| info.signal() == *signal);
                let info = sent.unwrap_or(SigInfo::fault(*signal, 0, 0));
                (*signal, info)
            }
            End::Exited(_) | End::OutOfMemory => return Some(false),
        };
        if !is_dumped(signal) {
            return Some(false);
        }
        if self.process_runs_elsewhere() {
            self.process_mut().dump = Some(Pending {
                tid: self.task().tid,
                end: end.clone(),
            });
            self.process_mut().state = State::Stopped;
            self.ask_process();
            self.suspend();
            return None;
        }
        self.process_mut().dump = None;
        let contents = self.contents_of_core(&info, &self.threads_of_core());
        // The host has one file.
        if let Some(mut core) = self.core.take() {
            let done = contents.write(&mut core, self.memory());
            // The host reports its errors.
            let _ = done.and_then(|()| core.finish());
        }
        Some(limit.is_some_and(|limit| self.leave_core(&contents, limit)))
    }

    /// Whether this task was suspended for a core dump, or continues to write one: then the result is
    /// the end of the process.
    pub(super) fn serve_dump(&mut self) -> Option<End> {
        let own = self.task().tid;
        let pending = self.process().dump.as_ref()?;
        (pending.tid == own).then(|| pending.end.clone())
    }

    /// Lets the thread of a core dump continue if no other vCPU runs a thread of the process.
    pub(super) fn wake_dump(&mut self, pid: u32) {
        let Some(process) = self.processes.get(pid) else {
            return;
        };
        let Some(tid) = process.dump.as_ref().map(|pending| pending.tid) else {
            return;
        };
        let runs = self
            .cpus
            .iter()
            .any(|cpu| self.tasks[cpu.current.task].pid == pid);
        if !runs {
            self.resume_first(tid);
        }
    }

    /// Whether a task writes the core dump of its process, which is stopped for it.
    pub(super) fn writes_core(&self, tid: u32) -> bool {
        let process = self
            .tasks
            .get(tid)
            .map(|task| &self.processes[task.process]);
        let pending = process.and_then(|process| process.dump.as_ref());
        pending.is_some_and(|pending| pending.tid == tid)
    }

    /// Whether another vCPU runs a thread of the running process.
    fn process_runs_elsewhere(&self) -> bool {
        let process = self.current.process;
        let mut others = self.cpus.iter().enumerate();
        others.any(|(number, cpu)| number != self.cpu && cpu.current.process == process)
    }

    /// The threads of the running process, the running one first.
    fn threads_of_core(&self) -> Vec<Thread> {
        let own = self.task();
        let process = self.process();
        let thread = |task: &crate::kernel::task::Task, registers| Thread {
            tid: task.tid,
            registers,
            signals: [
                task.signals.pending() | process.signals.pending(),
                task.signals.blocked(),
            ],
        };
        let mut threads = Vec::from([thread(own, Registers::save(self.hart()))]);
        let others = self
            .tasks()
            .filter(|task| task.pid == own.pid && task.tid != own.tid);
        threads.extend(others.filter_map(|task| Some(thread(task, task.registers.clone()?))));
        threads
    }
}
