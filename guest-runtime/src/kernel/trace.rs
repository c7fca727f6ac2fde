//! The trace of system calls, signals and exits (`--strace`).

use crate::kernel::Kernel;
use crate::kernel::process::Status;
use crate::kernel::signals::SigInfo;
use crate::strace;
use alloc::boxed::Box;
use alloc::format;
use hartline_linux::errno::Errno;

/// The stream on which the trace leaves the VM.
const STREAM: u32 = 3;

impl Kernel {
    /// Records the start of a call.
    pub(super) fn trace_entry(&mut self, number: u64, arguments: &[u64; 6]) {
        if self.task().retry.is_some() {
            return;
        }
        let pending = strace::begin(self.memory_mut(), number, arguments);
        match pending.is_last() {
            true => {
                let line = pending.line(self.memory_mut(), None);
                self.trace_line(&line);
            }
            false => self.task_mut().trace = Some(Box::new(pending)),
        }
    }

    /// Writes the line of a call that returns.
    pub(super) fn trace_exit(&mut self, result: Result<u64, Errno>) {
        if let Some(pending) = self.task_mut().trace.take() {
            let line = pending.line(self.memory_mut(), Some(result));
            self.trace_line(&line);
        }
    }

    /// Writes the line of a signal that is delivered.
    pub(super) fn trace_signal(&mut self, info: &SigInfo) {
        self.trace_line(&strace::signal(info.signal(), &info.describe()));
    }

    /// Writes the line of the running process's end.
    pub(super) fn trace_end(&mut self, status: Status) {
        match status {
            Status::Exited(status) => self.trace_line(&strace::exited(status)),
            Status::Signaled(signal) => self.trace_line(&strace::killed(signal)),
            Status::Stopped(_) | Status::Continued => {}
        }
    }

    fn trace_line(&mut self, line: &str) {
        let line = match self.is_alone() {
            true => format!("{line}\n"),
            false => format!("[pid {:5}] {line}\n", self.task().tid),
        };
        // The program runs on if the trace cannot be written.
        let _ = self.streams.write(STREAM, line.as_bytes());
    }
}
