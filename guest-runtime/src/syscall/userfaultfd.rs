//! `userfaultfd`: page faults that the program handles.

use super::Entry;
use super::files_fd::open_anonymous;
use crate::convert::low_u32;
use crate::file::userfaultfd::UserFaultFd;
use crate::kernel::Kernel;
use alloc::rc::Rc;
use hartline_linux::capability::CAP_SYS_PTRACE;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_CLOEXEC, O_NONBLOCK};
use hartline_linux::syscall::nr;
use hartline_linux::userfaultfd::UFFD_USER_MODE_ONLY;

/// The calls of this area.
pub const CALLS: &[Entry] = &[(nr::userfaultfd, userfaultfd)];

fn userfaultfd(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[0]);
    if flags & UFFD_USER_MODE_ONLY == 0 && !kernel.process().has(CAP_SYS_PTRACE) {
        return Err(Errno::EPERM);
    }
    if flags & !(O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = Rc::new(UserFaultFd::default());
    // A task that waits in the middle of its code needs all registers.
    kernel.use_precise_translations();
    if kernel.memory_mut().own_faults(&file.token()) {
        kernel.space_mut().user_faults = Rc::downgrade(&file);
    }
    open_anonymous(kernel, file, flags & (O_CLOEXEC | O_NONBLOCK))
}
