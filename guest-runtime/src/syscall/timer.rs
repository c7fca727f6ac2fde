//! Timers: interval timers, POSIX timers, timerfds.

use super::Entry;
use super::files_fd::open_anonymous;
use super::time::cpu_clock;
use crate::arch::clock::{self, SECOND};
use crate::convert::{low_u32, sign_extended, to_usize};
use crate::file::timerfd::TimerFd;
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::kernel::signals::check_number;
use crate::kernel::timers::{CpuClock, Notification, Owner, PosixTimer};
use crate::mm::user;
use crate::wait::time::Timer;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_CLOEXEC, O_NONBLOCK};
use hartline_linux::siginfo::{SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD_ID, Sigevent};
use hartline_linux::signal::SIGALRM;
use hartline_linux::syscall::nr;
use hartline_linux::time::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_REALTIME_ALARM,
    CLOCK_TAI, ITIMER_PROF, ITIMER_REAL, ITIMER_VIRTUAL, TIMER_ABSTIME,
};
use hartline_linux::timerfd::{TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET};

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::timerfd_create, timerfd_create),
    (nr::timerfd_settime, timerfd_settime),
    (nr::timerfd_gettime, timerfd_gettime),
    (nr::getitimer, getitimer),
    (nr::setitimer, setitimer),
    (nr::timer_create, timer_create),
    (nr::timer_gettime, timer_gettime),
    (nr::timer_getoverrun, timer_getoverrun),
    (nr::timer_settime, timer_settime),
    (nr::timer_delete, timer_delete),
];

/// The clocks that timers accept.
const CLOCKS: [u64; 5] = [
    CLOCK_REALTIME,
    CLOCK_MONOTONIC,
    CLOCK_BOOTTIME,
    CLOCK_REALTIME_ALARM,
    CLOCK_BOOTTIME_ALARM,
];
/// The most timers of a process.
const MAX_TIMERS: usize = 8192;

/// Returns the current time of a timer's clock, which runs at the rate of `CLOCK_MONOTONIC`, ns.
fn now_of(clock: u64) -> u64 {
    match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_ALARM | CLOCK_TAI => clock::realtime(),
        _ => clock::monotonic(),
    }
}

/// Reads a `struct itimerspec`, interval first.
fn read_spec(kernel: &mut Kernel, address: u64) -> Result<[u64; 2], Errno> {
    let value: [[u64; 2]; 2] = user::read(kernel.memory_mut(), address)?;
    let mut times = [0; 2];
    for (time, [seconds, nanoseconds]) in times.iter_mut().zip(value) {
        if seconds > i64::MAX as u64 || nanoseconds >= SECOND {
            return Err(Errno::EINVAL);
        }
        *time = seconds.saturating_mul(SECOND).saturating_add(nanoseconds);
    }
    Ok(times)
}

fn write_spec(kernel: &mut Kernel, address: u64, timer: Timer, now: u64) -> Result<(), Errno> {
    let left = timer.left(now);
    let split = |time: u64| [time / SECOND, time % SECOND];
    let value = [split(timer.interval), split(left)];
    user::write(kernel.memory_mut(), address, &value)
}

/// Returns the CPU-time timer for a `struct itimerspec`, where `now` is the current CPU time.
fn cpu_timer_of([interval, value]: [u64; 2], now: u64, flags: u64) -> Timer {
    let next = match (value, flags & TIMER_ABSTIME) {
        (0, _) => return Timer::default(),
        (_, 0) => now.saturating_add(value),
        _ => value,
    };
    Timer { next, interval }
}

/// Returns the `CLOCK_MONOTONIC` timer for a `struct itimerspec`.
fn timer_of([interval, value]: [u64; 2], clock: u64, flags: u64) -> Timer {
    let now = clock::monotonic();
    let left = match flags & TIMER_ABSTIME {
        0 => value,
        _ => value.saturating_sub(now_of(clock)),
    };
    let next = match value {
        0 => 0,
        _ => now.saturating_add(left).min(u64::MAX - 1),
    };
    Timer { next, interval }
}

fn timerfd_create(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[1]);
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 || !CLOCKS.contains(&a[0]) {
        return Err(Errno::EINVAL);
    }
    let timer = TimerFd {
        clock: a[0],
        ..TimerFd::default()
    };
    open_anonymous(kernel, Rc::new(timer), flags)
}

/// Returns a timerfd and its description.
fn timerfd(kernel: &Kernel, fd: u64) -> Result<(FileId, &TimerFd), Errno> {
    let id = kernel.file_id(fd)?;
    let file = kernel.vfs.files.get(id)?;
    let timer = file.object.downcast().ok_or(Errno::EINVAL)?;
    Ok((id, timer))
}

fn timerfd_settime(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    // Nothing sets the clock, so TFD_TIMER_CANCEL_ON_SET has no effect.
    if a[1] & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let spec = read_spec(kernel, a[2])?;
    kernel.run_timers();
    let (id, timer) = timerfd(kernel, a[0])?;
    timer.expirations.set(0);
    let new = timer_of(spec, timer.clock, a[1]);
    let old = kernel.arm(Owner::File(id), new);
    kernel.run_timers();
    match a[3] {
        0 => Ok(0),
        address => write_spec(kernel, address, old, clock::monotonic()).map(|()| 0),
    }
}

fn timerfd_gettime(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    kernel.run_timers();
    let timer = timerfd(kernel, a[0])?.1.timer.get();
    write_spec(kernel, a[1], timer, clock::monotonic())?;
    Ok(0)
}

/// Writes a timer as a `struct itimerval`.
fn write_interval(kernel: &mut Kernel, address: u64, timer: Timer, now: u64) -> Result<(), Errno> {
    // Rounded up, so that an armed timer never shows zero.
    let left = timer.left(now).div_ceil(1000) * 1000;
    let split = |time: u64| [time / SECOND, time % SECOND / 1000];
    let value = [split(timer.interval), split(left)];
    user::write(kernel.memory_mut(), address, &value)
}

/// Returns an interval timer of the running process, and the current time of its clock.
fn interval_timer(kernel: &mut Kernel, which: u64) -> Result<(Timer, u64), Errno> {
    match which {
        ITIMER_REAL => {
            kernel.run_timers();
            Ok((kernel.process().timers.real, clock::monotonic()))
        }
        ITIMER_VIRTUAL | ITIMER_PROF => {
            let timer = kernel.process().timers.cpu[to_usize(which) - 1];
            let pid = kernel.process().pid;
            Ok((timer, kernel.cpu_time(CpuClock::Process(pid))))
        }
        _ => Err(Errno::EINVAL),
    }
}

fn getitimer(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (timer, now) = interval_timer(kernel, a[0])?;
    write_interval(kernel, a[1], timer, now)?;
    Ok(0)
}

fn setitimer(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const MICROSECONDS: u64 = 1_000_000;
    let (old, now) = interval_timer(kernel, a[0])?;
    let value: [[u64; 2]; 2] = match a[1] {
        0 => [[0; 2]; 2],
        address => user::read(kernel.memory_mut(), address)?,
    };
    let mut times = [0; 2];
    for (time, [seconds, microseconds]) in times.iter_mut().zip(value) {
        if seconds > i64::MAX as u64 || microseconds >= MICROSECONDS {
            return Err(Errno::EINVAL);
        }
        *time = seconds
            .saturating_mul(SECOND)
            .saturating_add(microseconds * 1000);
    }
    let [interval, left] = times;
    let new = match left {
        0 => Timer::default(),
        _ => Timer {
            next: now.saturating_add(left).min(u64::MAX - 1),
            interval,
        },
    };
    match a[0] {
        ITIMER_REAL => {
            let owner = Owner::Real(kernel.process().pid);
            kernel.arm(owner, new);
        }
        which => {
            kernel.process_mut().timers.cpu[to_usize(which) - 1] = new;
            kernel.start_ticking();
        }
    }
    if a[2] != 0 {
        write_interval(kernel, a[2], old, now)?;
    }
    Ok(0)
}

fn notification(kernel: &mut Kernel, address: u64, number: u32) -> Result<Notification, Errno> {
    if address == 0 {
        return Ok(Notification {
            signal: Some(SIGALRM),
            value: u64::from(number),
            thread: None,
        });
    }
    let event: Sigevent = user::read(kernel.memory_mut(), address)?;
    let signal = check_number(sign_extended(event.sigev_signo));
    let (signal, thread) = match event.sigev_notify {
        SIGEV_NONE => (None, None),
        SIGEV_SIGNAL => (Some(signal?), None),
        SIGEV_THREAD_ID => {
            let own = kernel.process().pid;
            let task = kernel.program_task(event.sigev_notify_thread_id);
            let task = task.ok_or(Errno::EINVAL)?;
            if task.pid != own {
                return Err(Errno::EINVAL);
            }
            (Some(signal?), Some(event.sigev_notify_thread_id))
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(Notification {
        signal,
        value: event.sigev_value,
        thread,
    })
}

fn timer_create(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let cpu = match a[0] {
        clock if CLOCKS.contains(&clock) || clock == CLOCK_TAI => None,
        clock => Some(cpu_clock(kernel, clock)?),
    };
    if matches!(cpu, Some(CpuClock::Process(pid)) if pid != kernel.process().pid) {
        // The CPU time of other processes is not watched.
        return Err(Errno::EOPNOTSUPP);
    }
    let timers = &kernel.process().timers.posix;
    if timers.len() >= MAX_TIMERS || !kernel.may_queue_signal(kernel.process()) {
        return Err(Errno::EAGAIN);
    }
    let number = timers
        .last_key_value()
        .map_or(0, |(&last, _)| last.wrapping_add(1));
    let notification = notification(kernel, a[1], number)?;
    user::write(kernel.memory_mut(), a[2], &number)?;
    let timer = PosixTimer {
        clock: a[0],
        cpu,
        timer: Timer::default(),
        notification,
        overrun: 0,
        last_overrun: 0,
    };
    kernel.process_mut().timers.posix.insert(number, timer);
    Ok(0)
}

fn posix_timer(kernel: &mut Kernel, number: u64) -> Result<&mut PosixTimer, Errno> {
    let timers = &mut kernel.process_mut().timers.posix;
    timers.get_mut(&low_u32(number)).ok_or(Errno::EINVAL)
}

fn timer_gettime(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    kernel.run_timers();
    let cpu = posix_timer(kernel, a[0])?.cpu;
    let now = now_of_timer(kernel, cpu);
    let posix = posix_timer(kernel, a[0])?;
    // A timer with a pending signal stands still.
    posix.catch_up(now);
    let timer = posix.timer;
    write_spec(kernel, a[1], timer, now)?;
    Ok(0)
}

/// Returns the current time of a POSIX timer's clock: `CLOCK_MONOTONIC`, or CPU time.
fn now_of_timer(kernel: &mut Kernel, cpu: Option<CpuClock>) -> u64 {
    match cpu {
        Some(cpu) => kernel.cpu_time(cpu),
        None => clock::monotonic(),
    }
}

fn timer_settime(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if a[2] == 0 {
        return Err(Errno::EINVAL);
    }
    let &mut PosixTimer { clock, cpu, .. } = posix_timer(kernel, a[0])?;
    let spec = read_spec(kernel, a[2])?;
    let now = now_of_timer(kernel, cpu);
    let posix = posix_timer(kernel, a[0])?;
    (posix.overrun, posix.last_overrun) = (0, 0);
    let old = if cpu.is_some() {
        let new = cpu_timer_of(spec, now, a[1]);
        let old = core::mem::replace(&mut posix.timer, new);
        kernel.process_mut().timers.has_cpu = true;
        kernel.start_ticking();
        old
    } else {
        let owner = Owner::Posix(kernel.process().pid, low_u32(a[0]));
        let old = kernel.arm(owner, timer_of(spec, clock, a[1]));
        kernel.run_timers();
        old
    };
    match a[3] {
        0 => Ok(0),
        address => write_spec(kernel, address, old, now).map(|()| 0),
    }
}

fn timer_getoverrun(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    Ok(u64::from(
        posix_timer(kernel, a[0])?.last_overrun.unsigned_abs(),
    ))
}

fn timer_delete(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    posix_timer(kernel, a[0])?;
    let owner = Owner::Posix(kernel.process().pid, low_u32(a[0]));
    kernel.arm(owner, Timer::default());
    kernel.process_mut().timers.posix.remove(&low_u32(a[0]));
    Ok(0)
}
