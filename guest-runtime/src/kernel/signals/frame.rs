//! The stack frame of a signal handler: `struct rt_sigframe` of Linux/riscv64.

use crate::convert::{low_u8, low_u32, sign_extended};
use crate::exec::interp::fcsr;
use alloc::format;
use alloc::string::String;
use hartline_abi::hart::Hart;
use hartline_linux::audit::AUDIT_ARCH_RISCV64;
use hartline_linux::siginfo::{
    CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, NSIGPOLL, POLL_IN, POLL_OUT, Rt, SI_KERNEL,
    SI_MESGQ, SI_SIGIO, SI_TIMER, SI_TKILL, SI_USER, SYS_SECCOMP, Sigchld, Sigfault, Siginfo,
    Sigpoll, Sigsys, Timer,
};
use hartline_linux::signal::{SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, StackT};
use hartline_linux::signalfd::SignalfdSiginfo;
use hartline_linux::ucontext::{RiscvFpState, RtSigframe, Sigcontext, Ucontext};
use zerocopy::{FromBytes, Immutable, IntoBytes, transmute};

/// A `siginfo_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SigInfo(Siginfo);

impl SigInfo {
    const fn new(signal: u8, code: i32, fields: [u64; 14]) -> SigInfo {
        SigInfo(Siginfo {
            si_signo: signal as i32,
            si_errno: 0,
            si_code: code,
            pad: 0,
            _sifields: fields,
        })
    }

    /// The fields, if they are of a signal that a process sent.
    fn rt(&self) -> Rt {
        transmute!(self.0._sifields)
    }

    /// The fields, if they are of a POSIX timer.
    fn timer_fields(&self) -> Timer {
        transmute!(self.0._sifields)
    }

    /// The fields, if they are of a child.
    fn sigchld(&self) -> Sigchld {
        transmute!(self.0._sifields)
    }

    /// The fields, if they are of a fault.
    fn sigfault(&self) -> Sigfault {
        transmute!(self.0._sifields)
    }

    /// The fields, if they are of a refused system call.
    fn sigsys(&self) -> Sigsys {
        transmute!(self.0._sifields)
    }

    /// The fields, if they are of an open file.
    fn sigpoll(&self) -> Sigpoll {
        transmute!(self.0._sifields)
    }

    /// Whether the code is one that only the kernel, `kill` or `tkill` use.
    #[must_use]
    pub fn is_forged(&self) -> bool {
        self.0.si_code >= 0 || self.0.si_code == SI_TKILL
    }

    /// A signal sent by the process `pid` of user `uid`.
    #[must_use]
    pub const fn sent(signal: u8, code: i32, pid: u32, uid: u32) -> SigInfo {
        let fields = Rt {
            si_pid: pid,
            si_uid: uid,
            si_value: 0,
            pad: [0; 12],
        };
        SigInfo::new(signal, code, transmute!(fields))
    }

    /// What a parent is told of its child `pid` of user `uid`: `code` is one of
    /// [`CLD_EXITED`] and its like, `status` the exit status or signal.
    #[must_use]
    pub const fn child(code: i32, pid: u32, uid: u32, status: i32) -> SigInfo {
        let fields = Sigchld {
            si_pid: pid,
            si_uid: uid,
            si_status: status,
            pad1: 0,
            si_utime: 0,
            si_stime: 0,
            pad2: [0; 10],
        };
        SigInfo::new(SIGCHLD, code, transmute!(fields))
    }

    /// The signal of a message that the process and user `sender` has sent to a message queue.
    #[must_use]
    pub const fn of_message(signal: u8, sender: (u32, u32), value: u64) -> SigInfo {
        let fields = Rt {
            si_pid: sender.0,
            si_uid: sender.1,
            si_value: value,
            pad: [0; 12],
        };
        SigInfo::new(signal, SI_MESGQ, transmute!(fields))
    }

    /// The signal of the POSIX timer `number`.
    #[must_use]
    pub const fn timer(signal: u8, number: u32, overrun: i32, value: u64) -> SigInfo {
        let fields = Timer {
            si_tid: number,
            si_overrun: overrun,
            si_value: value,
            pad: [0; 12],
        };
        SigInfo::new(signal, SI_TIMER, transmute!(fields))
    }

    /// The signal of an event on the open file `fd`: `code` is `POLL_IN` or `POLL_OUT`, `band` the
    /// events that poll(2) reports.
    #[must_use]
    pub const fn of_file(signal: u8, code: i32, band: u64, fd: u32) -> SigInfo {
        // Codes greater than 0 mean other things with these.
        let code = match signal {
            SIGBUS | SIGCHLD | SIGFPE | SIGILL | SIGSEGV | SIGSYS | SIGTRAP => SI_SIGIO,
            _ => code,
        };
        let fields = Sigpoll {
            si_band: band,
            si_fd: fd,
            pad1: 0,
            pad2: [0; 12],
        };
        SigInfo::new(signal, code, transmute!(fields))
    }

    /// Whether the signal is about an open file.
    fn is_of_file(&self) -> bool {
        let code = self.0.si_code;
        let is_code = (1..=NSIGPOLL).contains(&code) || code == SI_SIGIO;
        is_code && !self.is_fault() && self.signal() != SIGCHLD
    }

    /// The number of the POSIX timer that the signal is from.
    #[must_use]
    pub fn timer_number(&self) -> Option<u32> {
        (self.0.si_code == SI_TIMER).then(|| self.timer_fields().si_tid)
    }

    /// Whether the signal is from the POSIX timer `number`.
    #[must_use]
    pub fn is_of_timer(&self, number: u32) -> bool {
        self.timer_number() == Some(number)
    }

    /// The signal with another overrun count, if it is from a POSIX timer.
    #[must_use]
    pub fn with_overrun(self, overrun: i32) -> SigInfo {
        let Timer {
            si_tid, si_value, ..
        } = self.timer_fields();
        match self.0.si_code {
            SI_TIMER => SigInfo::timer(self.signal(), si_tid, overrun, si_value),
            _ => self,
        }
    }

    /// Whether `kill` sent the signal.
    #[must_use]
    pub fn is_of_kill(&self) -> bool {
        self.0.si_code == SI_USER
    }

    /// Converts to `struct signalfd_siginfo`.
    #[must_use]
    pub fn to_signalfd(&self) -> SignalfdSiginfo {
        let mut to = SignalfdSiginfo {
            ssi_signo: self.0.si_signo,
            ssi_errno: self.0.si_errno,
            ssi_code: self.0.si_code,
            ..SignalfdSiginfo::default()
        };
        let rt = self.rt();
        match self.0.si_code {
            SI_TIMER => {
                let timer = self.timer_fields();
                (to.ssi_tid, to.ssi_overrun) = (timer.si_tid, timer.si_overrun);
            }
            _ if self.is_fault() => to.ssi_addr = self.sigfault().si_addr,
            _ if self.is_of_file() => {
                let poll = self.sigpoll();
                (to.ssi_fd, to.ssi_band) = (poll.si_fd, low_u32(poll.si_band));
                return to;
            }
            _ => (to.ssi_pid, to.ssi_uid) = (rt.si_pid, rt.si_uid),
        }
        match self.signal() {
            SIGCHLD if self.0.si_code > 0 => to.ssi_status = self.sigchld().si_status,
            _ => (to.ssi_int, to.ssi_ptr) = (low_u32(rt.si_value), rt.si_value),
        }
        to
    }

    /// A signal caused by an instruction; `code` is greater than 0 and less than
    /// `SI_KERNEL`.
    #[must_use]
    pub const fn fault(signal: u8, code: i32, address: u64) -> SigInfo {
        let fields = Sigfault {
            si_addr: address,
            pad: [0; 13],
        };
        SigInfo::new(signal, code, transmute!(fields))
    }

    /// The signal of a system call that a filter refuses: `call` is the address after the call and
    /// its number, `data` that of the filter's result.
    #[must_use]
    pub const fn refused(call: (u64, u32), data: u16) -> SigInfo {
        let fields = Sigsys {
            si_call_addr: call.0,
            si_syscall: call.1,
            si_arch: AUDIT_ARCH_RISCV64,
            pad: [0; 12],
        };
        let mut info = SigInfo::new(SIGSYS, SYS_SECCOMP, transmute!(fields));
        info.0.si_errno = data as i32;
        info
    }

    /// Formats the fields after the signal number as strace(1) does.
    #[must_use]
    pub fn describe(&self) -> String {
        let code = match (self.0.si_code, self.signal()) {
            (CLD_EXITED, SIGCHLD) => "CLD_EXITED".into(),
            (CLD_KILLED, SIGCHLD) => "CLD_KILLED".into(),
            (CLD_STOPPED, SIGCHLD) => "CLD_STOPPED".into(),
            (CLD_CONTINUED, SIGCHLD) => "CLD_CONTINUED".into(),
            (SI_USER, _) => "SI_USER".into(),
            (SI_TKILL, _) => "SI_TKILL".into(),
            (SI_TIMER, _) => "SI_TIMER".into(),
            (SI_KERNEL, _) => "SI_KERNEL".into(),
            (POLL_IN, _) if self.is_of_file() => "POLL_IN".into(),
            (POLL_OUT, _) if self.is_of_file() => "POLL_OUT".into(),
            (code, _) => format!("{code}"),
        };
        let Rt { si_pid, si_uid, .. } = self.rt();
        match (self.is_fault(), self.signal()) {
            (_, SIGSYS) if self.0.si_code == SYS_SECCOMP => {
                let Sigsys {
                    si_call_addr,
                    si_syscall,
                    ..
                } = self.sigsys();
                format!(
                    "si_code=SYS_SECCOMP, si_call_addr={si_call_addr:#x}, si_syscall={si_syscall}"
                )
            }
            (true, _) => format!("si_code={code}, si_addr={:#x}", self.sigfault().si_addr),
            (_, SIGCHLD) if self.0.si_code > 0 => {
                let status = self.sigchld().si_status.cast_unsigned();
                format!("si_code={code}, si_pid={si_pid}, si_uid={si_uid}, si_status={status}")
            }
            _ if self.is_of_file() => {
                format!("si_code={code}, si_band={:#x}", self.sigpoll().si_band)
            }
            _ => format!("si_code={code}, si_pid={si_pid}, si_uid={si_uid}"),
        }
    }

    /// This `siginfo_t` for another signal that a program queues, never as a fault.
    #[must_use]
    pub fn with_signal(self, signal: u8) -> SigInfo {
        SigInfo(Siginfo {
            si_signo: i32::from(signal),
            si_code: self.0.si_code.min(0),
            ..self.0
        })
    }

    /// The signal, 1 to [`_NSIG`](hartline_linux::signal::_NSIG).
    #[must_use]
    pub fn signal(&self) -> u8 {
        low_u8(sign_extended(self.0.si_signo))
    }

    /// `si_code`.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.0.si_code
    }

    /// Whether an instruction caused it.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        (1..SI_KERNEL).contains(&self.0.si_code)
            && matches!(self.signal(), SIGILL | SIGTRAP | SIGBUS | SIGFPE | SIGSEGV)
    }
}

/// Size of a frame, bytes.
pub const FRAME_SIZE: u64 = size_of::<RtSigframe>() as u64;

/// Returns the frame for the current state of `hart`.
#[must_use]
pub fn frame(hart: &Hart, info: SigInfo, stack: StackT, mask: u64) -> RtSigframe {
    let mut registers = hart.x.get();
    registers[0] = hart.pc.get();
    RtSigframe {
        info: info.0,
        uc: Ucontext {
            uc_flags: 0,
            uc_link: 0,
            uc_stack: stack,
            uc_sigmask: mask,
            unused: [0; 15],
            pad: 0,
            uc_mcontext: Sigcontext {
                sc_regs: registers,
                sc_fpregs: RiscvFpState {
                    f: hart.f.get(),
                    fcsr: fcsr::fcsr_read(hart),
                    reserved: [0; 67],
                },
            },
        },
    }
}

/// Restores the registers of a frame.
pub fn restore(frame: &RtSigframe, hart: &Hart) {
    let context = &frame.uc.uc_mcontext;
    hart.x.set(context.sc_regs);
    hart.set_x(0, 0);
    hart.pc.set(context.sc_regs[0] & !1);
    hart.f.set(context.sc_fpregs.f);
    fcsr::fcsr_write(hart, context.sc_fpregs.fcsr);
}
