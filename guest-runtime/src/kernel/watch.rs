//! Looking at system calls before they are served: the trace, and the filters of `seccomp`.

use crate::convert::low_u32;
use crate::kernel::call::ECALL_LENGTH;
use crate::kernel::exit::End;
use crate::kernel::process::Status;
use crate::kernel::signals::SigInfo;
use crate::kernel::{Control, Kernel};
use crate::seccomp::{Seccomp, Verdict};
use hartline_abi::boot::strace;
use hartline_linux::audit::AUDIT_ARCH_RISCV64;
use hartline_linux::errno::Errno;
use hartline_linux::seccomp::SeccompData;
use hartline_linux::signal::{SIGKILL, SIGSYS};

impl Kernel {
    /// Traces and filters a call, once. Returns how the program continues if the call is not to be
    /// served.
    #[cold]
    pub(super) fn watch(&mut self, number: u64, arguments: &[u64; 6]) -> Option<Control> {
        if self.stop_at_call() {
            return Some(Control::Restart);
        }
        if self.task().retry.is_some() || self.has_told_end() {
            return None;
        }
        let is_allowed = core::mem::take(&mut self.task_mut().is_call_allowed);
        if !is_allowed {
            if self.catch_call(number) {
                let hart = self.hart();
                hart.pc.set(hart.pc.get().wrapping_sub(ECALL_LENGTH));
                return Some(Control::Restart);
            }
            if self.traces != strace::OFF {
                self.trace_entry(number, arguments);
            }
        }
        let refused = match self.task().seccomp {
            Seccomp::Disabled => None,
            _ => self.filter(number, arguments, is_allowed),
        };
        refused.or_else(|| self.stops_at_exit(number).then_some(Control::Restart))
    }

    /// Lets the filters of the running task decide about a call, for which the tracer has been asked if
    /// `is_allowed`. Returns how the program continues if the call is not to be served.
    fn filter(&mut self, number: u64, arguments: &[u64; 6], is_allowed: bool) -> Option<Control> {
        let call = SeccompData {
            nr: low_u32(number),
            arch: AUDIT_ARCH_RISCV64,
            // As on Linux, the address after the call.
            instruction_pointer: self.hart().pc.get(),
            args: *arguments,
        };
        let verdict = self.task().seccomp.verdict(&call);
        Some(match verdict {
            Verdict::Allow => return None,
            Verdict::Trace(_) if is_allowed => return None,
            Verdict::Trace(data) => {
                if self.stop_for_filter(data) {
                    return Some(Control::Restart);
                }
                self.refuse(Err(Errno::ENOSYS))
            }
            Verdict::Fail(number) => self.refuse(Errno::check(-i64::from(number))),
            Verdict::Trap(data) => {
                // `a0` keeps the first argument.
                self.trace_exit(Ok(arguments[0]));
                self.stop_at_return();
                let location = (call.instruction_pointer, call.nr);
                self.signals().send_fault(SigInfo::refused(location, data));
                self.after_call()
            }
            Verdict::KillThread { .. } if self.process().threads > 1 => {
                self.end_thread(Status::Signaled {
                    signal: SIGSYS,
                    has_core: false,
                });
                self.serve_wakeups();
                Control::Restart
            }
            Verdict::KillThread { strict: true } => Control::End(End::Signaled(SIGKILL)),
            Verdict::KillThread { strict: false } | Verdict::KillProcess => {
                Control::End(End::Signaled(SIGSYS))
            }
        })
    }

    /// Ends a call that is not served.
    fn refuse(&mut self, result: Result<u64, Errno>) -> Control {
        self.trace_exit(result);
        self.set_result(result);
        self.stop_at_return();
        self.after_call()
    }
}
