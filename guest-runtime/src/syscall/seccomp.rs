//! Filters of system calls: `seccomp`, and `PR_SET_SECCOMP` of `prctl`.

use super::Entry;
use crate::convert::low_u32;
use crate::kernel::Kernel;
use crate::kernel::task::Task;
use crate::mm::user;
use crate::seccomp::{Program, Seccomp};
use alloc::vec::Vec;
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::errno::Errno;
use hartline_linux::filter::{BPF_MAXINSNS, SockFilter, SockFprog};
use hartline_linux::seccomp::{
    SECCOMP_FILTER_FLAG_LOG, SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_FILTER_FLAG_TSYNC,
    SECCOMP_FILTER_FLAG_TSYNC_ESRCH, SECCOMP_GET_ACTION_AVAIL, SECCOMP_MODE_FILTER,
    SECCOMP_MODE_STRICT, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS,
    SECCOMP_RET_KILL_THREAD, SECCOMP_RET_LOG, SECCOMP_RET_TRACE, SECCOMP_RET_TRAP,
    SECCOMP_SET_MODE_FILTER, SECCOMP_SET_MODE_STRICT,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[(nr::seccomp, seccomp)];

/// Supported flags of a filter. There is no log, and no speculation to allow.
const FLAGS: u32 = SECCOMP_FILTER_FLAG_TSYNC
    | SECCOMP_FILTER_FLAG_LOG
    | SECCOMP_FILTER_FLAG_SPEC_ALLOW
    | SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
/// Actions that a filter may return.
const ACTIONS: [u32; 7] = [
    SECCOMP_RET_KILL_PROCESS,
    SECCOMP_RET_KILL_THREAD,
    SECCOMP_RET_TRAP,
    SECCOMP_RET_ERRNO,
    SECCOMP_RET_TRACE,
    SECCOMP_RET_LOG,
    SECCOMP_RET_ALLOW,
];

fn seccomp(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (operation, flags, address) = (low_u32(a[0]), low_u32(a[1]), a[2]);
    match operation {
        SECCOMP_SET_MODE_STRICT if flags == 0 && address == 0 => set_strict(kernel),
        SECCOMP_SET_MODE_FILTER => add_filter(kernel, flags, address),
        SECCOMP_GET_ACTION_AVAIL if flags == 0 => {
            let action: u32 = user::read(kernel.memory_mut(), address)?;
            match ACTIONS.contains(&action) {
                true => Ok(0),
                false => Err(Errno::EOPNOTSUPP),
            }
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `PR_SET_SECCOMP`.
///
/// # Errors
/// As `seccomp`.
pub(super) fn set_mode(kernel: &mut Kernel, mode: u64, address: u64) -> Result<u64, Errno> {
    match mode {
        SECCOMP_MODE_STRICT => set_strict(kernel),
        SECCOMP_MODE_FILTER => add_filter(kernel, 0, address),
        _ => Err(Errno::EINVAL),
    }
}

fn set_strict(kernel: &mut Kernel) -> Result<u64, Errno> {
    if let Seccomp::Filtered(_) = kernel.task().seccomp {
        return Err(Errno::EINVAL);
    }
    kernel.task_mut().seccomp = Seccomp::Strict;
    kernel.watches = true;
    Ok(0)
}

/// Reads and checks the program at `address`.
fn read_program(kernel: &mut Kernel, address: u64) -> Result<Program, Errno> {
    let SockFprog { len, filter, .. } = user::read(kernel.memory_mut(), address)?;
    if len == 0 || usize::from(len) > BPF_MAXINSNS {
        return Err(Errno::EINVAL);
    }
    let process = kernel.process();
    if !process.no_new_privileges && !process.has(CAP_SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    let filter: Vec<SockFilter> = user::read_array(kernel.memory_mut(), filter, len.into())?;
    Program::check(filter)
}

/// Adds a filter to the running task, or with `SECCOMP_FILTER_FLAG_TSYNC` to all threads. Returns
/// the number of a thread that has another filter.
fn add_filter(kernel: &mut Kernel, flags: u32, address: u64) -> Result<u64, Errno> {
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let program = read_program(kernel, address)?;
    let before = kernel.task().seccomp.clone();
    let filtered = before.with_filter(program)?;
    if flags & SECCOMP_FILTER_FLAG_TSYNC != 0 {
        let pid = kernel.process().pid;
        let differs = |task: &&Task| task.pid == pid && !task.seccomp.is_ancestor_of(&before);
        let other = kernel.tasks().find(differs).map(|task| task.tid);
        if let Some(tid) = other {
            return match flags & SECCOMP_FILTER_FLAG_TSYNC_ESRCH {
                0 => Ok(tid.into()),
                _ => Err(Errno::ESRCH),
            };
        }
        for task in kernel.tasks.iter_mut().filter(|task| task.pid == pid) {
            task.seccomp = filtered.clone();
        }
    }
    kernel.task_mut().seccomp = filtered;
    kernel.watches = true;
    Ok(0)
}
