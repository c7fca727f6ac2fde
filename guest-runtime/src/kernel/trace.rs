//! The trace of system calls, signals and exits (`--strace`).

use crate::kernel::Kernel;
use crate::kernel::call::ECALL_LENGTH;
use crate::kernel::exit::report_code;
use crate::kernel::process::Status;
use crate::kernel::signals::SigInfo;
use crate::strace;
use alloc::boxed::Box;
use alloc::format;
use hartline_abi::boot::strace::{STACKS, TIMELINE};
use hartline_abi::call::{Operation, stack_request};
use hartline_linux::errno::Errno;

/// The stream on which the trace leaves the VM.
pub(super) const STREAM: u32 = 3;

impl Kernel {
    /// Records the start of a call.
    pub(super) fn trace_entry(&mut self, number: u64, arguments: &[u64; 6]) {
        if self.task().retry.is_some() {
            return;
        }
        if self.traces == TIMELINE {
            self.record_call(number, arguments);
            return;
        }
        self.find_stack();
        let pending = strace::begin(self.memory_mut(), number, arguments);
        match pending.is_last() {
            true => {
                let line = pending.line(self.memory_mut(), None);
                self.trace_line(&line);
                self.write_stack();
            }
            false => self.task_mut().trace = Some(Box::new(pending)),
        }
    }

    /// Writes the line of a call that returns.
    pub(super) fn trace_exit(&mut self, result: Result<u64, Errno>) {
        if self.traces == TIMELINE {
            self.record_return(result);
        } else if let Some(pending) = self.task_mut().trace.take() {
            let line = pending.line(self.memory_mut(), Some(result));
            self.trace_line(&line);
            self.write_stack();
        }
    }

    /// Makes the VMM find the call stack of a call that begins: the call may change the registers and
    /// the memory.
    fn find_stack(&mut self) {
        if self.traces != STACKS {
            return;
        }
        let pc = self.hart().pc.get().wrapping_sub(ECALL_LENGTH);
        self.request_stack(stack_request::FIND, pc);
    }

    /// Makes the VMM find the call stack of the running task for a profile.
    pub(crate) fn sample_stack(&mut self) {
        let pc = self.hart().pc.get();
        self.request_stack(stack_request::SAMPLE, pc);
    }

    fn request_stack(&mut self, request: u64, pc: u64) {
        report_code(self);
        let mut host = self.host;
        let (words, _) = host.call_data().as_chunks_mut::<8>();
        for (word, x) in words.iter_mut().zip(self.hart().x.get()) {
            *word = x.to_le_bytes();
        }
        let mut args = [
            self.task().tid.into(),
            request,
            pc,
            self.memory().table_address(),
            self.process().signals.trampoline,
            0,
        ];
        // A stack that the VMM refuses to find is missing.
        let _ = host.call(Operation::Stack, &mut args);
    }

    /// Makes the VMM write the call stack below the line of its call.
    fn write_stack(&mut self) {
        if self.traces != STACKS {
            return;
        }
        let mut args = [self.task().tid.into(), stack_request::WRITE, 0, 0, 0, 0];
        let _ = self.host.call(Operation::Stack, &mut args);
    }

    /// Writes the line of a signal that is delivered.
    pub(super) fn trace_signal(&mut self, info: &SigInfo) {
        match self.traces {
            TIMELINE => self.record_signal(info.signal()),
            _ => self.trace_line(&strace::signal(info.signal(), &info.describe())),
        }
    }

    /// Writes the line of the running process's end.
    pub(super) fn trace_end(&mut self, status: Status) {
        match status {
            _ if self.traces == TIMELINE => self.record_end(),
            Status::Exited(status) => self.trace_line(&strace::exited(status)),
            Status::Signaled { signal, has_core } => {
                self.trace_line(&strace::killed(signal, has_core));
            }
            Status::Stopped(_) | Status::Trapped(_) | Status::Continued => {}
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
