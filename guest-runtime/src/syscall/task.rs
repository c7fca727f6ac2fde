//! The task: its exit, scheduling and limits.

use super::Entry;
use crate::arch::clock;
use crate::arch::cpus;
use crate::convert::{low_i32, low_u8, low_u32, sign_extended};
use crate::kernel::exit::End;
use crate::kernel::process::{Process, Status};
use crate::kernel::task::{Policy, Task};
use crate::kernel::timers::CpuClock;
use crate::kernel::{Control, Kernel};
use crate::mm::user;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::capability::{CAP_SYS_NICE, CAP_SYS_RESOURCE};
use hartline_linux::errno::Errno;
use hartline_linux::membarrier::{
    MEMBARRIER_CMD_GLOBAL, MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_PRIVATE_EXPEDITED,
    MEMBARRIER_CMD_QUERY, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
};
use hartline_linux::prctl::{
    PR_GET_CHILD_SUBREAPER, PR_GET_DUMPABLE, PR_GET_NAME, PR_GET_PDEATHSIG, PR_GET_SECCOMP,
    PR_GET_TIMERSLACK, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_MM, PR_SET_NAME,
    PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_TIMERSLACK,
};
use hartline_linux::resource::{
    PRIO_PGRP, PRIO_PROCESS, PRIO_USER, RLIMIT_CORE, RLIMIT_CPU, RLIMIT_NOFILE, RUSAGE_CHILDREN,
    RUSAGE_SELF, RUSAGE_THREAD, Rlimit64, Rusage, Timeval,
};
use hartline_linux::sched::{
    SCHED_BATCH, SCHED_FIFO, SCHED_IDLE, SCHED_OTHER, SCHED_RESET_ON_FORK, SCHED_RR,
};
use hartline_linux::signal::_NSIG;
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
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
    (nr::times, times),
    (nr::getrlimit, getrlimit),
    (nr::setrlimit, setrlimit),
    (nr::getrusage, getrusage),
    (nr::prctl, prctl),
    (nr::getcpu, getcpu),
    (nr::rseq, rseq),
    (nr::getpid, |kernel, _| Ok(u64::from(kernel.process().pid))),
    (nr::getppid, |kernel, _| {
        Ok(u64::from(kernel.process().parent))
    }),
    (nr::gettid, |kernel, _| Ok(u64::from(kernel.task().tid))),
    (nr::prlimit64, prlimit64),
    (nr::membarrier, membarrier),
];

/// Ends the thread; if it is the last one, ends the process.
fn exit(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    if kernel.process().threads == 1 {
        return exit_group(kernel, arguments);
    }
    kernel.end_thread(Status::Exited(low_u8(arguments[0])));
    kernel.control = Control::Replaced;
    Ok(0)
}

fn exit_group(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.control = Control::End(End::Exited(low_u8(arguments[0])));
    Ok(0)
}

fn set_tid_address(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.task_mut().clear_child_tid = arguments[0];
    Ok(u64::from(kernel.task().tid))
}

/// Returns the task with the number `tid`; 0 is the caller.
pub(super) fn find_task(kernel: &mut Kernel, tid: u64) -> Result<u32, Errno> {
    match low_u32(tid) {
        0 => Ok(kernel.task().tid),
        tid if kernel.program_task(tid).is_some() => Ok(tid),
        _ => Err(Errno::ESRCH),
    }
}

/// Checks that a task has the number `tid`.
pub(super) fn check_task(kernel: &mut Kernel, tid: u64) -> Result<(), Errno> {
    match low_i32(tid) {
        ..0 => Err(Errno::EINVAL),
        _ => find_task(kernel, tid).map(|_| ()),
    }
}

/// Returns the process with the number `pid`; 0 is the caller's.
pub(super) fn find_process(kernel: &mut Kernel, pid: u64) -> Result<&mut Process, Errno> {
    match low_u32(pid) {
        0 => Ok(kernel.process_mut()),
        pid => kernel.processes.get_mut(pid).ok_or(Errno::ESRCH),
    }
}

/// Reads a `struct sched_param`.
fn read_priority(kernel: &mut Kernel, address: u64) -> Result<u32, Errno> {
    match address {
        0 => Err(Errno::EINVAL),
        address => user::read(kernel.memory_mut(), address),
    }
}

/// Returns the task whose scheduling a call reads or changes; 0 is the caller.
pub(super) fn scheduled(kernel: &mut Kernel, tid: u64) -> Result<&mut Task, Errno> {
    let tid = find_task(kernel, tid)?;
    kernel.tasks.get_mut(tid).ok_or(Errno::ESRCH)
}

/// Checks that the running process may change the scheduling of the task `tid`.
fn check_scheduling(kernel: &mut Kernel, tid: u64) -> Result<(), Errno> {
    let process = scheduled(kernel, tid)?.process;
    let target = kernel.processes[process].credentials();
    match kernel.process().credentials().may_schedule(target) {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

/// Sets the policy that a task shows, and the nice value of its process.
pub(super) fn set_policy(
    kernel: &mut Kernel,
    tid: u64,
    new: Policy,
    nice: Option<i8>,
) -> Result<(), Errno> {
    let range = sched_priority(new.number, 1)?..=sched_priority(new.number, 99)?;
    if !range.contains(&u64::from(new.priority)) {
        return Err(Errno::EINVAL);
    }
    let Task {
        policy: old,
        process,
        ..
    } = *scheduled(kernel, tid)?;
    let is_privileged = kernel.process().has(CAP_SYS_NICE);
    if !is_privileged && !kernel.processes[process].may_change_policy(old, new, nice) {
        return Err(Errno::EPERM);
    }
    check_scheduling(kernel, tid)?;
    scheduled(kernel, tid)?.policy = new;
    if let Some(nice) = nice.filter(|_| !new.is_real_time()) {
        kernel.processes[process].nice = nice;
    }
    Ok(())
}

fn sched_setparam(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_task(kernel, arguments[0])?;
    let old = scheduled(kernel, arguments[0])?.policy;
    let priority = read_priority(kernel, arguments[1])?;
    set_policy(kernel, arguments[0], Policy { priority, ..old }, None)?;
    Ok(0)
}

fn sched_setscheduler(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_task(kernel, arguments[0])?;
    let policy = u64::from(low_u32(arguments[1]));
    let new = Policy {
        number: policy & !SCHED_RESET_ON_FORK,
        priority: read_priority(kernel, arguments[2])?,
        resets: policy & SCHED_RESET_ON_FORK != 0,
    };
    set_policy(kernel, arguments[0], new, None)?;
    Ok(0)
}

fn sched_getscheduler(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_task(kernel, arguments[0])?;
    let policy = scheduled(kernel, arguments[0])?.policy;
    Ok(match policy.resets {
        true => policy.number | SCHED_RESET_ON_FORK,
        false => policy.number,
    })
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
pub(super) fn sched_priority(policy: u64, real_time: u64) -> Result<u64, Errno> {
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
    let priority = scheduled(kernel, arguments[0])?.policy.priority;
    user::write(kernel.memory_mut(), arguments[1], &priority)?;
    Ok(0)
}

/// Returns the mask of the program's vCPUs.
fn cpu_mask(kernel: &Kernel) -> u64 {
    let cpus = kernel.host.boot().cpus.clamp(1, 64);
    u64::MAX >> (64 - cpus)
}

fn sched_setaffinity(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let tid = find_task(kernel, arguments[0])?;
    check_scheduling(kernel, tid.into())?;
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

fn rseq(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, length, flags, signature, ..] = *arguments;
    let area = (address, low_u32(length));
    kernel.register_sequences(area, low_i32(flags), low_u32(signature))?;
    Ok(0)
}

fn getcpu(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let cpu = low_u32(kernel.hart().id);
    for (address, value) in [(arguments[0], cpu), (arguments[1], 0)] {
        if address != 0 {
            user::write(kernel.memory_mut(), address, &value)?;
        }
    }
    Ok(0)
}

/// Stores the nice values; the scheduler ignores them.
fn setpriority(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let wanted = low_u8(sign_extended(low_i32(arguments[2]).clamp(-20, 19))).cast_signed();
    let own = Rc::clone(&kernel.process().files.cred);
    let mut result = Ok(0);
    for pid in prioritized(kernel, arguments)? {
        let Some(process) = kernel.processes.get_mut(pid) else {
            continue;
        };
        if !own.may_schedule(process.credentials()) {
            result = Err(Errno::EPERM);
        } else if wanted < process.nice && !process.may_have_nice(wanted) && !own.has(CAP_SYS_NICE)
        {
            result = Err(Errno::EACCES);
        } else {
            process.nice = wanted;
        }
    }
    result
}

/// Returns the highest priority as the system call encodes it: 20 minus the nice value.
fn getpriority(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let pids = prioritized(kernel, arguments)?;
    let processes = pids.iter().filter_map(|&pid| kernel.processes.get(pid));
    let lowest = processes.map(|process| process.nice).min();
    let lowest = lowest.ok_or(Errno::ESRCH)?;
    Ok((20 - i64::from(lowest)).cast_unsigned())
}

/// Returns the processes whose priority a call reads or changes; 0 is the caller, its group or its
/// user.
fn prioritized(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<Vec<u32>, Errno> {
    let who = low_u32(arguments[1]);
    let own = kernel.process();
    let (group, user) = match who {
        0 => (own.group, own.uid()),
        who => (who, who),
    };
    let chosen: Vec<u32> = match arguments[0] {
        PRIO_PROCESS => {
            let tid = find_task(kernel, arguments[1])?;
            kernel
                .tasks
                .get(tid)
                .map(|task| task.pid)
                .into_iter()
                .collect()
        }
        PRIO_PGRP => (kernel.processes())
            .filter(|process| process.group == group)
            .map(|process| process.pid)
            .collect(),
        PRIO_USER => (kernel.processes())
            .filter(|process| process.uid() == user)
            .map(|process| process.pid)
            .collect(),
        _ => return Err(Errno::EINVAL),
    };
    match chosen.is_empty() {
        true => Err(Errno::ESRCH),
        false => Ok(chosen),
    }
}

fn personality(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const QUERY: u32 = u32::MAX;
    let old = kernel.process().personality;
    if low_u32(arguments[0]) != QUERY {
        kernel.process_mut().personality = low_u32(arguments[0]);
    }
    Ok(u64::from(old))
}

fn getrlimit(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    prlimit64(kernel, &[0, arguments[0], 0, arguments[1], 0, 0])
}

fn setrlimit(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    prlimit64(kernel, &[0, arguments[0], arguments[1], 0, 0, 0])
}

/// Checks that the running process may see and change the limits of the process `pid`.
fn check_limit_of(kernel: &mut Kernel, pid: u64) -> Result<(), Errno> {
    let own = Rc::clone(&kernel.process().files.cred);
    let own_pid = kernel.process().pid;
    let process = find_process(kernel, pid)?;
    match process.pid == own_pid || own.may_limit(process.credentials()) {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

fn prlimit64(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [pid, resource, new, old, ..] = *arguments;
    let index = usize::try_from(resource).map_err(|_| Errno::EINVAL)?;
    check_limit_of(kernel, pid)?;
    let may_raise = kernel.process().has(CAP_SYS_RESOURCE);
    let current = find_process(kernel, pid)?.limits.get(index).copied();
    let current = current.ok_or(Errno::EINVAL)?;
    if new != 0 {
        let wanted: Rlimit64 = user::read(kernel.memory_mut(), new)?;
        let too_many = index == RLIMIT_NOFILE && wanted.rlim_max > 1 << 20;
        if wanted.rlim_cur > wanted.rlim_max {
            return Err(Errno::EINVAL);
        }
        if (wanted.rlim_max > current.rlim_max && !may_raise) || too_many {
            return Err(Errno::EPERM);
        }
        if index == RLIMIT_CPU {
            // Programs that compute are to notice it.
            kernel.start_ticking();
        }
        let process = find_process(kernel, pid)?;
        process.set_limit(index, wanted);
        let (pid, space, limits) = (process.pid, process.space, process.memory_limits());
        // The address space of a zombie is gone.
        if !process.is_zombie() {
            kernel.spaces[space].memory.set_limits(limits);
        }
        if index == RLIMIT_CORE {
            kernel.prepare_core(pid);
        }
    }
    if old != 0 {
        user::write(kernel.memory_mut(), old, &current)?;
    }
    Ok(0)
}

/// The resource usage for a CPU time of which a part is system time, ns.
pub(super) fn usage_of(time: u64, system: u64) -> Rusage {
    let timeval = |time: u64| Timeval {
        tv_sec: (time / clock::SECOND).cast_signed(),
        tv_usec: (time % clock::SECOND / 1000).cast_signed(),
    };
    Rusage {
        ru_utime: timeval(time.saturating_sub(system)),
        ru_stime: timeval(system),
        ..Rusage::default()
    }
}

/// Returns the CPU time of the running process, and the part of it that is system time, ns.
fn own_times(kernel: &mut Kernel) -> (u64, u64) {
    let time = kernel.cpu_time(CpuClock::Process(kernel.process().pid));
    let process = kernel.process_mut();
    process.add_system_time(0, time);
    (time, process.system_time)
}

fn getrusage(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let mut usage;
    match low_i32(arguments[0]) {
        who @ (RUSAGE_SELF | RUSAGE_THREAD) => {
            let (time, system) = match who {
                RUSAGE_SELF => own_times(kernel),
                _ => (kernel.cpu_time(CpuClock::Thread(kernel.task().tid)), 0),
            };
            usage = usage_of(time, system);
            usage.ru_maxrss = kernel.memory().frames().lock().peak() >> 10;
        }
        RUSAGE_CHILDREN => {
            let process = kernel.process();
            usage = usage_of(process.children_time, process.children_system_time);
        }
        _ => return Err(Errno::EINVAL),
    }
    user::write(kernel.memory_mut(), arguments[1], &usage)?;
    Ok(0)
}

fn times(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const TICK: u64 = clock::SECOND / crate::kernel::stack::CLOCK_TICKS;
    if arguments[0] != 0 {
        let (own, system) = own_times(kernel);
        let Process {
            children_time: children,
            children_system_time: children_system,
            ..
        } = *kernel.process();
        let times = [
            own - system,
            system,
            children - children_system,
            children_system,
        ];
        let ticks = times.map(|time| time / TICK);
        user::write(kernel.memory_mut(), arguments[0], &ticks)?;
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
            let signal = low_u32(kernel.process().parent_death_signal);
            user::write(kernel.memory_mut(), argument, &signal)?;
        }
        PR_GET_DUMPABLE => return Ok(kernel.process().files.dumpable),
        PR_SET_DUMPABLE if argument <= 1 => kernel.process_mut().files.set_dumpable(argument),
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
        PR_SET_CHILD_SUBREAPER => kernel.process_mut().is_subreaper = argument != 0,
        PR_GET_CHILD_SUBREAPER => {
            let is_subreaper = u32::from(kernel.process().is_subreaper);
            user::write(kernel.memory_mut(), argument, &is_subreaper)?;
        }
        PR_SET_MM => return super::process_strings::set(kernel, arguments),
        PR_SET_TIMERSLACK => {
            let task = kernel.task_mut();
            task.timer_slack[0] = match argument.cast_signed() {
                1.. => argument,
                _ => task.timer_slack[1],
            };
        }
        PR_GET_SECCOMP => return Ok(kernel.task().seccomp.mode()),
        PR_SET_SECCOMP => return super::seccomp::set_mode(kernel, argument, arguments[2]),
        PR_GET_TIMERSLACK => return Ok(kernel.task().timer_slack[0]),
        PR_GET_NAME => {
            let name = kernel.task().name;
            user::write(kernel.memory_mut(), argument, &name)?;
        }
        _ => return super::credentials::prctl(kernel, arguments),
    }
    Ok(0)
}

/// Serves `membarrier`: a halted vCPU has made all its earlier memory accesses visible.
fn membarrier(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [command, flags, ..] = *arguments;
    if low_u32(flags) != 0 {
        return Err(Errno::EINVAL);
    }
    let registered = kernel.space().barriers;
    let others: Vec<usize> = match u64::from(low_u32(command)) {
        MEMBARRIER_CMD_QUERY => {
            return Ok(MEMBARRIER_CMD_GLOBAL
                | MEMBARRIER_CMD_GLOBAL_EXPEDITED
                | MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED
                | MEMBARRIER_CMD_PRIVATE_EXPEDITED
                | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        }
        MEMBARRIER_CMD_GLOBAL | MEMBARRIER_CMD_GLOBAL_EXPEDITED => kernel.other_busy_cpus(),
        MEMBARRIER_CMD_PRIVATE_EXPEDITED
            if registered & MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED == 0 =>
        {
            return Err(Errno::EPERM);
        }
        MEMBARRIER_CMD_PRIVATE_EXPEDITED => {
            cpus::users_of(kernel.memory().table_address()).collect()
        }
        register @ (MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED
        | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) => {
            kernel.space_mut().barriers |= register;
            Vec::new()
        }
        _ => return Err(Errno::EINVAL),
    };
    others.into_iter().for_each(cpus::halt);
    Ok(0)
}
