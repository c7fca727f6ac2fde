//! Scheduling attributes that tasks have and show: `sched_setattr`, `ioprio_set` and their like.

use super::Entry;
use super::task::{check_task, find_task, scheduled, set_policy};
use crate::convert::{low_i32, low_u8, low_u16, low_u32, sign_extended};
use crate::kernel::Kernel;
use crate::kernel::process::Process;
use crate::kernel::task::{Policy, Task};
use crate::mm::user;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::capability::{CAP_SYS_ADMIN, CAP_SYS_NICE};
use hartline_linux::errno::Errno;
use hartline_linux::ioprio::{
    IOPRIO_CLASS_BE, IOPRIO_CLASS_IDLE, IOPRIO_CLASS_NONE, IOPRIO_CLASS_RT, IOPRIO_CLASS_SHIFT,
    IOPRIO_LEVEL_MASK, IOPRIO_WHO_PGRP, IOPRIO_WHO_PROCESS, IOPRIO_WHO_USER,
};
use hartline_linux::sched::{
    SCHED_FIFO, SCHED_FLAG_KEEP_PARAMS, SCHED_FLAG_KEEP_POLICY, SCHED_FLAG_RESET_ON_FORK, SCHED_RR,
    SchedAttr,
};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::ioprio_set, ioprio_set),
    (nr::ioprio_get, ioprio_get),
    (nr::sched_rr_get_interval, sched_rr_get_interval),
    (nr::sched_setattr, sched_setattr),
    (nr::sched_getattr, sched_getattr),
];

/// Size of a `struct sched_attr`, bytes.
const SIZE: u64 = size_of::<SchedAttr>() as u64;

/// Returns the time slice of a task.
fn sched_rr_get_interval(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    /// Time slice of `SCHED_RR` (`sched_rr_timeslice_ms`), and of other policies, ns.
    const SLICES: [u64; 2] = [100_000_000, 10_000_000];
    check_task(kernel, a[0])?;
    let slice = match scheduled(kernel, a[0])?.policy.number {
        SCHED_RR => SLICES[0],
        SCHED_FIFO => 0,
        _ => SLICES[1],
    };
    user::write(kernel.memory_mut(), a[1], &[0, slice])?;
    Ok(0)
}

/// Reads a `struct sched_attr`, whose size its first field says.
fn read_attributes(kernel: &mut Kernel, address: u64) -> Result<SchedAttr, Errno> {
    let size: u32 = user::read(kernel.memory_mut(), address)?;
    let size = match size {
        0 => SIZE,
        size => u64::from(size),
    };
    let known = user::read(kernel.memory_mut(), address);
    let rest = address.wrapping_add(SIZE);
    let is_valid = (SIZE..=PAGE_SIZE).contains(&size)
        && (user::slice(kernel.memory_mut(), rest, size - SIZE)?.to_vec())
            .iter()
            .all(|&byte| byte == 0);
    match is_valid {
        true => known,
        false => {
            user::write(kernel.memory_mut(), address, &low_u32(SIZE))?;
            Err(Errno::E2BIG)
        }
    }
}

fn sched_setattr(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const FLAGS: u64 = SCHED_FLAG_RESET_ON_FORK | SCHED_FLAG_KEEP_POLICY | SCHED_FLAG_KEEP_PARAMS;
    if a[1] == 0 || low_i32(a[0]) < 0 || low_u32(a[2]) != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = read_attributes(kernel, a[1])?;
    let has = |flag| wanted.sched_flags & flag != 0;
    if wanted.sched_policy.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let Task {
        policy: old,
        process,
        ..
    } = *scheduled(kernel, a[0])?;
    if wanted.sched_flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let mut new = Policy {
        number: wanted.sched_policy.into(),
        priority: wanted.sched_priority,
        resets: has(SCHED_FLAG_RESET_ON_FORK),
    };
    let mut nice = low_u8(sign_extended(wanted.sched_nice.clamp(-20, 19))).cast_signed();
    if has(SCHED_FLAG_KEEP_POLICY) {
        (new.number, new.resets) = (old.number, old.resets);
    }
    if has(SCHED_FLAG_KEEP_PARAMS) {
        new.priority = old.priority;
        nice = kernel.processes[process].nice;
    }
    set_policy(kernel, a[0], new, Some(nice))?;
    Ok(0)
}

fn sched_getattr(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let size = u64::from(low_u32(a[2]));
    if a[1] == 0 || low_i32(a[0]) < 0 || !(SIZE..=PAGE_SIZE).contains(&size) || low_u32(a[3]) != 0 {
        return Err(Errno::EINVAL);
    }
    let Task {
        policy, process, ..
    } = *scheduled(kernel, a[0])?;
    let attributes = SchedAttr {
        size: low_u32(SIZE),
        sched_policy: low_u32(policy.number),
        sched_flags: match policy.resets {
            true => SCHED_FLAG_RESET_ON_FORK,
            false => 0,
        },
        sched_nice: match policy.is_real_time() {
            true => 0,
            false => kernel.processes[process].nice.into(),
        },
        sched_priority: policy.priority,
        ..SchedAttr::default()
    };
    user::write(kernel.memory_mut(), a[1], &attributes)?;
    Ok(0)
}

/// Returns the tasks that `ioprio_set` and `ioprio_get` are about; 0 is the caller, its group or
/// its user.
fn io_tasks(kernel: &mut Kernel, which: u64, cred: u64) -> Result<Vec<u32>, Errno> {
    let number = low_u32(cred);
    let own = kernel.process();
    let (group, user) = match number {
        0 => (own.group, own.uid()),
        number => (number, number),
    };
    let of = |chosen: &dyn Fn(&Process) -> bool| {
        let tasks = kernel.tasks();
        let tasks = tasks.filter(|task| chosen(&kernel.processes[task.process]));
        tasks.map(|task| task.tid).collect::<Vec<_>>()
    };
    let tasks = match u64::from(low_u32(which)) {
        IOPRIO_WHO_PROCESS => Vec::from([find_task(kernel, cred)?]),
        IOPRIO_WHO_PGRP => of(&|process| process.group == group),
        IOPRIO_WHO_USER => of(&|process| process.uid() == user),
        _ => return Err(Errno::EINVAL),
    };
    match tasks.is_empty() {
        true => Err(Errno::ESRCH),
        false => Ok(tasks),
    }
}

/// Stores the priorities; requests to disks are served in their order.
fn ioprio_set(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let wanted = low_u32(a[2]);
    let (class, level) = (wanted >> IOPRIO_CLASS_SHIFT, wanted & IOPRIO_LEVEL_MASK);
    let own = Rc::clone(&kernel.process().files.cred);
    match class {
        IOPRIO_CLASS_RT if !own.has(CAP_SYS_ADMIN) && !own.has(CAP_SYS_NICE) => {
            return Err(Errno::EPERM);
        }
        IOPRIO_CLASS_RT | IOPRIO_CLASS_BE | IOPRIO_CLASS_IDLE => {}
        IOPRIO_CLASS_NONE if level == 0 => {}
        _ => return Err(Errno::EINVAL),
    }
    for tid in io_tasks(kernel, a[0], a[1])? {
        let Some(task) = kernel.tasks.get_mut(tid) else {
            continue;
        };
        let target = kernel.processes[task.process].credentials();
        let is_own = [own.user.effective, own.user.real].contains(&target.user.real);
        if !is_own && !own.has(CAP_SYS_NICE) {
            return Err(Errno::EPERM);
        }
        task.io_priority = low_u16(wanted.into());
    }
    Ok(0)
}

/// Returns the highest priority: that with the lowest number, where no class is the highest.
fn ioprio_get(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let tasks = io_tasks(kernel, a[0], a[1])?;
    let priorities = tasks.iter().filter_map(|&tid| kernel.tasks.get(tid));
    let best = priorities.map(|task| task.io_priority).min();
    best.map(u64::from).ok_or(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall::task::sched_priority;
    use hartline_linux::sched::{SCHED_BATCH, SCHED_OTHER};

    #[test]
    fn children_lose_what_a_policy_resets() {
        let policy = |number, priority, resets| Policy {
            number,
            priority,
            resets,
        };
        assert_eq!(
            policy(SCHED_RR, 7, false).of_child(),
            policy(SCHED_RR, 7, false)
        );
        assert_eq!(
            policy(SCHED_RR, 7, true).of_child(),
            policy(SCHED_OTHER, 0, false)
        );
        assert_eq!(
            policy(SCHED_BATCH, 0, true).of_child(),
            policy(SCHED_BATCH, 0, false)
        );
        assert_eq!(
            (sched_priority(SCHED_RR, 99), sched_priority(9, 99)),
            (Ok(99), Err(Errno::EINVAL))
        );
    }
}
