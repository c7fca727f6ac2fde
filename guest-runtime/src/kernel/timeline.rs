//! Records for the time line of a run (`--trace`).

use crate::arch::clock;
use crate::kernel::Kernel;
use crate::kernel::scheduler::FIRST_IDLE;
use crate::kernel::trace::STREAM;
use hartline_abi::boot::strace::TIMELINE;
use hartline_abi::timeline::{Record, kind};
use hartline_linux::errno::Errno;

impl Kernel {
    /// Records the start of a call.
    pub(super) fn record_call(&mut self, number: u64, arguments: &[u64; 6]) {
        let mut words = [number; 7];
        words[1..].copy_from_slice(arguments);
        self.record(kind::CALL, words);
    }

    /// Records the result of a call.
    pub(super) fn record_return(&mut self, result: Result<u64, Errno>) {
        let value = result.unwrap_or_else(Errno::as_result);
        self.record(kind::RETURN, [value, 0, 0, 0, 0, 0, 0]);
    }

    /// Records a signal that is delivered.
    pub(super) fn record_signal(&mut self, signal: u8) {
        self.record(kind::SIGNAL, [signal.into(), 0, 0, 0, 0, 0, 0]);
    }

    /// Records the end of the running process.
    pub(super) fn record_end(&mut self) {
        self.record(kind::END, [0; 7]);
    }

    /// Records that this vCPU runs another task, if there is a time line.
    #[inline]
    pub(super) fn record_switch(&mut self) {
        if self.traces == TIMELINE {
            self.record(kind::SWITCH, [0; 7]);
        }
    }

    #[cold]
    fn record(&mut self, kind: u32, words: [u64; 7]) {
        let (task, name) = (self.task().tid, self.task().name);
        let record = Record {
            kind,
            cpu: u32::try_from(self.cpu).unwrap_or(u32::MAX),
            task: if task < FIRST_IDLE { task } else { 0 },
            process: self.process().pid,
            time: clock::monotonic(),
            name,
            words,
        };
        // The program runs on if the records cannot be written.
        let _ = self.streams.write(STREAM, &record.to_bytes()[..]);
    }
}
