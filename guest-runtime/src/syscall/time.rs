//! Clocks and sleeping.

use super::Entry;
use crate::arch::clock::{self, SECOND};
use crate::convert::low_i32;
use crate::kernel::Kernel;
use crate::kernel::task::Wait;
use crate::kernel::timers::CpuClock;
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::nr;
use hartline_linux::time::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE,
    CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPUTIME_ID, CLOCK_REALTIME, CLOCK_REALTIME_ALARM,
    CLOCK_REALTIME_COARSE, CLOCK_TAI, CLOCK_THREAD_CPUTIME_ID, CPUCLOCK_CLOCK_MASK,
    CPUCLOCK_PERTHREAD_MASK, TIMER_ABSTIME,
};

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::nanosleep, nanosleep),
    (nr::clock_gettime, clock_gettime),
    (nr::clock_getres, clock_getres),
    (nr::clock_nanosleep, clock_nanosleep),
    (nr::gettimeofday, gettimeofday),
];

/// Least time between two looks at a CPU-time clock, ns.
const LEAST_PAUSE: u64 = 1_000_000;

/// Returns the time of a clock, ns.
pub(super) fn read_clock(kernel: &mut Kernel, id: u64) -> Result<u64, Errno> {
    match id {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_REALTIME_ALARM | CLOCK_TAI => {
            Ok(clock::realtime())
        }
        CLOCK_MONOTONIC
        | CLOCK_MONOTONIC_RAW
        | CLOCK_MONOTONIC_COARSE
        | CLOCK_BOOTTIME
        | CLOCK_BOOTTIME_ALARM => Ok(clock::monotonic()),
        _ => {
            let clock = cpu_clock(kernel, id)?;
            Ok(kernel.cpu_time(clock))
        }
    }
}

/// Returns the CPU-time clock `id`: `CLOCK_PROCESS_CPUTIME_ID`, `CLOCK_THREAD_CPUTIME_ID`, or a
/// clock of clock_getcpuclockid(3).
///
/// # Errors
/// `EINVAL` for another clock, or if there is no such process or thread.
pub(super) fn cpu_clock(kernel: &mut Kernel, id: u64) -> Result<CpuClock, Errno> {
    const PROCESS: i32 = low_i32(CLOCK_PROCESS_CPUTIME_ID);
    const THREAD: i32 = low_i32(CLOCK_THREAD_CPUTIME_ID);
    let (pid, tid) = (kernel.process().pid, kernel.task().tid);
    let id = low_i32(id);
    match id {
        PROCESS => return Ok(CpuClock::Process(pid)),
        THREAD => return Ok(CpuClock::Thread(tid)),
        // `CLOCKFD`
        _ if id >= 0 || id & CPUCLOCK_CLOCK_MASK == CPUCLOCK_CLOCK_MASK => {
            return Err(Errno::EINVAL);
        }
        _ => {}
    }
    // The other bits are the complement of the process or thread number.
    let number = !(id >> 3);
    let number = number.cast_unsigned();
    if id & CPUCLOCK_PERTHREAD_MASK != 0 {
        let tid = if number == 0 { tid } else { number };
        let task = kernel.program_task(tid);
        let is_own = task.is_some_and(|task| task.pid == pid);
        return is_own.then_some(CpuClock::Thread(tid)).ok_or(Errno::EINVAL);
    }
    let number = if number == 0 { pid } else { number };
    let process = kernel.processes.get_mut(number).ok_or(Errno::EINVAL)?;
    match process.is_zombie() {
        true => Err(Errno::EINVAL),
        false => Ok(CpuClock::Process(number)),
    }
}

/// Reads a `struct timespec` as nanoseconds.
///
/// # Errors
/// `EINVAL` if a field is negative or out of range, `EFAULT`.
pub fn read_timespec(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    let [seconds, nanoseconds]: [u64; 2] = user::read(kernel.memory_mut(), address)?;
    if seconds > i64::MAX as u64 || nanoseconds >= SECOND {
        return Err(Errno::EINVAL);
    }
    Ok(seconds.saturating_mul(SECOND).saturating_add(nanoseconds))
}

fn write_timespec(kernel: &mut Kernel, address: u64, time: u64) -> Result<(), Errno> {
    let value = [time / SECOND, time % SECOND];
    user::write(kernel.memory_mut(), address, &value)
}

/// Sleeps until a time of `CLOCK_MONOTONIC`; [`task::NEVER`](crate::wait::time::NEVER) means for
/// ever. A restarted call keeps its first deadline.
///
/// # Errors
/// `EINTR` if a signal interrupts the sleep.
pub fn sleep_until(kernel: &mut Kernel, until: u64) -> Result<(), Errno> {
    let until = kernel.task().retry.map_or(until, |retry| retry.deadline);
    match until <= clock::monotonic() {
        true => Ok(()),
        false => Err(kernel.block(Wait::until(until), 0)),
    }
}

fn clock_gettime(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let time = read_clock(kernel, arguments[0])?;
    write_timespec(kernel, arguments[1], time)?;
    Ok(0)
}

fn clock_getres(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    read_clock(kernel, arguments[0])?;
    if arguments[1] != 0 {
        write_timespec(kernel, arguments[1], 1)?;
    }
    Ok(0)
}

fn gettimeofday(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    if arguments[0] != 0 {
        let time = clock::realtime();
        let value = [time / SECOND, time % SECOND / 1000];
        user::write(kernel.memory_mut(), arguments[0], &value)?;
    }
    if arguments[1] != 0 {
        user::write(kernel.memory_mut(), arguments[1], &[0u32; 2])?;
    }
    Ok(0)
}

fn nanosleep(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let time = read_timespec(kernel, arguments[0])?;
    sleep_for(kernel, time, arguments[1])
}

/// Sleeps for `time` ns; if a signal interrupts the sleep, stores the remaining time at `rest`.
fn sleep_for(kernel: &mut Kernel, time: u64, rest: u64) -> Result<u64, Errno> {
    let until = kernel.deadline(time.min(u64::MAX - 1));
    let result = sleep_until(kernel, until);
    if result == Err(Errno::EINTR) && rest != 0 {
        let left = until.saturating_sub(clock::monotonic());
        write_timespec(kernel, rest, left)?;
    }
    result.map(|()| 0)
}

fn clock_nanosleep(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, flags, request, rest, ..] = *arguments;
    let now = read_clock(kernel, id)?;
    // Linux cannot sleep by these clocks.
    if matches!(
        id,
        CLOCK_MONOTONIC_RAW
            | CLOCK_REALTIME_COARSE
            | CLOCK_MONOTONIC_COARSE
            | CLOCK_THREAD_CPUTIME_ID
    ) {
        return Err(Errno::EOPNOTSUPP);
    }
    let time = read_timespec(kernel, request)?;
    if let Ok(clock) = cpu_clock(kernel, id) {
        return sleep_by_cpu_time(kernel, clock, flags, time, rest);
    }
    if flags & TIMER_ABSTIME == 0 {
        return sleep_for(kernel, time, rest);
    }
    let until = clock::monotonic().saturating_add(time.saturating_sub(now));
    sleep_until(kernel, until).map(|()| 0)
}

/// Sleeps until a process has used CPU time: up to `time` ns of its clock, or `time` ns from now on.
fn sleep_by_cpu_time(
    kernel: &mut Kernel,
    of: CpuClock,
    flags: u64,
    time: u64,
    rest: u64,
) -> Result<u64, Errno> {
    // The caller itself uses no CPU time while it sleeps.
    if of == CpuClock::Thread(kernel.task().tid) {
        return Err(Errno::EINVAL);
    }
    let now = kernel.cpu_time(of);
    let is_absolute = flags & TIMER_ABSTIME != 0;
    let until = match kernel.progress() {
        _ if is_absolute => time,
        0 => now.saturating_add(time),
        until => until,
    };
    let left = until.saturating_sub(now);
    if left == 0 {
        return Ok(0);
    }
    // The threads of a process may use CPU time on all vCPUs.
    let pause = (left / kernel.cpus.len().max(1) as u64).max(LEAST_PAUSE);
    let again = clock::monotonic().saturating_add(pause);
    let error = kernel.block(Wait::until(again), until);
    if error == Errno::EINTR && rest != 0 && !is_absolute {
        write_timespec(kernel, rest, left)?;
    }
    Err(error)
}
