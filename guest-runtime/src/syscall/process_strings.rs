//! The strings that `/proc/PID/cmdline` and `environ` show (`PR_SET_MM` of prctl(2)).

use crate::kernel::Kernel;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::capability::CAP_SYS_RESOURCE;
use hartline_linux::errno::Errno;
use hartline_linux::prctl::{
    PR_SET_MM_ARG_END, PR_SET_MM_ARG_START, PR_SET_MM_ENV_END, PR_SET_MM_ENV_START,
};

/// The lowest address (`mmap_min_addr`).
const MMAP_MIN_ADDR: u64 = 16 * PAGE_SIZE;

/// Serves `PR_SET_MM`: moves an end of the strings.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`; `EINVAL` for another field, or an end before the start;
/// `EFAULT` for an address without a mapping.
pub(super) fn set(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [_, field, address, rest @ ..] = *arguments;
    if rest[..2] != [0; 2] {
        return Err(Errno::EINVAL);
    }
    if !kernel.process().files.cred.has(CAP_SYS_RESOURCE) {
        return Err(Errno::EPERM);
    }
    if !(MMAP_MIN_ADDR..USER_END).contains(&address) {
        return Err(Errno::EINVAL);
    }
    let is_mapped = kernel.space().memory.vmas().find(address).is_some();
    let process = kernel.process_mut();
    let strings = match field {
        PR_SET_MM_ARG_START | PR_SET_MM_ARG_END => &mut process.arguments,
        PR_SET_MM_ENV_START | PR_SET_MM_ENV_END => &mut process.environment,
        _ => return Err(Errno::EINVAL),
    };
    let new = match field {
        PR_SET_MM_ARG_START | PR_SET_MM_ENV_START => address..strings.end,
        _ => strings.start..address,
    };
    if new.start > new.end {
        return Err(Errno::EINVAL);
    }
    if !is_mapped {
        return Err(Errno::EFAULT);
    }
    *strings = new;
    Ok(0)
}
