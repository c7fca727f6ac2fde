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
        if self.stop_at_call(number) {
            return Some(Control::Restart);
        }
        if self.task().retry.is_some() {
            return None;
        }
        if self.catch_call(number) {
            let hart = self.hart();
            hart.pc.set(hart.pc.get().wrapping_sub(ECALL_LENGTH));
            return Some(Control::Restart);
        }
        if self.traces != strace::OFF {
            self.trace_entry(number, arguments);
        }
        if matches!(self.task().seccomp, Seccomp::Disabled) {
            return None;
        }
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
            Verdict::Fail(number) => {
                let result = Errno::check(-i64::from(number));
                self.trace_exit(result);
                self.set_result(result);
                self.after_call()
            }
            Verdict::Trap(data) => {
                // `a0` keeps the first argument.
                self.trace_exit(Ok(arguments[0]));
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
}
