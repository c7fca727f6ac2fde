//! Process groups and sessions.

use super::Entry;
use super::task::find_process;
use crate::convert::low_i32;
use crate::kernel::Kernel;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::setpgid, setpgid),
    (nr::getpgid, getpgid),
    (nr::getsid, getsid),
    (nr::setsid, setsid),
];

fn setpgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let (own, session) = (kernel.process().pid, kernel.process().session);
    let target = find_process(kernel, arguments[0])?;
    let pid = target.pid;
    let group = match low_i32(arguments[1]) {
        i32::MIN..0 => return Err(Errno::EINVAL),
        0 => pid,
        group => group.cast_unsigned(),
    };
    if pid != own {
        if target.parent != own || target.is_zombie() {
            return Err(Errno::ESRCH);
        }
        if target.has_executed {
            return Err(Errno::EACCES);
        }
    }
    if target.session != session || target.session == pid {
        return Err(Errno::EPERM);
    }
    let exists = |kernel: &Kernel| {
        let mut all = kernel.processes();
        all.any(|other| other.group == group && other.session == session)
    };
    if group != pid && !exists(kernel) {
        return Err(Errno::EPERM);
    }
    find_process(kernel, u64::from(pid))?.group = group;
    Ok(0)
}

fn getpgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    Ok(u64::from(find_process(kernel, arguments[0])?.group))
}

fn getsid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    Ok(u64::from(find_process(kernel, arguments[0])?.session))
}

fn setsid(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    let pid = kernel.process().pid;
    if kernel.processes().any(|process| process.group == pid) {
        return Err(Errno::EPERM);
    }
    kernel.process_mut().session = pid;
    kernel.process_mut().group = pid;
    kernel.process_mut().files.session = pid;
    kernel.process_mut().has_no_terminal = false;
    Ok(u64::from(pid))
}
