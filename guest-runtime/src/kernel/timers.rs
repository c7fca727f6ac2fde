//! Timers that expire by themselves: timerfds, POSIX timers, interval timers.
//!
//! A timer is stored in its owner, an open file description or a process. The queue here only
//! contains expiration times; a stale entry is dropped when its time comes.

use crate::arch::clock;
use crate::file::timerfd::TimerFd;
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::kernel::current::Current;
use crate::kernel::signals::{SigInfo, Signals};
use crate::wait::READABLE;
use crate::wait::time::{NEVER, Timer};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use hartline_linux::resource::{RLIM_INFINITY, RLIMIT_CPU};
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::{SIGALRM, SIGKILL, SIGPROF, SIGVTALRM, SIGXCPU};

/// Length of the queue above which stale entries are removed.
const CROWDED: usize = 4096;

/// Most that the VMM's kick is requested early, ns: the guest spins for the rest.
const MOST_EARLY: u64 = 80_000;

/// Delay of any timer that is accepted without leaving the VM, ns: the default timer slack of
/// ordinary threads on Linux (`PR_SET_TIMERSLACK` does not change it).
const SLACK: u64 = 50_000;

/// The notification of a POSIX timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// The signal; none: no notification.
    pub signal: Option<u8>,
    /// `si_value`.
    pub value: u64,
    /// The thread that receives the signal; none: the process.
    pub thread: Option<u32>,
}

/// The subject of a CPU-time clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuClock {
    /// The CPU time of a process.
    Process(u32),
    /// The CPU time of a thread.
    Thread(u32),
}

/// A timer of `timer_create`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixTimer {
    /// Number of the clock.
    pub clock: u64,
    /// The subject of the clock, if it is a CPU-time clock.
    pub cpu: Option<CpuClock>,
    /// The timer, in time of `CLOCK_MONOTONIC` or in CPU time.
    pub timer: Timer,
    /// The notification.
    pub notification: Notification,
    /// Expirations since the last signal was sent, without the first.
    pub overrun: u64,
    /// The overrun count of the last signal that was taken.
    pub last_overrun: i32,
}

/// Timers of a process.
#[derive(Debug, Clone, Default)]
pub struct ProcessTimers {
    /// `ITIMER_REAL`, in time of `CLOCK_MONOTONIC`.
    pub real: Timer,
    /// `ITIMER_VIRTUAL` and `ITIMER_PROF`, in CPU time of the process.
    pub cpu: [Timer; 2],
    /// POSIX timers by number.
    pub posix: BTreeMap<u32, PosixTimer>,
    /// Whether a CPU-time timer may be armed.
    pub has_cpu: bool,
}

impl PosixTimer {
    /// Counts the expirations up to `now` as overruns, if the timer repeats.
    pub fn catch_up(&mut self, now: u64) {
        if self.timer.interval != 0 {
            self.overrun = self.overrun.saturating_add(self.timer.expire(now));
        }
    }
}

/// The owner of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A timerfd.
    File(FileId),
    /// `ITIMER_REAL` of a process.
    Real(u32),
    /// A POSIX timer: process and number.
    Posix(u32, u32),
}

/// The expiration times of timers.
#[derive(Debug, Default)]
pub struct TimerQueue {
    entries: BTreeSet<(u64, Owner)>,
    /// The time that was announced to the VMM.
    announced: u64,
    /// How much earlier the VMM's kick is requested, ns: about as much as it is late.
    early: u64,
}

impl TimerQueue {
    /// Time of the next expiration, ns of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.entries.first().map(|&(at, _)| at)
    }

    /// Forgets the time that was announced, because there is another VMM.
    pub(super) fn forget_announced(&mut self) {
        self.announced = 0;
    }

    /// Removes an entry that has expired.
    fn pop(&mut self, now: u64) -> Option<Owner> {
        match self.first() {
            Some(at) if at <= now => self.entries.pop_first().map(|(_, owner)| owner),
            _ => None,
        }
    }
}

impl Kernel {
    /// Calls `change` with the timer of an owner, if it exists.
    fn with_timer<T>(&mut self, owner: Owner, change: impl FnOnce(&mut Timer) -> T) -> Option<T> {
        match owner {
            Owner::File(id) => {
                let file = self.vfs.files.get(id).ok()?;
                let TimerFd { timer, .. } = file.object.downcast()?;
                let mut new = timer.get();
                let result = change(&mut new);
                timer.set(new);
                Some(result)
            }
            Owner::Real(pid) => Some(change(&mut self.processes.get_mut(pid)?.timers.real)),
            Owner::Posix(pid, number) => {
                let timers = &mut self.processes.get_mut(pid)?.timers;
                Some(change(&mut timers.posix.get_mut(&number)?.timer))
            }
        }
    }

    /// Sets a timer of `CLOCK_MONOTONIC`; returns the old one.
    pub(crate) fn arm(&mut self, owner: Owner, new: Timer) -> Timer {
        let replaced = self.with_timer(owner, |timer| core::mem::replace(timer, new));
        let Some(old) = replaced else {
            return Timer::default();
        };
        self.timers.entries.remove(&(old.next, owner));
        if new.next != 0 {
            if self.timers.entries.len() >= CROWDED {
                self.forget_stale_timers();
            }
            self.timers.entries.insert((new.next, owner));
            self.scheduler.has_earlier_event |= self.timers.first() == Some(new.next);
            // Interrupt programs that compute.
            self.start_ticking();
            self.announce_time();
        }
        old
    }

    fn forget_stale_timers(&mut self) {
        let mut entries = core::mem::take(&mut self.timers.entries);
        entries.retain(|&(at, owner)| {
            let is_current = self.with_timer(owner, |timer| timer.next == at);
            is_current.unwrap_or(false)
        });
        self.timers.entries = entries;
    }

    /// Announces the next timer event to the VMM, so that it kicks the hart then; earlier by about
    /// as much as earlier kicks were late.
    pub(crate) fn announce_time(&mut self) {
        let first = self.first_time().unwrap_or(NEVER);
        if core::mem::replace(&mut self.timers.announced, first) != first {
            let early = if first == NEVER { 0 } else { self.timers.early };
            let at = first.saturating_sub(early);
            self.host.announce_time(at, first.saturating_add(SLACK));
        }
    }

    /// Handles the VMM's kick for a timer: spins for the rest of the time if the kick is early, and
    /// adapts the announcement to how late or early it was.
    pub(crate) fn await_announced(&mut self) {
        let at = self.timers.announced;
        if self.first_time() != Some(at) {
            return;
        }
        let now = clock::monotonic();
        let early = &mut self.timers.early;
        match at.checked_sub(now) {
            None => *early = (*early + (now - at).min(MOST_EARLY) / 2).min(MOST_EARLY),
            Some(left) if left <= *early => {
                *early -= left / 16;
                while clock::monotonic() < at {
                    core::hint::spin_loop();
                }
            }
            Some(_) => {}
        }
    }

    /// Handles all expired timers.
    pub(crate) fn run_timers(&mut self) {
        self.run_timers_until(clock::monotonic());
    }

    /// Handles the timers that expire up to `now`, ns of `CLOCK_MONOTONIC`.
    pub(crate) fn run_timers_until(&mut self, now: u64) {
        if self.timers.first().is_none_or(|first| first > now) {
            return;
        }
        let before = self.scheduler.begin_urgent();
        while let Some(owner) = self.timers.pop(now) {
            let expired = self.with_timer(owner, |timer| (timer.expire(now), timer.next));
            let Some((count, next)) = expired else {
                continue;
            };
            if count > 0 {
                self.act(owner, count);
            }
            if next != 0 && !self.awaits_signal(owner) {
                self.timers.entries.insert((next, owner));
            }
        }
        self.serve_wakeups();
        self.scheduler.end_urgent(before);
        self.announce_time();
    }

    /// Whether a timer stands still until its pending signal is taken.
    fn awaits_signal(&self, owner: Owner) -> bool {
        match owner {
            Owner::Posix(pid, number) => self.is_timer_pending(pid, number),
            Owner::File(_) | Owner::Real(_) => false,
        }
    }

    /// Before pending signals of `set` are taken: counts the expirations of their POSIX timers since
    /// the signals were sent, and starts these timers again.
    pub(crate) fn settle_timer_signals(&mut self, set: u64) {
        let process = &mut self.processes[self.current];
        let (pid, timers) = (process.pid, &mut process.timers.posix);
        let mut signals = Signals {
            process: &mut process.signals,
            thread: &mut self.tasks[self.current].signals,
        };
        let mut started = Vec::new();
        for info in signals.of_timers(set) {
            let number = info.timer_number().unwrap_or_default();
            let Some(posix) = timers.get_mut(&number) else {
                continue;
            };
            if posix.cpu.is_none() && posix.timer.next != 0 {
                posix.catch_up(clock::monotonic());
                started.push((posix.timer.next, Owner::Posix(pid, number)));
            }
            posix.last_overrun = i32::try_from(posix.overrun).unwrap_or(i32::MAX);
            *info = info.with_overrun(posix.last_overrun);
        }
        if !started.is_empty() {
            self.timers.entries.extend(started);
            self.announce_time();
        }
    }

    fn act(&mut self, owner: Owner, count: u64) {
        match owner {
            Owner::File(id) => {
                let Ok(file) = self.vfs.files.get(id) else {
                    return;
                };
                if let Some(timer) = file.object.downcast::<TimerFd>() {
                    let unread = timer.expirations.get();
                    timer.expirations.set(unread.saturating_add(count));
                    timer.waiters.wake(READABLE);
                }
            }
            Owner::Real(pid) => {
                self.signal_process(pid, SigInfo::sent(SIGALRM, SI_KERNEL, 0, 0));
            }
            Owner::Posix(pid, number) => self.notify(pid, number, count),
        }
    }

    /// Sends the signal of a POSIX timer, unless the previous one is still pending. The overrun count
    /// is set when the signal is taken.
    fn notify(&mut self, pid: u32, number: u32, count: u64) {
        let pending = self.is_timer_pending(pid, number);
        let Some(process) = self.processes.get_mut(pid) else {
            return;
        };
        let Some(posix) = process.timers.posix.get_mut(&number) else {
            return;
        };
        let Some(signal) = posix.notification.signal else {
            return;
        };
        if pending {
            posix.overrun = posix.overrun.saturating_add(count);
            return;
        }
        posix.overrun = count - 1;
        let info = SigInfo::timer(signal, number, 0, posix.notification.value);
        match posix.notification.thread {
            Some(tid) => self.signal_thread(tid, info),
            None => self.signal_process(pid, info),
        }
    }

    /// Sends the signals of interval timers in CPU time, and of `RLIMIT_CPU`.
    pub(crate) fn run_cpu_timers(&mut self) {
        self.check_cpu_limit();
        self.run_posix_cpu_timers();
        if self.process().timers.cpu == [Timer::default(); 2] {
            return;
        }
        let pid = self.process().pid;
        let now = self.cpu_time(CpuClock::Process(pid));
        for (which, signal) in [SIGVTALRM, SIGPROF].into_iter().enumerate() {
            if self.process_mut().timers.cpu[which].expire(now) > 0 {
                let info = SigInfo::sent(signal, SI_KERNEL, 0, 0);
                self.signal_process(self.process().pid, info);
            }
        }
    }
}

impl Kernel {
    /// Enforces `RLIMIT_CPU` of the running process: `SIGXCPU` at the soft limit and each second
    /// after it, `SIGKILL` at the hard limit.
    fn check_cpu_limit(&mut self) {
        let limit = self.process().limits[RLIMIT_CPU];
        if limit.rlim_cur == RLIM_INFINITY {
            return;
        }
        let pid = self.process().pid;
        let used = self.cpu_time(CpuClock::Process(pid)) / clock::SECOND;
        let signal = match used {
            _ if used >= limit.rlim_max => SIGKILL,
            _ if used >= limit.rlim_cur => {
                self.process_mut().limits[RLIMIT_CPU].rlim_cur += 1;
                SIGXCPU
            }
            _ => return,
        };
        self.signal_process(pid, SigInfo::sent(signal, SI_KERNEL, 0, 0));
    }

    /// Handles expired POSIX timers in CPU time of the running process.
    fn run_posix_cpu_timers(&mut self) {
        if !self.process().timers.has_cpu {
            return;
        }
        let posix = self.process().timers.posix.iter();
        let armed = posix.filter(|(_, posix)| posix.timer.next != 0);
        let armed: Vec<_> = armed
            .filter_map(|(&number, posix)| Some((number, posix.cpu?)))
            .collect();
        self.process_mut().timers.has_cpu = !armed.is_empty();
        for (number, cpu) in armed {
            let now = self.cpu_time(cpu);
            let posix = self.process_mut().timers.posix.get_mut(&number);
            let count = posix.map_or(0, |posix| posix.timer.expire(now));
            if count > 0 {
                self.notify(self.process().pid, number, count);
            }
        }
    }

    /// CPU time used so far, ns; 0 if there is no such process or thread.
    pub(crate) fn cpu_time(&self, of: CpuClock) -> u64 {
        let until_switch = match of {
            CpuClock::Process(pid) => self.processes.get(pid).map(|process| process.cpu_time),
            CpuClock::Thread(tid) => self.tasks.get(tid).map(|task| task.cpu_time),
        };
        let runs = |current: &Current| match of {
            CpuClock::Process(pid) => self.processes[*current].pid == pid,
            CpuClock::Thread(tid) => self.tasks[*current].tid == tid,
        };
        until_switch.map_or(0, |time| time + self.time_since_switch(runs))
    }
}
