//! Slow storage: system calls of the VMM's volume threads are delayed (seccomp_unotify(2)).

use hartline_tests::Result;
use hartline_tests::process::{self, Outcome};
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The least duration of a delayed call.
const LONG: Duration = Duration::from_millis(300);
/// The delayed calls, and a call that finds no data in memory.
const HELD: [libc::c_long; 3] = [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_pread64];
const IN_MEMORY: libc::c_long = libc::SYS_preadv2;

/// Runs a VMM whose volumes have slow storage.
pub fn run(command: &mut Command) -> Result<Outcome> {
    thread::scope(|scope| {
        // The filter applies to this thread and its children.
        let (sender, listener) = std::sync::mpsc::channel();
        let runs = scope.spawn(move || {
            sender.send(filter()).map_err(io::Error::other)?;
            process::run(command, b"")
        });
        let listener = listener.recv()??;
        while let Some(call) = next(&listener)? {
            answer(&listener, &call)?;
        }
        runs.join().map_err(|_| "the run panicked")?
    })
}

/// Installs a filter on this thread that makes these calls wait for the owner of the descriptor.
fn filter() -> io::Result<OwnedFd> {
    let statement = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    // Load the system call number.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    let calls = HELD.iter().chain([&IN_MEMORY]);
    for (left, call) in (1..=HELD.len() as u8 + 1).rev().zip(calls) {
        let test = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(statement(test, *call as u32, left));
    }
    let give = libc::BPF_RET | libc::BPF_K;
    program.push(statement(give, libc::SECCOMP_RET_ALLOW, 0));
    program.push(statement(give, libc::SECCOMP_RET_USER_NOTIF, 0));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is valid and lives until the call returns; the descriptor is fresh or an
    // error.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let listener = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program);
        match i32::try_from(listener) {
            Ok(listener) if listener >= 0 => Ok(OwnedFd::from_raw_fd(listener)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns the next waiting call; `None` when no thread under the filter is left.
fn next(listener: &OwnedFd) -> io::Result<Option<libc::seccomp_notif>> {
    loop {
        let mut poll = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer is valid for one entry, and the request wants a zeroed structure of
        // this type.
        unsafe {
            libc::poll(&raw mut poll, 1, -1);
            if poll.revents & libc::POLLIN != 0 {
                let mut call: libc::seccomp_notif = zeroed();
                let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
                // The calling thread may have been killed meanwhile.
                if libc::ioctl(poll.fd, request, &raw mut call) == 0 {
                    return Ok(Some(call));
                }
            } else if poll.revents & libc::POLLHUP != 0 {
                return Ok(None);
            }
        }
    }
}

/// Continues a call, with a delay if a volume thread made it.
fn answer(listener: &OwnedFd, call: &libc::seccomp_notif) -> io::Result<()> {
    let name = fs::read_to_string(format!("/proc/{}/comm", call.pid)).unwrap_or_default();
    let is_for_volumes = name.trim_end() == "volumes";
    let mut response = libc::seccomp_notif_resp {
        id: call.id,
        val: 0,
        error: 0,
        flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
    };
    if is_for_volumes && i64::from(call.data.nr) == IN_MEMORY {
        (response.error, response.flags) = (-libc::EAGAIN, 0);
    } else if is_for_volumes {
        thread::sleep(LONG);
    }
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: the request takes a structure of this type.
    match unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut response) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // The calling thread was killed meanwhile.
            error if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            error => Err(error),
        },
    }
}
