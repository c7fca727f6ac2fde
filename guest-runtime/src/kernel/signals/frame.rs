//! The stack frame of a signal handler: `struct rt_sigframe` of Linux/riscv64.

use crate::exec::interp::fcsr;
use alloc::format;
use alloc::string::String;
use core::mem::offset_of;
use hartline_abi::hart::Hart;
use hartline_linux::siginfo::{
    CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, NSIGPOLL, POLL_IN, POLL_OUT, SI_KERNEL,
    SI_SIGIO, SI_TIMER, SI_TKILL, SI_USER,
};
use hartline_linux::signal::{SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, StackT};
use hartline_linux::ucontext::{RiscvFpState, Sigcontext, Ucontext};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `siginfo_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct SigInfo {
    number: i32,
    errno: i32,
    code: i32,
    padding: u32,
    /// `si_addr`, or `si_pid` and `si_uid`.
    value: u64,
    rest: [u64; 13],
}

impl SigInfo {
    const fn new(signal: u8, code: i32, value: u64) -> SigInfo {
        SigInfo {
            number: signal as i32,
            errno: 0,
            code,
            padding: 0,
            value,
            rest: [0; 13],
        }
    }

    /// A signal sent by the process `pid` of user `uid`.
    #[must_use]
    pub const fn sent(signal: u8, code: i32, pid: u32, uid: u32) -> SigInfo {
        SigInfo::new(signal, code, pid as u64 | (uid as u64) << 32)
    }

    /// What a parent is told of its child `pid` of user `uid`: `code` is one of
    /// [`CLD_EXITED`] and its like, `status` the exit status or signal.
    #[must_use]
    pub const fn child(code: i32, pid: u32, uid: u32, status: i32) -> SigInfo {
        let mut info = SigInfo::new(SIGCHLD, code, pid as u64 | (uid as u64) << 32);
        info.rest[0] = status as u32 as u64;
        info
    }

    /// The signal of the POSIX timer `number`.
    #[must_use]
    pub const fn timer(signal: u8, number: u32, overrun: i32, value: u64) -> SigInfo {
        let value_of_timer = number as u64 | (overrun.cast_unsigned() as u64) << 32;
        let mut info = SigInfo::new(signal, SI_TIMER, value_of_timer);
        info.rest[0] = value;
        info
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
        let mut info = SigInfo::new(signal, code, band);
        info.rest[0] = fd as u64;
        info
    }

    /// Whether the signal is about an open file.
    fn is_of_file(&self) -> bool {
        let is_code = (1..=NSIGPOLL).contains(&self.code) || self.code == SI_SIGIO;
        is_code && !self.is_fault() && self.signal() != SIGCHLD
    }

    /// Whether the signal is from the POSIX timer `number`.
    #[must_use]
    pub fn is_of_timer(&self, number: u32) -> bool {
        self.code == SI_TIMER && self.value as u32 == number
    }

    /// Converts to `struct signalfd_siginfo`.
    #[must_use]
    pub fn to_signalfd(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.number.to_le_bytes());
        put(4, &self.errno.to_le_bytes());
        put(8, &self.code.to_le_bytes());
        let (low, high) = (self.value as u32, (self.value >> 32) as u32);
        match self.code {
            SI_TIMER => {
                put(24, &low.to_le_bytes());
                put(32, &high.to_le_bytes());
            }
            _ if self.is_fault() => put(72, &self.value.to_le_bytes()),
            _ if self.is_of_file() => {
                put(20, &(self.rest[0] as u32).to_le_bytes());
                put(28, &low.to_le_bytes());
                return bytes;
            }
            _ => {
                put(12, &low.to_le_bytes());
                put(16, &high.to_le_bytes());
            }
        }
        // `si_status` of a child, otherwise `si_value`.
        let rest = self.rest[0];
        match self.signal() {
            SIGCHLD if self.code > 0 => put(40, &(rest as u32).to_le_bytes()),
            _ => {
                put(44, &(rest as u32).to_le_bytes());
                put(48, &rest.to_le_bytes());
            }
        }
        bytes
    }

    /// A signal caused by an instruction; `code` is greater than 0 and less than
    /// `SI_KERNEL`.
    #[must_use]
    pub const fn fault(signal: u8, code: i32, address: u64) -> SigInfo {
        SigInfo::new(signal, code, address)
    }

    /// Formats the fields after the signal number as strace(1) does.
    #[must_use]
    pub fn describe(&self) -> String {
        let code = match (self.code, self.signal()) {
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
        let (pid, uid) = (self.value as u32, self.value >> 32);
        match (self.is_fault(), self.signal()) {
            (true, _) => format!("si_code={code}, si_addr={:#x}", self.value),
            (_, SIGCHLD) if self.code > 0 => {
                let status = self.rest[0] as u32;
                format!("si_code={code}, si_pid={pid}, si_uid={uid}, si_status={status}")
            }
            _ if self.is_of_file() => format!("si_code={code}, si_band={:#x}", self.value),
            _ => format!("si_code={code}, si_pid={pid}, si_uid={uid}"),
        }
    }

    /// The bytes of the `siginfo_t`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 128] {
        zerocopy::transmute!(*self)
    }

    /// This `siginfo_t` for another signal that a program queues, never as a fault.
    #[must_use]
    pub fn with_signal(self, signal: u8) -> SigInfo {
        SigInfo {
            number: i32::from(signal),
            code: self.code.min(0),
            ..self
        }
    }

    /// The signal, 1 to [`_NSIG`](hartline_linux::signal::_NSIG).
    #[must_use]
    pub fn signal(&self) -> u8 {
        self.number as u8
    }

    /// Whether an instruction caused it.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        (1..SI_KERNEL).contains(&self.code)
            && matches!(self.signal(), SIGILL | SIGTRAP | SIGBUS | SIGFPE | SIGSEGV)
    }
}

/// `struct rt_sigframe`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct RtSigframe {
    /// The `siginfo_t`.
    pub info: SigInfo,
    /// The interrupted context.
    pub context: Ucontext,
}

/// Size of a frame, bytes.
pub const FRAME_SIZE: u64 = size_of::<RtSigframe>() as u64;

const _: () = assert!(size_of::<SigInfo>() == 128);
const _: () = assert!(FRAME_SIZE == 1088);

impl RtSigframe {
    /// Offset of the `siginfo_t`.
    pub const INFO: u64 = offset_of!(RtSigframe, info) as u64;
    /// Offset of the `ucontext_t`.
    pub const CONTEXT: u64 = offset_of!(RtSigframe, context) as u64;

    /// The frame for the current state of `hart`.
    #[must_use]
    pub fn new(hart: &Hart, info: SigInfo, stack: StackT, mask: u64) -> RtSigframe {
        let mut registers = hart.x.get();
        registers[0] = hart.pc.get();
        RtSigframe {
            info,
            context: Ucontext {
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

    /// Restores the registers.
    pub fn restore(&self, hart: &Hart) {
        let context = &self.context.uc_mcontext;
        hart.x.set(context.sc_regs);
        hart.set_x(0, 0);
        hart.pc.set(context.sc_regs[0] & !1);
        hart.f.set(context.sc_fpregs.f);
        fcsr::fcsr_write(hart, context.sc_fpregs.fcsr);
    }
}
