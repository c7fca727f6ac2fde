//! The task: its end, identity, limits, and the calls about other tasks, of which
//! there are none yet.

use super::Entry;
use crate::clock;
use crate::errno::Errno;
use crate::exit::End;
use crate::kernel::{Control, Kernel};
use crate::task::{Limit, PARENT, PID, limit};
use crate::user;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    Entry::new(90, "capget", capget),
    Entry::new(92, "personality", personality),
    Entry::new(93, "exit", exit),
    Entry::new(94, "exit_group", exit),
    Entry::new(95, "waitid", wait),
    Entry::new(96, "set_tid_address", set_tid_address),
    Entry::new(98, "futex", futex),
    Entry::new(99, "set_robust_list", set_robust_list),
    Entry::new(100, "get_robust_list", get_robust_list),
    Entry::new(118, "sched_setparam", sched_ok),
    Entry::new(119, "sched_setscheduler", sched_ok),
    Entry::new(120, "sched_getscheduler", sched_ok),
    Entry::new(121, "sched_getparam", sched_getparam),
    Entry::new(122, "sched_setaffinity", sched_setaffinity),
    Entry::new(123, "sched_getaffinity", sched_getaffinity),
    Entry::new(124, "sched_yield", sched_ok),
    Entry::new(125, "sched_get_priority_max", sched_priority),
    Entry::new(126, "sched_get_priority_min", sched_priority),
    Entry::new(140, "setpriority", setpriority),
    Entry::new(141, "getpriority", getpriority),
    Entry::new(144, "setgid", setgid),
    Entry::new(146, "setuid", setuid),
    Entry::new(147, "setresuid", setresuid),
    Entry::new(148, "getresuid", getresuid),
    Entry::new(149, "setresgid", setresgid),
    Entry::new(150, "getresgid", getresgid),
    Entry::new(153, "times", times),
    Entry::new(154, "setpgid", setpgid),
    Entry::new(155, "getpgid", getpgid),
    Entry::new(156, "getsid", getpgid),
    Entry::new(157, "setsid", setsid),
    Entry::new(158, "getgroups", getgroups),
    Entry::new(159, "setgroups", setgroups),
    Entry::new(163, "getrlimit", getrlimit),
    Entry::new(164, "setrlimit", setrlimit),
    Entry::new(165, "getrusage", getrusage),
    Entry::new(167, "prctl", prctl),
    Entry::new(168, "getcpu", getcpu),
    Entry::new(172, "getpid", |_, _| Ok(u64::from(PID))),
    Entry::new(173, "getppid", |_, _| Ok(u64::from(PARENT))),
    Entry::new(174, "getuid", |kernel, _| Ok(u64::from(kernel.task.uid))),
    Entry::new(175, "geteuid", |kernel, _| Ok(u64::from(kernel.task.uid))),
    Entry::new(176, "getgid", |kernel, _| Ok(u64::from(kernel.task.gid))),
    Entry::new(177, "getegid", |kernel, _| Ok(u64::from(kernel.task.gid))),
    Entry::new(178, "gettid", |_, _| Ok(u64::from(PID))),
    Entry::new(260, "wait4", wait),
    Entry::new(261, "prlimit64", prlimit64),
    Entry::new(283, "membarrier", membarrier),
    Entry::new(293, "rseq", rseq),
];

/// `exit` and `exit_group`: with one thread they are the same.
fn exit(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.control = Control::End(End::Exited(arguments[0] as u8));
    Ok(0)
}

/// A program without children.
fn wait(_: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    Err(Errno::ECHILD)
}

fn set_tid_address(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.task.clear_child_tid = arguments[0];
    Ok(u64::from(PID))
}

fn set_robust_list(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const HEAD_SIZE: u64 = 24;
    if arguments[1] != HEAD_SIZE {
        return Err(Errno::EINVAL);
    }
    kernel.task.robust_list = [arguments[0], arguments[1]];
    Ok(0)
}

fn get_robust_list(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_self(arguments[0])?;
    let [head, length] = kernel.task.robust_list;
    user::write(&mut kernel.memory, arguments[1], &head)?;
    user::write(&mut kernel.memory, arguments[2], &length)?;
    Ok(0)
}

/// Whether a process number means the program itself.
fn check_self(pid: u64) -> Result<(), Errno> {
    match pid as u32 {
        0 | PID => Ok(()),
        _ => Err(Errno::ESRCH),
    }
}

fn futex(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const WAIT: u64 = 0;
    const WAKE: u64 = 1;
    const REQUEUE: u64 = 3;
    const CMP_REQUEUE: u64 = 4;
    const WAIT_BITSET: u64 = 9;
    const WAKE_BITSET: u64 = 10;
    const CLOCK_REALTIME: u64 = 256;
    let [address, operation, value, timeout, ..] = *arguments;
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    match operation & 127 {
        WAIT | WAIT_BITSET => {
            let word: u32 = user::read(&mut kernel.memory, address)?;
            if word != value as u32 {
                return Err(Errno::EAGAIN);
            }
            let until = match timeout {
                0 => None,
                _ => {
                    let time = super::time::read_timespec(kernel, timeout)?;
                    let now = clock::monotonic();
                    Some(match operation & 127 {
                        WAIT => now.saturating_add(time),
                        _ if operation & CLOCK_REALTIME != 0 => {
                            now.saturating_add(time.saturating_sub(clock::realtime()))
                        }
                        _ => time,
                    })
                }
            };
            // Nobody else can wake the only thread: time or a signal ends it.
            super::time::sleep_until(kernel, until)?;
            Err(Errno::ETIMEDOUT)
        }
        WAKE | WAKE_BITSET => Ok(0),
        REQUEUE => Ok(0),
        CMP_REQUEUE => {
            let word: u32 = user::read(&mut kernel.memory, address)?;
            match word == arguments[5] as u32 {
                true => Ok(0),
                false => Err(Errno::EAGAIN),
            }
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// Scheduling policy `SCHED_OTHER` (0) is all there is.
fn sched_ok(_: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    Ok(0)
}

fn sched_priority(_: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    match arguments[0] {
        // SCHED_OTHER, SCHED_BATCH, SCHED_IDLE.
        0 | 3 | 5 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

fn sched_getparam(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_self(arguments[0])?;
    user::write(&mut kernel.memory, arguments[1], &0u32)?;
    Ok(0)
}

/// Bits of the processors that the program runs on.
fn cpu_mask(kernel: &Kernel) -> u64 {
    let cpus = kernel.host.boot().cpus.clamp(1, 64);
    u64::MAX >> (64 - cpus)
}

fn sched_setaffinity(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_self(arguments[0])?;
    let mut mask = [0; 8];
    let length = arguments[1].min(8);
    let bytes = user::slice(&mut kernel.memory, arguments[2], length)?;
    mask[..bytes.len()].copy_from_slice(bytes);
    match u64::from_le_bytes(mask) & cpu_mask(kernel) {
        0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

fn sched_getaffinity(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_self(arguments[0])?;
    if arguments[1] < 8 || !arguments[1].is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let mask = cpu_mask(kernel);
    user::write(&mut kernel.memory, arguments[2], &mask)?;
    Ok(8)
}

fn getcpu(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let cpu = kernel.hart().id as u32;
    for (address, value) in [(arguments[0], cpu), (arguments[1], 0)] {
        if address != 0 {
            user::write(&mut kernel.memory, address, &value)?;
        }
    }
    Ok(0)
}

fn setpriority(_: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_priority(arguments)
}

/// Nice value 0, as the system call encodes it.
fn getpriority(_: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_priority(arguments).map(|_| 20)
}

fn check_priority(arguments: &[u64; 6]) -> Result<u64, Errno> {
    const PRIO_PROCESS: u64 = 0;
    const PRIO_USER: u64 = 2;
    match arguments[0] {
        PRIO_PROCESS => check_self(arguments[1]).map(|()| 0),
        1 | PRIO_USER => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether the program may take an identity on: only root may take another.
fn check_identity(kernel: &Kernel, current: u32, wanted: &[u64]) -> Result<(), Errno> {
    let allowed = kernel.task.uid == 0
        || wanted
            .iter()
            .all(|&id| id as u32 == current || id as u32 == u32::MAX);
    allowed.then_some(()).ok_or(Errno::EPERM)
}

/// The identity a call asks for; −1 leaves it.
fn new_identity(current: u32, wanted: u64) -> u32 {
    match wanted as u32 {
        u32::MAX => current,
        id => id,
    }
}

fn setuid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.task.uid, &arguments[..1])?;
    kernel.task.uid = new_identity(kernel.task.uid, arguments[0]);
    Ok(0)
}

fn setgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.task.gid, &arguments[..1])?;
    kernel.task.gid = new_identity(kernel.task.gid, arguments[0]);
    Ok(0)
}

/// Real, effective and saved identity are one here: the effective one counts.
fn setresuid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.task.uid, &arguments[..3])?;
    kernel.task.uid = new_identity(kernel.task.uid, arguments[1]);
    Ok(0)
}

fn setresgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_identity(kernel, kernel.task.gid, &arguments[..3])?;
    kernel.task.gid = new_identity(kernel.task.gid, arguments[1]);
    Ok(0)
}

fn getresuid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.task.uid;
    write_three(kernel, arguments, id)
}

fn getresgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.task.gid;
    write_three(kernel, arguments, id)
}

fn write_three(kernel: &mut Kernel, arguments: &[u64; 6], id: u32) -> Result<u64, Errno> {
    for &address in &arguments[..3] {
        user::write(&mut kernel.memory, address, &id)?;
    }
    Ok(0)
}

fn setpgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_self(arguments[0])?;
    match arguments[1] as u32 {
        0 | PID => kernel.task.group = PID,
        _ => return Err(Errno::EPERM),
    }
    Ok(0)
}

fn getpgid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_self(arguments[0])?;
    Ok(u64::from(kernel.task.group))
}

/// The program leads its process group and session from the start.
fn setsid(_: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    Err(Errno::EPERM)
}

/// No supplementary groups.
fn getgroups(_: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    match arguments[0] as i32 {
        i32::MIN..0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

fn setgroups(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    match kernel.task.uid {
        0 => Ok(0),
        _ => Err(Errno::EPERM),
    }
}

/// All capabilities for root, none for others.
fn capget(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let [version, pid]: [u32; 2] = user::read(&mut kernel.memory, arguments[0])?;
    if version != VERSION_3 {
        user::write(&mut kernel.memory, arguments[0], &VERSION_3)?;
        return match arguments[1] {
            0 => Ok(0),
            _ => Err(Errno::EINVAL),
        };
    }
    check_self(u64::from(pid))?;
    if arguments[1] == 0 {
        return Ok(0);
    }
    let (low, high) = match kernel.task.uid {
        0 => (u32::MAX, 0x1ff),
        _ => (0, 0),
    };
    user::write(
        &mut kernel.memory,
        arguments[1],
        &[low, low, 0, high, high, 0],
    )?;
    Ok(0)
}

fn personality(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const QUERY: u32 = u32::MAX;
    let old = kernel.task.personality;
    if arguments[0] as u32 != QUERY {
        kernel.task.personality = arguments[0] as u32;
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
    check_self(pid)?;
    let index = usize::try_from(resource).map_err(|_| Errno::EINVAL)?;
    let current = *kernel.task.limits.get(index).ok_or(Errno::EINVAL)?;
    if new != 0 {
        let wanted: Limit = user::read(&mut kernel.memory, new)?;
        let too_many = index == limit::NOFILE && wanted.hard > 1 << 20;
        if wanted.soft > wanted.hard {
            return Err(Errno::EINVAL);
        }
        if (wanted.hard > current.hard && kernel.task.uid != 0) || too_many {
            return Err(Errno::EPERM);
        }
        kernel.task.limits[index] = wanted;
    }
    if old != 0 {
        user::write(&mut kernel.memory, old, &current)?;
    }
    Ok(0)
}

/// `struct rusage`.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct ResourceUsage {
    /// User time: seconds and microseconds.
    user: [u64; 2],
    /// System time.
    system: [u64; 2],
    /// Largest resident set, KiB.
    max_resident: u64,
    rest: [u64; 13],
}

const _: () = assert!(size_of::<ResourceUsage>() == 144);

/// The answer of a kernel built without restartable sequences. C libraries ask at their
/// start and do without, so it does not count as a call that is missing.
fn rseq(_: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    Err(Errno::ENOSYS)
}

fn getrusage(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const SELF: i32 = 0;
    const CHILDREN: i32 = -1;
    const THREAD: i32 = 1;
    let mut usage = ResourceUsage {
        user: [0; 2],
        system: [0; 2],
        max_resident: 0,
        rest: [0; 13],
    };
    match arguments[0] as i32 {
        SELF | THREAD => {
            // All time counts as the program's: the library OS is part of it.
            let time = clock::since_boot();
            usage.user = [time / clock::SECOND, time % clock::SECOND / 1000];
            usage.max_resident = kernel.memory.frames().lock().peak() >> 10;
        }
        CHILDREN => {}
        _ => return Err(Errno::EINVAL),
    }
    user::write(&mut kernel.memory, arguments[1], &usage)?;
    Ok(0)
}

fn times(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const TICK: u64 = clock::SECOND / crate::stack::CLOCK_TICKS;
    if arguments[0] != 0 {
        let user_ticks = clock::since_boot() / TICK;
        user::write(&mut kernel.memory, arguments[0], &[user_ticks, 0, 0, 0])?;
    }
    Ok(clock::monotonic() / TICK)
}

fn prctl(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const SET_PDEATHSIG: u64 = 1;
    const GET_PDEATHSIG: u64 = 2;
    const GET_DUMPABLE: u64 = 3;
    const SET_DUMPABLE: u64 = 4;
    const SET_NAME: u64 = 15;
    const GET_NAME: u64 = 16;
    const CAPBSET_READ: u64 = 23;
    const SET_NO_NEW_PRIVS: u64 = 38;
    const GET_NO_NEW_PRIVS: u64 = 39;
    let [option, argument, ..] = *arguments;
    match option {
        SET_PDEATHSIG if argument <= 64 => kernel.task.parent_death_signal = argument,
        GET_PDEATHSIG => {
            let signal = kernel.task.parent_death_signal as u32;
            user::write(&mut kernel.memory, argument, &signal)?;
        }
        GET_DUMPABLE => return Ok(kernel.task.dumpable),
        SET_DUMPABLE if argument <= 1 => kernel.task.dumpable = argument,
        SET_NAME => {
            let name = user::cstr(&mut kernel.memory, argument, 16);
            let name = match name {
                // Longer names are cut.
                Err(Errno::ENAMETOOLONG) => user::slice(&mut kernel.memory, argument, 15)?.to_vec(),
                name => name?,
            };
            kernel.task.name = [0; 16];
            kernel.task.name[..name.len()].copy_from_slice(&name);
        }
        GET_NAME => {
            let name = kernel.task.name;
            user::write(&mut kernel.memory, argument, &name)?;
        }
        CAPBSET_READ if argument <= 40 => return Ok(u64::from(kernel.task.uid == 0)),
        SET_NO_NEW_PRIVS if argument == 1 => kernel.task.no_new_privileges = true,
        GET_NO_NEW_PRIVS => return Ok(u64::from(kernel.task.no_new_privileges)),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// With one thread every barrier holds already.
fn membarrier(_: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const QUERY: u64 = 0;
    /// GLOBAL, PRIVATE_EXPEDITED and its registration.
    const SUPPORTED: u64 = 1 | 1 << 3 | 1 << 4;
    match arguments[0] {
        QUERY => Ok(SUPPORTED),
        command if command.is_power_of_two() && command & SUPPORTED != 0 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
