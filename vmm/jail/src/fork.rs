//! A new process as by fork(2), with a descriptor that names it.

use super::Child;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Forks this process, into new namespaces (`CLONE_NEW…`). Result: the new process; `None` in the
/// new process.
///
/// # Safety
/// Other threads may hold locks that nothing releases in the new process. It may only make system
/// calls until it executes a program or ends: it must not allocate, nor return to the caller's
/// caller.
///
/// # Errors
/// Any I/O error of the host.
pub(crate) unsafe fn fork(namespaces: libc::c_int) -> io::Result<Option<Child>> {
    let mut descriptor: RawFd = -1;
    // Not clone3: a service manager's seccomp filter around the daemon cannot check its flags.
    let flags = libc::c_long::from(namespaces | libc::CLONE_PIDFD | libc::SIGCHLD);
    let (stack, child_tid, tls) = (0usize, 0usize, 0usize);
    // SAFETY: without CLONE_VM and a stack this is fork(2): the new process has a copy of this
    // thread, its stack and all memory. The kernel writes a descriptor to the local variable at
    // which the third argument points, before the call returns.
    let pid = unsafe {
        let pidfd = &raw mut descriptor;
        libc::syscall(libc::SYS_clone, flags, stack, pidfd, child_tid, tls)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: CLONE_PIDFD has made the descriptor, which has no other owner.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    Ok(Some(Child::new(pid, descriptor)))
}
