//! System calls that a jailed process may not make: the report, and the end of the process.
//!
//! The filters answer such a call with `SECCOMP_RET_TRAP`: the kernel does not make it, and sends
//! the thread `SIGSYS`. The signal handler writes the kernel's `siginfo_t`, which has the number of
//! the call, where the daemon reads it. Then it makes a call that another filter answers with
//! `SECCOMP_RET_KILL_PROCESS`. The number alone is not trusted. The process certainly ends, even if
//! it was compromised before:
//!
//! - The handler cannot be replaced: `rt_sigaction` for `SIGSYS` ends the process. So does a
//!   handler for `SIGSEGV`, which the kernel sends if the stack has no room for the handler's
//!   frame: its action is the default from the start.
//! - The signal cannot be blocked or ignored: the kernel forces it, and ends the process then.
//! - The handler reads and writes no memory, so other threads cannot change where it goes. It
//!   uses no stack, never returns, and keeps everything in registers. All signals are blocked
//!   while it runs, so its registers are not saved where they could be changed; a fault ends the
//!   process then.
//! - Its code cannot be changed or replaced: no memory becomes executable any more, nothing
//!   executable is moved to a chosen address (`MREMAP_FIXED`), and from Linux 6.10 on its pages
//!   are sealed (`mseal`).
//! - Its writes never wait: one is to a socket with `MSG_DONTWAIT`, the other at an offset, which
//!   pipes, sockets and eventfds refuse.
//!
//! A compromised process can write a false number, or none. A violation while the C library starts a
//! thread, with all signals blocked, ends the process without a report. The daemon learns from the
//! kernel whether `SIGSYS` ended the process. The filters have `SECCOMP_FILTER_FLAG_LOG`, so the
//! kernel's own log has the true number (`type=1326 … syscall=N`), then the number of the handler's
//! last call.

use super::call_names;
use super::enter::JailError;
use super::filter::Kind;
use super::spawn::{CHANNEL_FD, RESULT_FD};
use std::arch::naked_asm;
use std::fmt;
use std::io;
use std::mem::{offset_of, size_of};

/// `si_code` of a `SIGSYS` that a filter caused.
const SYS_SECCOMP: i32 = 1;
/// Flags of the message: it neither waits nor raises `SIGPIPE`. The policy has them as a number.
const MESSAGE_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// The kernel's `siginfo_t` of a `SIGSYS`.
#[repr(C)]
struct Report {
    signal: i32,
    /// Data of the filter: the [kind](Kind) of the thread.
    error: i32,
    code: i32,
    padding: i32,
    address: u64,
    number: i32,
    architecture: u32,
}

/// A system call that a jailed process may not make. It ended the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct Violation {
    /// The call, and the kind of thread; `None`: the process reported nothing.
    pub call: Option<(i32, Option<Kind>)>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((number, kind)) = self.call else {
            return f.write_str(
                "a system call that its jail does not allow, whose number is not known \
                 (see type=1326 in the kernel's log)",
            );
        };
        write!(f, "system call {number}")?;
        if let Some(name) = call_names::name(number) {
            write!(f, " ({name})")?;
        }
        f.write_str(", which its jail does not allow")?;
        match kind {
            Some(kind) => write!(f, " (filter {})", kind.name()),
            None => Ok(()),
        }
    }
}

impl Violation {
    /// Length of a report, bytes: the size of `siginfo_t`.
    pub const REPORT: usize = size_of::<libc::siginfo_t>();

    /// The violation that a message or file of a jailed process reports, if it begins with a
    /// report. No JSON text looks like a report.
    #[must_use]
    pub fn from_report(bytes: &[u8]) -> Option<Self> {
        let report = bytes.get(..Self::REPORT)?;
        let number = |offset: usize| {
            let bytes = report.get(offset..offset + size_of::<i32>())?;
            Some(i32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let signal = number(offset_of!(Report, signal))?;
        let code = number(offset_of!(Report, code))?;
        let kind = number(offset_of!(Report, error))?;
        let call = number(offset_of!(Report, number))?;
        let is_report = (signal, code) == (libc::SIGSYS, SYS_SECCOMP);
        is_report.then(|| Self {
            call: Some((call, Kind::from_data(kind))),
        })
    }
}

/// From the confinement on, makes the calling process report a forbidden system call and end.
///
/// # Errors
/// The kernel refuses.
pub(super) fn report_violations() -> Result<(), JailError> {
    // Rust's runtime has installed a handler for it.
    set_action(libc::SIGSEGV, libc::SIG_DFL, 0)?;
    let handler = report_and_end as *const () as usize;
    set_action(
        libc::SIGSYS,
        handler,
        u64::from(libc::SA_SIGINFO.unsigned_abs()) | SA_RESTORER,
    )?;
    seal(handler)
}

/// Seals the pages of the handler against moving and changing, if the kernel can.
fn seal(handler: usize) -> Result<(), JailError> {
    let first = handler / PAGE * PAGE;
    let length = (handler + HANDLER).next_multiple_of(PAGE) - first;
    // SAFETY: the pages are code of this program, mapped until the process ends. Nothing unmaps,
    // moves or changes them, which is all that the call forbids.
    let done = unsafe { libc::syscall(libc::SYS_mseal, first, length, 0) };
    match io::Error::last_os_error() {
        _ if done == 0 => Ok(()),
        // A kernel before 6.10, or an older filter of a service manager.
        error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(()),
        source => Err(JailError::Call {
            call: "mseal",
            source,
        }),
    }
}

/// The kernel requires a return address (`sa_restorer`).
const SA_RESTORER: u64 = 0x0400_0000;
/// Length of a page on x86-64, bytes.
const PAGE: usize = 4096;
/// Length of the handler, bytes.
const HANDLER: usize = 128;

/// `struct sigaction` of the kernel. The C library's wrapper omits two signals from masks.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

fn set_action(signal: i32, handler: usize, flags: u64) -> Result<(), JailError> {
    let action = Action {
        handler,
        flags,
        restorer: never as *const () as usize,
        mask: u64::MAX,
    };
    let none = std::ptr::null_mut::<Action>();
    let size = size_of::<u64>();
    // SAFETY: `action` has the layout of the kernel's `struct sigaction`, outlives the call, and is
    // only read; no old action is requested. The handler is SIG_DFL, or `report_and_end`, which
    // lives as long as the program, touches no memory and never returns to interrupted code.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &raw const action,
            none,
            size,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(JailError::Call {
            call: "rt_sigaction",
            source: io::Error::last_os_error(),
        }),
    }
}

/// The handler of `SIGSYS`. The kernel calls it with the signal in `edi` and the address of the
/// `siginfo_t` in `rsi`. System calls change `rax`, `rcx` and `r11` only.
///
/// # Safety
/// Only the kernel may call it.
#[unsafe(naked)]
unsafe extern "C" fn report_and_end() {
    naked_asm!(
        "3:",
        // Write the report into the file for the result, if there is one.
        "mov edi, {result}",
        "mov edx, {length}",
        "xor r10d, r10d",
        "mov eax, {pwrite64}",
        "syscall",
        "cmp rax, {length}",
        "je 2f",
        // Send it as a message otherwise.
        "mov edi, {channel}",
        "mov r10d, {flags}",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "mov eax, {sendto}",
        "syscall",
        "2:",
        // The policy ends the process for this, regardless of the other arguments.
        "mov edi, {sigsys}",
        "xor esi, esi",
        "mov eax, {rt_sigaction}",
        "syscall",
        "ud2",
        ".skip {handler} - (. - 3b), 0xcc",
        handler = const HANDLER,
        result = const RESULT_FD,
        channel = const CHANNEL_FD,
        length = const Violation::REPORT,
        flags = const MESSAGE_FLAGS,
        sigsys = const libc::SIGSYS,
        pwrite64 = const libc::SYS_pwrite64,
        sendto = const libc::SYS_sendto,
        rt_sigaction = const libc::SYS_rt_sigaction,
    )
}

/// The return address of handlers, to which none returns.
///
/// # Safety
/// Must not be called.
#[unsafe(naked)]
unsafe extern "C" fn never() {
    naked_asm!("ud2")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(signal: i32, code: i32, number: i32, kind: i32) -> Vec<u8> {
        let mut bytes = vec![0; Violation::REPORT];
        for (offset, value) in [(0, signal), (4, kind), (8, code), (24, number)] {
            bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn reports_are_understood() {
        let kind = Kind::ALL[1];
        let bytes = report(libc::SIGSYS, SYS_SECCOMP, 41, 2);
        let violation = Violation::from_report(&bytes).unwrap();
        assert_eq!(violation.call, Some((41, Some(kind))));
        let text = violation.to_string();
        assert!(
            text.contains("41 (socket)") && text.contains(kind.name()),
            "{text}"
        );
        let longer = [&bytes[..], b"{}"].concat();
        assert_eq!(Violation::from_report(&longer), Some(violation));
    }

    #[test]
    fn wild_reports_do_no_harm() {
        assert!(Violation::from_report(b"").is_none());
        assert!(Violation::from_report(&[0; Violation::REPORT]).is_none());
        assert!(Violation::from_report(br#"{"code": 0}"#).is_none());
        let mut bytes = report(libc::SIGSYS, SYS_SECCOMP, -7, -1);
        let violation = Violation::from_report(&bytes).unwrap();
        assert_eq!(violation.call, Some((-7, None)));
        assert!(violation.to_string().contains("system call -7,"));
        bytes.pop();
        assert!(Violation::from_report(&bytes).is_none(), "too short");
    }
}
