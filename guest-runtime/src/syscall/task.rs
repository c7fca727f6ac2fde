//! The task: its exit, identity and limits.

use super::Entry;
use crate::arch::clock;
use crate::arch::cpus;
use crate::kernel::exit::End;
use crate::kernel::process::Process;
use crate::kernel::timers::CpuClock;
use crate::kernel::{Control, Kernel};
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::capability::{_LINUX_CAPABILITY_VERSION_3, CAP_LAST_CAP};
use hartline_linux::errno::Errno;
use hartline_linux::limits::NGROUPS_MAX;
use hartline_linux::membarrier::{
    MEMBARRIER_CMD_GLOBAL, MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_QUERY,
    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
};
use hartline_linux::prctl::{
    PR_CAPBSET_READ, PR_GET_DUMPABLE, PR_GET_NAME, PR_GET_NO_NEW_PRIVS, PR_GET_PDEATHSIG,
    PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG,
};
use hartline_linux::resource::{
    PRIO_PGRP, PRIO_PROCESS, PRIO_USER, RLIMIT_CPU, RLIMIT_NOFILE, RUSAGE_CHILDREN, RUSAGE_SELF,
    RUSAGE_THREAD, Rlimit64, Rusage, Timeval,
};
use hartline_linux::sched::{
    SCHED_BATCH, SCHED_FIFO, SCHED_IDLE, SCHED_OTHER, SCHED_RESET_ON_FORK, SCHED_RR,
};
use hartline_linux::signal::_NSIG;
use hartline_linux::syscall::nr;
use zerocopy::IntoBytes;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::capget, capget),
    (nr::personality, personality),
    (nr::exit, exit),
    (nr::exit_group, exit_group),
    (nr::set_tid_address, set_tid_address),
    (nr::sched_setparam, sched_setparam),
    (nr::sched_setscheduler, sched_setscheduler),
    (nr::sched_getscheduler, sched_getscheduler),
    (nr::sched_getparam, sched_getparam),
    (nr::sched_setaffinity, sched_setaffinity),
    (nr::sched_getaffinity, sched_getaffinity),
    (nr::sched_yield, sched_yield),
    (nr::sched_get_priority_max, |_, a| sched_priority(a[0], 99)),
    (nr::sched_get_priority_min, |_, a| sched_priority(a[0], 1)),
    (nr::setpriority, setpriority),
    (nr::getpriority, getpriority),
    (nr::setregid, setregid),
    (nr::setgid, setgid),
    (nr::setreuid, setreuid),
    (nr::setuid, setuid),
    (nr::setresuid, setresuid),
    (nr::getresuid, getresuid),
    (nr::setresgid, setresgid),
    (nr::getresgid, getresgid),
    (nr::times, times),
    (nr::getgroups, getgroups),
    (nr::setgroups, setgroups),
    (nr::getrlimit, getrlimit),
    (nr::setrlimit, setrlimit),
    (nr::getrusage, getrusage),
    (nr::prctl, prctl),
    (nr::getcpu, getcpu),
    (nr::getpid, |kernel, _| Ok(u64::from(kernel.process().pid))),
    (nr::getppid, |kernel, _| {
        Ok(u64::from(kernel.process().parent))
    }),
    (nr::getuid, |kernel, _| Ok(u64::from(kernel.process().uid))),
    (nr::geteuid, |kernel, _| Ok(u64::from(kernel.process().uid))),
    (nr::getgid, |kernel, _| Ok(u64::from(kernel.process().gid))),
    (nr::getegid, |kernel, _| Ok(u64::from(kernel.process().gid))),
    (nr::gettid, |kernel, _| Ok(u64::from(kernel.task().tid))),
    (nr::prlimit64, prlimit64),
    (nr::membarrier, membarrier),
];

/// Ends the thread; if it is the last one, ends the process.
fn exit(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    if kernel.process().threads == 1 {
        return exit_group(kernel, arguments);
    }
    kernel.end_thread();
    kernel.control = Control::Replaced;
    Ok(0)
}

fn exit_group(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.control = Control::End(End::Exited(arguments[0] as u8));
    Ok(0)
}

fn set_tid_address(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.task_mut().clear_child_tid = arguments[0];
    Ok(u64::from(kernel.task().tid))
}

/// Returns the task with the number `tid`; 0 is the caller.
pub(super) fn find_task(kernel: &mut Kernel, tid: u64) -> Result<u32, Errno> {
    match tid as u32 {
        0 => Ok(kernel.task().tid),
        tid if kernel.tasks.contains(tid) => Ok(tid),
        _ => Err(Errno::ESRCH),
    }
}

/// Checks that a task has the number `tid`.
fn check_task(kernel: &mut Kernel, tid: u64) -> Result<(), Errno> {
    match tid as i32 {
        ..0 => Err(Errno::EINVAL),
        _ => find_task(kernel, tid).map(|_| ()),
    }
}

/// Returns the process with the number `pid`; 0 is the caller's.
pub(super) fn find_process(kernel: &mut Kernel, pid: u64) -> Result<&mut Process, Errno> {
    match pid as u32 {
        0 => Ok(kernel.process_mut()),
        pid => kernel.processes.get_mut(pid).ok_or(Errno::ESRCH),
    }
}

/// Checks that the priority at `address` is valid for a scheduling policy.
fn check_policy(kernel: &mut Kernel, policy: u64, address: u64) -> Result<(), Errno> {
    if address == 0 {
        return Err(Errno::EINVAL);
    }
    let range = sched_priority(policy, 1)?..=sched_priority(policy, 99)?;
    let priority: u32 = user::read(kernel.memory_mut(), address)?;
    match range.contains(&u64::from(priority)) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// Checks the parameters; every task stays `SCHED_OTHER`.
fn sched_setparam(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_task(kernel, arguments[0])?;
    check_policy(kernel, SCHED_OTHER, arguments[1])?;
    Ok(0)
}

/// Checks the arguments; other policies are accepted and have no effect.
fn sched_setscheduler(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_task(kernel, arguments[0])?;
    check_policy(kernel, arguments[1] & !SCHED_RESET_ON_FORK, arguments[2])?;
    Ok(0)
}

fn sched_getscheduler(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_task(kernel, arguments[0])?;
    Ok(0)
}

fn sched_yield(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    // The result must be stored before another task runs.
    kernel.hart().set_x(10, 0);
    if kernel.yield_now() {
        kernel.control = Control::Replaced;
    }
    Ok(0)
}

/// Returns the priority for a policy: `real_time` if the policy has priorities.
fn sched_priority(policy: u64, real_time: u64) -> Result<u64, Errno> {
    match policy {
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE => Ok(0),
        SCHED_FIFO | SCHED_RR => Ok(real_time),
        _ => Err(Errno::EINVAL),
    }
}

fn sched_getparam(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_task(kernel, arguments[0])?;
    if arguments[1] == 0 {
        return Err(Errno::EINVAL);
    }
    user::write(kernel.memory_mut(), arguments[1], &0u32)?;
    Ok(0)
}

/// Returns the mask of the program's vCPUs.
fn cpu_mask(kernel: &Kernel) -> u64 {
    let cpus = kernel.host.boot().cpus.clamp(1, 64);
    u64::MAX >> (64 - cpus)
}

fn sched_setaffinity(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let tid = find_task(kernel, arguments[0])?;
    let mut mask = [0; 8];
    let length = arguments[1].min(8);
    let bytes = user::slice(kernel.memory_mut(), arguments[2], length)?;
    bytes.copy_to(&mut mask[..bytes.len()]);
    let mask = u64::from_le_bytes(mask);
    if mask & cpu_mask(kernel) == 0 {
        return Err(Errno::EINVAL);
    }
    if let Some(task) = kernel.tasks.handle(tid) {
        kernel.tasks[task].affinity = mask;
        // The task may have to move to another vCPU.
        kernel.ask_task(task);
    }
    Ok(0)
}

fn sched_getaffinity(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let tid = find_task(kernel, arguments[0])?;
    if arguments[1] < 8 || !arguments[1].is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let affinity = kernel
        .tasks
        .get_mut(tid)
        .map_or(u64::MAX, |task| task.affinity);
    let mask = cpu_mask(kernel) & affinity;
    user::write(kernel.memory_mut(), arguments[2], &mask)?;
    Ok(8)
}

fn getcpu(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let cpu = kernel.hart().id as u32;
    for (address, value) in [(arguments[0], cpu), (arguments[1], 0)] {
        if address != 0 {
            user::write(kernel.memory_mut(), address, &value)?;
        }
    }
    Ok(0)
}

/// Stores the nice value; the scheduler ignores it.
fn setpriority(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_priority(kernel, arguments)?;
    let wanted = (arguments[2] as i32).clamp(-20, 19) as i8;
    if wanted < kernel.process().nice && kernel.process().uid != 0 {
        return Err(Errno::EACCES);
    }
    kernel.process_mut().nice = wanted;
    Ok(0)
}

/// Returns the nice value as the system call encodes it: 20 minus the value.
fn getpriority(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_priority(kernel, arguments)?;
    Ok((20 - i64::from(kernel.process().nice)).cast_unsigned())
}

fn check_priority(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    match arguments[0] {
        PRIO_PROCESS => find_task(kernel, arguments[1]).map(|_| 0),
        PRIO_PGRP | PRIO_USER => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether the program may take an identity: only root may change it.
fn check_identity(kernel: &Kernel, current: u32, wanted: &[u64]) -> Result<(), Errno> {
    let allowed = kernel.process().uid == 0
        || wanted
            .iter()
            .all(|&id| id as u32 == current || id as u32 == u32::MAX);
    allowed.then_some(()).ok_or(Errno::EPERM)
}

/// Returns the identity that a call sets; −1 keeps the current one.
fn new_identity(current: u32, wanted: u64) -> u32 {
    match wanted as u32 {
        u32::MAX => current,
        id => id,
    }
}

/// Changes the user; −1 keeps the current one.
fn set_uid(kernel: &mut Kernel, wanted: u64) {
    let uid = new_identity(kernel.process().uid, wanted);
    kernel.process_mut().uid = uid;
    let limits = kernel.process().memory_limits();
    kernel.memory_mut().set_limits(limits);
}

fn setuid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.process().uid, &arguments[..1])?;
    set_uid(kernel, arguments[0]);
    Ok(0)
}

fn setgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.process().gid, &arguments[..1])?;
    kernel.process_mut().gid = new_identity(kernel.process().gid, arguments[0]);
    Ok(0)
}

fn setreuid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.process().uid, &arguments[..2])?;
    set_uid(kernel, arguments[1]);
    Ok(0)
}

fn setregid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.process().gid, &arguments[..2])?;
    kernel.process_mut().gid = new_identity(kernel.process().gid, arguments[1]);
    Ok(0)
}

/// Sets the effective identity; the real and the saved one are the same here.
fn setresuid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.process().uid, &arguments[..3])?;
    set_uid(kernel, arguments[1]);
    Ok(0)
}

fn setresgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.process().gid, &arguments[..3])?;
    kernel.process_mut().gid = new_identity(kernel.process().gid, arguments[1]);
    Ok(0)
}

fn getresuid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.process().uid;
    write_three(kernel, arguments, id)
}

fn getresgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.process().gid;
    write_three(kernel, arguments, id)
}

fn write_three(kernel: &mut Kernel, arguments: &[u64; 6], id: u32) -> Result<u64, Errno> {
    for &address in &arguments[..3] {
        user::write(kernel.memory_mut(), address, &id)?;
    }
    Ok(0)
}

fn getgroups(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let groups = &kernel.processes[kernel.current].groups;
    let count = groups.len();
    match usize::try_from(arguments[0] as i32) {
        Err(_) => return Err(Errno::EINVAL),
        Ok(0) => {}
        Ok(room) if room < count => return Err(Errno::EINVAL),
        Ok(_) => {
            let memory = &mut kernel.spaces[kernel.current].memory;
            user::write_bytes(memory, arguments[1], groups.as_bytes())?;
        }
    }
    Ok(count as u64)
}

fn setgroups(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let count = match kernel.process().uid {
        0 if arguments[0] as u32 > NGROUPS_MAX => return Err(Errno::EINVAL),
        0 => arguments[0] & 0xffff_ffff,
        _ => return Err(Errno::EPERM),
    };
    let mut groups: Vec<u32> = user::read_array(kernel.memory_mut(), arguments[1], count)?;
    groups.sort_unstable();
    kernel.process_mut().groups = groups.into();
    Ok(0)
}

/// Reports all capabilities for root, none for other users.
fn capget(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [version, pid]: [u32; 2] = user::read(kernel.memory_mut(), arguments[0])?;
    if version != _LINUX_CAPABILITY_VERSION_3 {
        user::write(
            kernel.memory_mut(),
            arguments[0],
            &_LINUX_CAPABILITY_VERSION_3,
        )?;
        return match arguments[1] {
            0 => Ok(0),
            _ => Err(Errno::EINVAL),
        };
    }
    check_task(kernel, u64::from(pid))?;
    if arguments[1] == 0 {
        return Ok(0);
    }
    let (low, high) = match kernel.process().uid {
        0 => (u32::MAX, 0x1ff),
        _ => (0, 0),
    };
    user::write(
        kernel.memory_mut(),
        arguments[1],
        &[low, low, 0, high, high, 0],
    )?;
    Ok(0)
}

fn personality(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const QUERY: u32 = u32::MAX;
    let old = kernel.process().personality;
    if arguments[0] as u32 != QUERY {
        kernel.process_mut().personality = arguments[0] as u32;
    }
    Ok(u64::from(old))
}

fn getrlimit(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    prlimit64(kernel, &[0, arguments[0], 0, arguments[1], 0, 0])
}

fn setrlimit(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    prlimit64(kernel, &[0, arguments[0], arguments[1], 0, 0, 0])
}

fn prlimit64(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [pid, resource, new, old, ..] = *arguments;
    let index = usize::try_from(resource).map_err(|_| Errno::EINVAL)?;
    let is_root = kernel.process().uid == 0;
    let current = find_process(kernel, pid)?.limits.get(index).copied();
    let current = current.ok_or(Errno::EINVAL)?;
    if new != 0 {
        let wanted: Rlimit64 = user::read(kernel.memory_mut(), new)?;
        let too_many = index == RLIMIT_NOFILE && wanted.rlim_max > 1 << 20;
        if wanted.rlim_cur > wanted.rlim_max {
            return Err(Errno::EINVAL);
        }
        if (wanted.rlim_max > current.rlim_max && !is_root) || too_many {
            return Err(Errno::EPERM);
        }
        if index == RLIMIT_CPU {
            // Programs that compute are to notice it.
            kernel.start_ticking();
        }
        let process = find_process(kernel, pid)?;
        process.limits[index] = wanted;
        let (space, limits) = (process.space, process.memory_limits());
        // The address space of a zombie is gone.
        if !process.is_zombie() {
            kernel.spaces[space].memory.set_limits(limits);
        }
    }
    if old != 0 {
        user::write(kernel.memory_mut(), old, &current)?;
    }
    Ok(0)
}

/// The resource usage for a CPU time, ns. All of it counts as user time: the library OS is part of
/// the program.
pub(super) fn usage_of(time: u64) -> Rusage {
    Rusage {
        ru_utime: Timeval {
            tv_sec: (time / clock::SECOND).cast_signed(),
            tv_usec: (time % clock::SECOND / 1000).cast_signed(),
        },
        ..Rusage::default()
    }
}

fn getrusage(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let mut usage;
    match arguments[0] as i32 {
        who @ (RUSAGE_SELF | RUSAGE_THREAD) => {
            let clock = match who {
                RUSAGE_SELF => CpuClock::Process(kernel.process().pid),
                _ => CpuClock::Thread(kernel.task().tid),
            };
            usage = usage_of(kernel.cpu_time(clock));
            usage.ru_maxrss = kernel.memory().frames().lock().peak() >> 10;
        }
        RUSAGE_CHILDREN => usage = usage_of(kernel.process().children_time),
        _ => return Err(Errno::EINVAL),
    }
    user::write(kernel.memory_mut(), arguments[1], &usage)?;
    Ok(0)
}

fn times(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const TICK: u64 = clock::SECOND / crate::kernel::stack::CLOCK_TICKS;
    if arguments[0] != 0 {
        let own = kernel.cpu_time(CpuClock::Process(kernel.process().pid)) / TICK;
        let children = kernel.process().children_time / TICK;
        user::write(kernel.memory_mut(), arguments[0], &[own, 0, children, 0])?;
    }
    Ok(clock::monotonic() / TICK)
}

fn prctl(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [option, argument, ..] = *arguments;
    match option {
        PR_SET_PDEATHSIG if argument <= u64::from(_NSIG) => {
            kernel.process_mut().parent_death_signal = argument
        }
        PR_GET_PDEATHSIG => {
            let signal = kernel.process().parent_death_signal as u32;
            user::write(kernel.memory_mut(), argument, &signal)?;
        }
        PR_GET_DUMPABLE => return Ok(kernel.process().dumpable),
        PR_SET_DUMPABLE if argument <= 1 => kernel.process_mut().dumpable = argument,
        PR_SET_NAME => {
            let name = user::cstr(kernel.memory_mut(), argument, 16);
            let name = match name {
                // Longer names are truncated.
                Err(Errno::ENAMETOOLONG) => {
                    user::slice(kernel.memory_mut(), argument, 15)?.to_vec()
                }
                name => name?,
            };
            let task = kernel.task_mut();
            task.name = [0; 16];
            task.name[..name.len()].copy_from_slice(&name);
        }
        PR_GET_NAME => {
            let name = kernel.task().name;
            user::write(kernel.memory_mut(), argument, &name)?;
        }
        PR_CAPBSET_READ if argument <= CAP_LAST_CAP => {
            return Ok(u64::from(kernel.process().uid == 0));
        }
        PR_SET_NO_NEW_PRIVS if argument == 1 => kernel.process_mut().no_new_privileges = true,
        PR_GET_NO_NEW_PRIVS => return Ok(u64::from(kernel.process().no_new_privileges)),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Serves `membarrier`: a halted vCPU has made all its earlier memory accesses visible.
fn membarrier(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let others: Vec<usize> = match arguments[0] {
        MEMBARRIER_CMD_QUERY => {
            return Ok(MEMBARRIER_CMD_GLOBAL
                | MEMBARRIER_CMD_PRIVATE_EXPEDITED
                | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        }
        MEMBARRIER_CMD_GLOBAL => kernel.other_busy_cpus(),
        MEMBARRIER_CMD_PRIVATE_EXPEDITED => {
            cpus::users_of(kernel.memory().table_address()).collect()
        }
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED => Vec::new(),
        _ => return Err(Errno::EINVAL),
    };
    others.into_iter().for_each(cpus::halt);
    Ok(0)
}
