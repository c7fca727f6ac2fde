//! VMMs that make a system call which the seccomp filter of their jail forbids.

use super::kept::{location, submit};
use super::{await_state, check, machine, run, start};
use hartline_tests::Result;
use hartline_tests::daemon::until;
use serde_json::json;
use std::fs;
use std::io;
use std::mem::MaybeUninit;

/// Length of the instruction `syscall`, bytes.
const SYSCALL: u64 = 2;

/// Makes the main thread of another process, which waits in a system call, make another one next.
///
/// # Errors
/// `WouldBlock`: the thread is in no system call, or blocks `SIGSYS`.
fn inject(pid: i32, number: i64) -> io::Result<()> {
    let done = |result: libc::c_long| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    let none = std::ptr::null_mut::<libc::c_void>();
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: the process is stopped while its registers are read and written, into and from a
    // valid structure of which all zeros are a value.
    unsafe {
        done(libc::ptrace(libc::PTRACE_ATTACH, pid, none, none))?;
        let mut status = 0;
        done(libc::waitpid(pid, &mut status, libc::__WALL).into())?;
        let to = registers.as_mut_ptr();
        done(libc::ptrace(libc::PTRACE_GETREGS, pid, none, to))?;
        let mut registers = registers.assume_init();
        // Outside of a system call there is no instruction to repeat. While the C library starts a
        // thread, it blocks all signals: the process would end without a report.
        if registers.orig_rax.cast_signed() < 0 || blocks_sigsys(pid) {
            done(libc::ptrace(libc::PTRACE_DETACH, pid, none, none))?;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        registers.rip -= SYSCALL;
        registers.rax = number.unsigned_abs();
        // No system call must be restarted.
        registers.orig_rax = u64::MAX;
        done(libc::ptrace(
            libc::PTRACE_SETREGS,
            pid,
            none,
            &raw mut registers,
        ))?;
        done(libc::ptrace(libc::PTRACE_DETACH, pid, none, none))
    }
}

/// A machine whose VMM makes a forbidden call fails. Its message, the log and the metrics have the
/// call's number. Other machines are not affected.
pub fn forbidden_call() -> Result<()> {
    let (daemon, program) = start()?;
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    let jailed = daemon.jailed();
    let filtered: Vec<_> = jailed.into_iter().filter(|&pid| is_filtered(pid)).collect();
    for &pid in &filtered {
        let pid = pid.try_into()?;
        // Another error: the process has ended, so it was not a waiting VMM.
        let is_busy = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        until(|| !inject(pid, libc::SYS_socket).is_err_and(is_busy))?;
    }
    await_state(&daemon, &idle, "failed")?;
    let told = daemon.request("GET", &idle, b"")?.text("message");
    let expected = "system call 41 (socket), which its jail does not allow (filter vmm)";
    check("message", told.contains(expected), &told)?;
    let log = daemon.log();
    check("log", log.contains(expected), &log)?;
    let counted = || {
        let metrics = daemon.request("GET", "/metrics", b"");
        let name = "hartline_jail_violations_total{filter=\"vmm\"}";
        metrics.is_ok_and(|metrics| String::from_utf8_lossy(&metrics.body).contains(name))
    };
    until(counted)?;
    // VMMs of the pool among them: one that is about to end would get the next run.
    until(|| filtered.iter().all(|&pid| has_ended(pid)))?;
    let outcome = run(&daemon, &json!({ "program": program }))?;
    check("runs again", outcome["exit_code"] == 0, &outcome)
}

/// Whether the main thread of a process blocks `SIGSYS`.
fn blocks_sigsys(pid: libc::pid_t) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:\t"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.is_none_or(|mask| mask & 1 << (libc::SIGSYS - 1) != 0)
}

/// Whether a process has its filter of system calls. A VMM that starts has none.
fn is_filtered(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| status.contains("\nSeccomp:\t2\n"))
}

/// Whether a process has ended, even if it has not been reaped yet.
fn has_ended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(true, |status| status.contains("\nState:\tZ"))
}

/// A run whose VMM is ended by `SIGSYS` reports that, even without a call number.
pub fn without_number() -> Result<()> {
    let (daemon, program) = start()?;
    let request = json!({ "program": program, "args": ["idle"], "wait": false });
    let run = location(&submit(&daemon, &[], &request)?.expect(202)?)?;
    await_state(&daemon, &run, "running")?;
    for pid in daemon.jailed() {
        // SAFETY: no memory is involved; the process is a child of the daemon.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGSYS) };
    }
    let ended = daemon.request("GET", &format!("{run}?seconds=60"), b"")?;
    let told = ended.text("message");
    let right = ended.text("state") == "failed" && told.contains("whose number is not known");
    check("a run", right, &ended)
}
