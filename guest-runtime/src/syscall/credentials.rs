//! Users, groups and capabilities of the process. All its threads share them.

use super::Entry;
use super::task::find_task;
use crate::convert::{low_i32, low_u32};
use crate::credentials::{Capabilities, Credentials, Identifiers};
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::capability::{
    _LINUX_CAPABILITY_VERSION_1, _LINUX_CAPABILITY_VERSION_2, _LINUX_CAPABILITY_VERSION_3,
    CAP_LAST_CAP, CAP_SETGID, UserCapData, UserCapHeader,
};
use hartline_linux::errno::Errno;
use hartline_linux::limits::NGROUPS_MAX;
use hartline_linux::prctl::{
    PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_LOWER,
    PR_CAP_AMBIENT_RAISE, PR_CAPBSET_DROP, PR_CAPBSET_READ, PR_GET_KEEPCAPS, PR_GET_NO_NEW_PRIVS,
    PR_GET_SECUREBITS, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS, PR_SET_SECUREBITS,
};
use hartline_linux::securebits::SECBIT_KEEP_CAPS;
use hartline_linux::syscall::nr;
use zerocopy::IntoBytes;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::capget, capget),
    (nr::capset, capset),
    (nr::setregid, setregid),
    (nr::setgid, setgid),
    (nr::setreuid, setreuid),
    (nr::setuid, setuid),
    (nr::setresuid, setresuid),
    (nr::getresuid, |kernel, a| {
        write_three(kernel, a, own(kernel).user)
    }),
    (nr::setresgid, setresgid),
    (nr::getresgid, |kernel, a| {
        write_three(kernel, a, own(kernel).group)
    }),
    (nr::setfsuid, setfsuid),
    (nr::setfsgid, setfsgid),
    (nr::getgroups, getgroups),
    (nr::setgroups, setgroups),
    (nr::getuid, |kernel, _| Ok(own(kernel).user.real.into())),
    (nr::geteuid, |kernel, _| {
        Ok(own(kernel).user.effective.into())
    }),
    (nr::getgid, |kernel, _| Ok(own(kernel).group.real.into())),
    (nr::getegid, |kernel, _| {
        Ok(own(kernel).group.effective.into())
    }),
];

/// The credentials of the running process.
fn own(kernel: &Kernel) -> &Credentials {
    kernel.process().credentials()
}

/// Gives the running process these credentials. If its rights change, its memory may hold what
/// others must not read, so it is no longer dumpable, and its parent's death is not signalled.
pub(super) fn set(kernel: &mut Kernel, new: Credentials) {
    let process = kernel.process_mut();
    if new.changes_rights(process.credentials()) {
        process.files.set_dumpable(0);
        process.parent_death_signal = 0;
    }
    process.files.set_credentials(Rc::new(new));
    let limits = process.memory_limits();
    kernel.memory_mut().set_limits(limits);
}

/// Changes the credentials of the running process with `change`, unless it fails.
fn update<T>(
    kernel: &mut Kernel,
    change: impl FnOnce(&mut Credentials) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut new = own(kernel).clone();
    let result = change(&mut new)?;
    set(kernel, new);
    Ok(result)
}

/// Returns the identifier in an argument; none for −1, which keeps the current one.
fn optional(argument: u64) -> Option<u32> {
    Some(low_u32(argument)).filter(|&id| id != u32::MAX)
}

fn setuid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let uid = optional(a[0]).ok_or(Errno::EINVAL)?;
    update(kernel, |cred| cred.set_uid(uid)).map(|()| 0)
}

fn setgid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let gid = optional(a[0]).ok_or(Errno::EINVAL)?;
    update(kernel, |cred| cred.set_gid(gid)).map(|()| 0)
}

fn setreuid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    update(kernel, |cred| {
        cred.set_reuid(optional(a[0]), optional(a[1]))
    })
    .map(|()| 0)
}

fn setregid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    update(kernel, |cred| {
        cred.set_regid(optional(a[0]), optional(a[1]))
    })
    .map(|()| 0)
}

fn setresuid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let wanted = [a[0], a[1], a[2]].map(optional);
    update(kernel, |cred| cred.set_resuid(wanted)).map(|()| 0)
}

fn setresgid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let wanted = [a[0], a[1], a[2]].map(optional);
    update(kernel, |cred| cred.set_resgid(wanted)).map(|()| 0)
}

fn setfsuid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    update(kernel, |cred| Ok(cred.set_fsuid(optional(a[0])).into()))
}

fn setfsgid(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    update(kernel, |cred| Ok(cred.set_fsgid(optional(a[0])).into()))
}

/// Writes real, effective and saved identifier.
fn write_three(kernel: &mut Kernel, a: &[u64; 6], ids: Identifiers) -> Result<u64, Errno> {
    for (&address, id) in a.iter().zip([ids.real, ids.effective, ids.saved]) {
        user::write(kernel.memory_mut(), address, &id)?;
    }
    Ok(0)
}

fn getgroups(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let groups = &kernel.processes[kernel.current].credentials().groups;
    let count = groups.len();
    match usize::try_from(low_i32(a[0])) {
        Err(_) => return Err(Errno::EINVAL),
        Ok(0) => {}
        Ok(room) if room < count => return Err(Errno::EINVAL),
        Ok(_) => {
            let memory = &mut kernel.spaces[kernel.current].memory;
            user::write_bytes(memory, a[1], groups.as_bytes())?;
        }
    }
    Ok(count as u64)
}

fn setgroups(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if !own(kernel).has(CAP_SETGID) {
        return Err(Errno::EPERM);
    }
    if low_u32(a[0]) > NGROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let count = u64::from(low_u32(a[0]));
    let groups: Vec<u32> = user::read_array(kernel.memory_mut(), a[1], count)?;
    update(kernel, |cred| cred.set_groups(groups)).map(|()| 0)
}

/// Reads the header of `capget` and `capset`; returns how many words each set has, and the task. For
/// an unknown version, stores the version that this kernel prefers.
fn capability_header(kernel: &mut Kernel, address: u64) -> Result<(usize, i32), Errno> {
    let header: UserCapHeader = user::read(kernel.memory_mut(), address)?;
    let words = match header.version {
        _LINUX_CAPABILITY_VERSION_1 => 1,
        _LINUX_CAPABILITY_VERSION_2 | _LINUX_CAPABILITY_VERSION_3 => 2,
        _ => {
            let preferred = _LINUX_CAPABILITY_VERSION_3;
            user::write(kernel.memory_mut(), address, &preferred)?;
            return Err(Errno::EINVAL);
        }
    };
    Ok((words, header.pid))
}

fn capget(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (words, tid) = match capability_header(kernel, a[0]) {
        // The caller only asks for the version.
        Err(Errno::EINVAL) if a[1] == 0 => return Ok(0),
        header => header?,
    };
    let tid = u64::try_from(tid).map_err(|_| Errno::EINVAL)?;
    let tid = find_task(kernel, tid)?;
    let pid = kernel.tasks.get(tid).ok_or(Errno::ESRCH)?.pid;
    let process = kernel.processes.get(pid).ok_or(Errno::ESRCH)?;
    let cred = process.credentials();
    let sets = [cred.effective, cred.permitted, cred.inheritable].map(Capabilities::bits);
    if a[1] == 0 {
        return Ok(0);
    }
    let data = [0, 32].map(|shift| {
        let [effective, permitted, inheritable] = sets.map(|set| low_u32(set >> shift));
        UserCapData {
            effective,
            permitted,
            inheritable,
        }
    });
    user::write_bytes(kernel.memory_mut(), a[1], data[..words].as_bytes())?;
    Ok(0)
}

fn capset(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (words, tid) = capability_header(kernel, a[0])?;
    if tid != 0 && tid.cast_unsigned() != kernel.task().tid {
        return Err(Errno::EPERM);
    }
    let data: Vec<UserCapData> = user::read_array(kernel.memory_mut(), a[1], words as u64)?;
    let set = |of: fn(&UserCapData) -> u32| {
        let bits = (data.iter().rev()).fold(0, |bits, word| bits << 32 | u64::from(of(word)));
        Capabilities::from_bits(bits)
    };
    let effective = set(|word| word.effective);
    let permitted = set(|word| word.permitted);
    let inheritable = set(|word| word.inheritable);
    update(kernel, |cred| {
        cred.set_capabilities(effective, permitted, inheritable)
    })?;
    Ok(0)
}

/// Serves the requests of `prctl` about rights.
///
/// # Errors
/// `EINVAL` for another request; `EPERM`.
pub(super) fn prctl(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [option, argument, rest @ .., _] = *a;
    let is_last = rest == [0; 3];
    match option {
        PR_CAPBSET_READ => {
            let one = Capabilities::one(argument).ok_or(Errno::EINVAL)?;
            return Ok(own(kernel).bounding.contains(one).into());
        }
        PR_CAPBSET_DROP => update(kernel, |cred| cred.drop_from_bounding(argument))?,
        PR_GET_KEEPCAPS => {
            return Ok((own(kernel).securebits & SECBIT_KEEP_CAPS != 0).into());
        }
        PR_SET_KEEPCAPS => update(kernel, |cred| cred.keep_capabilities(argument))?,
        PR_GET_SECUREBITS => return Ok(own(kernel).securebits.into()),
        PR_SET_SECUREBITS => update(kernel, |cred| cred.set_securebits(argument))?,
        PR_CAP_AMBIENT => return ambient(kernel, argument, rest),
        PR_SET_NO_NEW_PRIVS if argument == 1 && is_last => {
            kernel.process_mut().no_new_privileges = true;
        }
        PR_GET_NO_NEW_PRIVS if argument == 0 && is_last => {
            return Ok(kernel.process().no_new_privileges.into());
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `PR_CAP_AMBIENT`.
fn ambient(kernel: &mut Kernel, operation: u64, rest: [u64; 3]) -> Result<u64, Errno> {
    let [capability, end @ ..] = rest;
    if end != [0; 2] {
        return Err(Errno::EINVAL);
    }
    match operation {
        PR_CAP_AMBIENT_CLEAR_ALL if capability == 0 => update(kernel, |cred| {
            cred.ambient = Capabilities::NONE;
            Ok(0)
        }),
        _ if capability > CAP_LAST_CAP => Err(Errno::EINVAL),
        PR_CAP_AMBIENT_IS_SET => Ok(own(kernel).ambient.has(capability).into()),
        PR_CAP_AMBIENT_RAISE => update(kernel, |cred| cred.raise_ambient(capability)).map(|()| 0),
        PR_CAP_AMBIENT_LOWER => update(kernel, |cred| cred.lower_ambient(capability)).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}
