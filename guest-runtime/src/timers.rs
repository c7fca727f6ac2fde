//! Timers that act by themselves: timerfds, POSIX timers, interval timers.
//!
//! A timer lies with its owner, an open file description or a process. Here is only when
//! to look at it; an entry that is no longer true is dropped when its time comes.

use crate::clock;
use crate::kernel::Kernel;
use crate::signals::SigInfo;
use crate::task::NEVER;
use crate::vfs::file::Object;
use crate::vfs::process::FileId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::{SIGALRM, SIGPROF, SIGVTALRM};

/// Entries of the queue beyond which those that are no longer true are looked for.
const CROWDED: usize = 4096;

/// Most by which the VMM is asked to look too early, ns: the rest is waited for.
const MOST_EARLY: u64 = 80_000;

/// What any timer may be late, ns, before the guest leaves the VM for it: what Linux lets
/// sleeps of ordinary threads be (`PR_SET_TIMERSLACK`, which is not there).
const SLACK: u64 = 50_000;

/// A time that may come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timer {
    /// When it expires next, ns of its clock; 0: it is not armed.
    pub next: u64,
    /// Time between expirations, ns; 0: it expires once.
    pub interval: u64,
}

impl Timer {
    /// Time until it expires, ns; 0 if it is not armed.
    #[must_use]
    pub fn left(&self, now: u64) -> u64 {
        match self.next {
            0 => 0,
            next => next.saturating_sub(now).max(1),
        }
    }

    /// Lets it expire as often as it should have by now; the result is how often.
    pub fn expire(&mut self, now: u64) -> u64 {
        if self.next == 0 || self.next > now {
            return 0;
        }
        let Some(periods) = (now - self.next).checked_div(self.interval) else {
            self.next = 0;
            return 1;
        };
        let count = periods + 1;
        self.next = self
            .next
            .saturating_add(count.saturating_mul(self.interval));
        count
    }
}

/// A timerfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerFd {
    /// Its clock.
    pub clock: u64,
    /// Its time, of `CLOCK_MONOTONIC`.
    pub timer: Timer,
    /// Expirations that nobody has read.
    pub expirations: u64,
    /// Expirations ever, for edges.
    pub edges: u32,
}

/// How a POSIX timer tells that it has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// The signal; none: it does not tell.
    pub signal: Option<u8>,
    /// `si_value`.
    pub value: u64,
    /// The thread that gets it; none: the process.
    pub thread: Option<u32>,
}

/// Whose processor time a clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuClock {
    /// That of a process.
    Process(u32),
    /// That of a thread.
    Thread(u32),
}

/// A timer of `timer_create`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixTimer {
    /// Its clock.
    pub clock: u64,
    /// The processor time that its clock shows, if it shows that.
    pub cpu: Option<CpuClock>,
    /// Its time: of `CLOCK_MONOTONIC`, or of the processor time.
    pub timer: Timer,
    /// How it tells.
    pub notification: Notification,
    /// Expirations since the signal that was sent last.
    pub overrun: u64,
}

/// Timers of a process.
#[derive(Debug, Clone, Default)]
pub struct ProcessTimers {
    /// `ITIMER_REAL`, of `CLOCK_MONOTONIC`.
    pub real: Timer,
    /// `ITIMER_VIRTUAL` and `ITIMER_PROF`, of the processor time of the process.
    pub cpu: [Timer; 2],
    /// POSIX timers by number.
    pub posix: BTreeMap<u32, PosixTimer>,
    /// There may be an armed one of processor time among them.
    pub has_cpu: bool,
}

/// Whose timer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A timerfd.
    File(FileId),
    /// `ITIMER_REAL` of a process.
    Real(u32),
    /// A POSIX timer: process and number.
    Posix(u32, u32),
}

/// When to look at which timer.
#[derive(Debug, Default)]
pub struct TimerQueue {
    entries: BTreeSet<(u64, Owner)>,
    /// What the VMM knows of the next time.
    announced: u64,
    /// How much earlier it is asked to look, ns: about as late as it comes.
    early: u64,
}

impl TimerQueue {
    /// When the first one expires, ns of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.entries.first().map(|&(at, _)| at)
    }

    /// Takes one out whose time has come.
    fn pop(&mut self, now: u64) -> Option<Owner> {
        match self.first() {
            Some(at) if at <= now => self.entries.pop_first().map(|(_, owner)| owner),
            _ => None,
        }
    }
}

impl Kernel {
    /// A timer, if there is one that acts by itself.
    fn timer(&mut self, owner: Owner) -> Option<&mut Timer> {
        match owner {
            Owner::File(id) => match &mut self.files.vfs.files.get_mut(id).ok()?.object {
                Object::Timer(file) => Some(&mut file.timer),
                _ => None,
            },
            Owner::Real(pid) => Some(&mut self.process_mut(pid)?.timers.real),
            Owner::Posix(pid, number) => {
                let timers = &mut self.process_mut(pid)?.timers;
                timers.posix.get_mut(&number).map(|posix| &mut posix.timer)
            }
        }
    }

    /// Sets a timer of `CLOCK_MONOTONIC`; the result is what it was.
    pub(crate) fn arm(&mut self, owner: Owner, new: Timer) -> Timer {
        let Some(timer) = self.timer(owner) else {
            return Timer::default();
        };
        let old = core::mem::replace(timer, new);
        self.timers.entries.remove(&(old.next, owner));
        if new.next != 0 {
            if self.timers.entries.len() >= CROWDED {
                self.forget_stale_timers();
            }
            self.timers.entries.insert((new.next, owner));
            self.scheduler.has_news |= self.timers.first() == Some(new.next);
            // A program that computes is interrupted.
            self.start_ticking();
            self.announce_time();
        }
        old
    }

    fn forget_stale_timers(&mut self) {
        let mut entries = core::mem::take(&mut self.timers.entries);
        entries.retain(|&(at, owner)| self.timer(owner).is_some_and(|timer| timer.next == at));
        self.timers.entries = entries;
    }

    /// Has the VMM ask for attention when the next thing happens by itself, earlier by as
    /// much as it was late before.
    pub(crate) fn announce_time(&mut self) {
        let first = self.first_time().unwrap_or(NEVER);
        if core::mem::replace(&mut self.timers.announced, first) != first {
            let early = if first == NEVER { 0 } else { self.timers.early };
            let at = first.saturating_sub(early);
            self.host.announce_time(at, first.saturating_add(SLACK));
        }
    }

    /// The VMM asked for attention: waits for the rest of the time if it is early, and learns
    /// from how late or early that was.
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

    /// Lets all timers act whose time has come.
    pub(crate) fn run_timers(&mut self) {
        let now = clock::monotonic();
        if self.timers.first().is_none_or(|first| first > now) {
            return;
        }
        let before = self.scheduler.begin_urgent();
        while let Some(owner) = self.timers.pop(now) {
            let Some(timer) = self.timer(owner) else {
                continue;
            };
            let count = timer.expire(now);
            let next = timer.next;
            if next != 0 {
                self.timers.entries.insert((next, owner));
            }
            if count > 0 {
                self.act(owner, count);
            }
        }
        self.wake_for_files();
        self.scheduler.end_urgent(before);
        self.announce_time();
    }

    fn act(&mut self, owner: Owner, count: u64) {
        match owner {
            Owner::File(id) => {
                let Ok(file) = self.files.vfs.files.get_mut(id) else {
                    return;
                };
                let ino = file.ino;
                if let Object::Timer(timer) = &mut file.object {
                    timer.expirations = timer.expirations.saturating_add(count);
                    timer.edges = timer.edges.wrapping_add(1);
                }
                self.files.vfs.changed.push(ino);
            }
            Owner::Real(pid) => {
                self.signal_process(pid, SigInfo::sent(SIGALRM, SI_KERNEL, 0, 0));
            }
            Owner::Posix(pid, number) => self.notify(pid, number, count),
        }
    }

    /// Sends the signal of a POSIX timer, unless the one before is still pending.
    fn notify(&mut self, pid: u32, number: u32, count: u64) {
        let pending = self.is_timer_pending(pid, number);
        let Some(process) = self.process_mut(pid) else {
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
        let overrun = i32::try_from(posix.overrun).unwrap_or(i32::MAX);
        let info = SigInfo::timer(signal, number, overrun, posix.notification.value);
        match posix.notification.thread {
            Some(tid) => self.signal_thread(tid, info),
            None => self.signal_process(pid, info),
        }
    }

    /// Sends the signals of interval timers of processor time.
    pub(crate) fn run_cpu_timers(&mut self) {
        self.run_posix_cpu_timers();
        if self.process.timers.cpu == [Timer::default(); 2] {
            return;
        }
        let pid = self.process.pid;
        let now = self.cpu_time(CpuClock::Process(pid));
        for (which, signal) in [SIGVTALRM, SIGPROF].into_iter().enumerate() {
            if self.process.timers.cpu[which].expire(now) > 0 {
                let info = SigInfo::sent(signal, SI_KERNEL, 0, 0);
                self.signal_process(self.process.pid, info);
            }
        }
    }
}

impl Kernel {
    /// Lets POSIX timers of processor time act, of the running process.
    fn run_posix_cpu_timers(&mut self) {
        if !self.process.timers.has_cpu {
            return;
        }
        let posix = self.process.timers.posix.iter();
        let armed = posix.filter(|(_, posix)| posix.timer.next != 0);
        let armed: Vec<_> = armed
            .filter_map(|(&number, posix)| Some((number, posix.cpu?)))
            .collect();
        self.process.timers.has_cpu = !armed.is_empty();
        for (number, cpu) in armed {
            let now = self.cpu_time(cpu);
            let posix = self.process.timers.posix.get_mut(&number);
            let count = posix.map_or(0, |posix| posix.timer.expire(now));
            if count > 0 {
                self.notify(self.process.pid, number, count);
            }
        }
    }

    /// Processor time that was used up to now, also on other vCPUs, ns; 0 if there is no
    /// such process or thread.
    pub(crate) fn cpu_time(&mut self, of: CpuClock) -> u64 {
        self.account_time();
        let now = clock::monotonic();
        let (used, running): (u64, Vec<usize>) = match of {
            CpuClock::Process(pid) => {
                let tasks = self.threads(pid);
                let running = self.cpus_running(|tid| tasks.contains(&tid));
                let process = self.process_mut(pid);
                (process.map_or(0, |process| process.cpu_time), running)
            }
            CpuClock::Thread(tid) => {
                let running = self.cpus_running(|running| running == tid);
                let task = self.task_mut(tid);
                (task.map_or(0, |task| task.cpu_time), running)
            }
        };
        let since = |cpu: usize| now.saturating_sub(self.cpus[cpu].started);
        used + running.into_iter().map(since).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expirations_are_counted() {
        let mut timer = Timer {
            next: 100,
            interval: 10,
        };
        assert_eq!((timer.expire(99), timer.left(99)), (0, 1));
        assert_eq!((timer.expire(100), timer.next), (1, 110));
        assert_eq!((timer.expire(139), timer.next), (3, 140));
        timer.interval = 0;
        assert_eq!((timer.expire(1000), timer.next), (1, 0));
        assert_eq!((timer.expire(2000), timer.left(0)), (0, 0));
    }
}
