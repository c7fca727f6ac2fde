//! Signals to the VMM are passed on to the program. A VM that does not react is ended.

use crate::calls::wait_for;
use crate::control::{Control, Stop};
use crate::interrupts::Reach;
use crate::kick;
use crate::platform::{self, Mapping};
use crate::signal_fd::{SignalFd, change_mask, sigset};
use crate::timers::{self, Times};
use hartline_abi::boot::Shared;
use hartline_abi::checkpoint;
use hartline_abi::hart::Pending;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The signal that requests statistics, if there is a receiver for them.
const STATISTICS: i32 = libc::SIGUSR1;
/// The signal that requests a snapshot, if one is to be written then. The guest takes it.
const SNAPSHOT: i32 = checkpoint::SIGNAL as i32;
const _: () = assert!(SNAPSHOT == libc::SIGUSR2);
/// Signals passed on. The program's default action for `SIGTSTP` stops this process
/// ([`stop_process`]).
const PASSED: [i32; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGWINCH,
];
/// Signals that an instruction of a thread causes. Blocking them would only hide the handlers of the process.
const SYNCHRONOUS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];
/// The time that the program has to end after `SIGTERM`.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Two `SIGINT` within this time end the VM, even if the program catches them, unless the program
/// manages the terminal itself.
const DOUBLE_INTERRUPT: Duration = Duration::from_secs(1);

/// The passed signals, blocked in this process (threads started later inherit the mask) and
/// readable from a descriptor. Signals that were ignored (`nohup`) stay ignored.
#[derive(Debug)]
pub struct SignalSet {
    taken: SignalFd,
    /// Signals that are requests to this process, and stay blocked.
    requests: Vec<i32>,
}

impl SignalSet {
    /// Blocks the signals, the one that requests statistics if `statistics` is set, and the one that
    /// requests a snapshot if `snapshot` is set.
    ///
    /// # Errors
    /// If the host has no descriptor left.
    pub fn block(statistics: bool, snapshot: bool) -> io::Result<Self> {
        let statistics = statistics.then_some(STATISTICS);
        let snapshot = snapshot.then_some(SNAPSHOT);
        let requests: Vec<_> = statistics.into_iter().chain(snapshot).collect();
        let taken = PASSED.iter().chain(&requests).copied();
        let taken: Vec<_> = taken.filter(|&signal| !ignored(signal)).collect();
        Ok(Self {
            taken: SignalFd::block(&taken)?,
            requests,
        })
    }

    /// Takes no signal. Threads that are started from now on, and this one, run no handlers of this process:
    /// all signals but `kick` and those that an instruction causes are blocked.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn leave(kick: i32) -> io::Result<Self> {
        let taken = SignalFd::block(&[])?;
        let mut set = sigset(&[])?;
        // SAFETY: the call initialises the local set.
        unsafe { libc::sigfillset(&raw mut set) };
        for signal in SYNCHRONOUS.into_iter().chain([kick]) {
            // SAFETY: the set is initialised. An unknown number is refused.
            unsafe { libc::sigdelset(&raw mut set, signal) };
        }
        change_mask(libc::SIG_SETMASK, &set)?;
        Ok(Self {
            taken,
            requests: Vec::new(),
        })
    }
}

impl Drop for SignalSet {
    /// Requests stay blocked. One that comes after the VM's end cannot be served, and its default action would end this process
    /// with another exit code than the program's.
    fn drop(&mut self) {
        self.taken.restore(&self.requests);
    }
}

fn ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is passed, so nothing changes. The kernel writes the present one to the
    // local structure, which is a valid one before: zeros are no flags and an empty mask.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Stops this process as the default action of `SIGTSTP` does, until it gets `SIGCONT`. It does not
/// stop if no process could continue it, or if it ignores the signal.
pub(crate) fn stop_process() {
    let Ok(set) = sigset(&[libc::SIGTSTP]) else {
        return;
    };
    if let Ok(before) = change_mask(libc::SIG_UNBLOCK, &set) {
        // SAFETY: the handle belongs to the calling thread, which lives. The thread does not block
        // the signal, whose action, the default one, stops the whole process.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTSTP) };
        // The set is one that the C library made, so the call cannot fail.
        let _ = change_mask(libc::SIG_SETMASK, &before);
    }
}

/// Watches a running VM.
pub struct Signals<'a> {
    ram: Arc<Mapping>,
    shared: Arc<Mapping>,
    control: Arc<Control>,
    set: SignalSet,
    /// Time and reason of the VM's end.
    deadline: Option<(Instant, Stop)>,
    last_interrupt: Option<Instant>,
    times: Arc<Times>,
    /// Reports statistics.
    statistics: Option<&'a dyn Fn()>,
    /// Is called once, at a time.
    later: Option<(Instant, &'a dyn Fn())>,
}

impl<'a> Signals<'a> {
    /// Watches a VM with these memories; it ends at `deadline` at the latest.
    #[must_use]
    pub fn new(
        ram: Arc<Mapping>,
        shared: Arc<Mapping>,
        control: Arc<Control>,
        set: SignalSet,
        deadline: Option<Instant>,
        times: Arc<Times>,
        statistics: Option<&'a dyn Fn()>,
    ) -> Self {
        let deadline = deadline.map(|at| (at, Stop::Timeout));
        Self {
            ram,
            shared,
            control,
            set,
            deadline,
            last_interrupt: None,
            times,
            statistics,
            later: None,
        }
    }

    /// Calls `call` once while the VM is watched, after a time from now.
    pub fn call_after(&mut self, time: Duration, call: &'a dyn Fn()) {
        // A time that the clock does not reach does not come.
        self.later = Instant::now().checked_add(time).map(|at| (at, call));
    }

    /// Returns when `done` is readable.
    pub fn watch(&mut self, done: BorrowedFd<'_>) {
        timers::sleep_precisely();
        loop {
            let ticks = self.control.ticks();
            // Fails only if the shared pages have no room for their own fields.
            let time = self.times.until_next(ticks).unwrap_or(None);
            let (ended, signalled) = self.wait(done, time);
            if ended {
                return;
            }
            if ticks && self.times.is_due().unwrap_or(false) {
                kick::all(&self.shared, &self.ram, Pending::Tick);
            }
            if signalled {
                while let Some(signal) = self.set.taken.next() {
                    self.signal(signal, Instant::now());
                }
            }
            if let Some((_, reason)) = self.deadline.take_if(|(at, _)| *at <= Instant::now()) {
                self.control.stop(reason);
            }
            if let Some((_, call)) = self.later.take_if(|(at, _)| *at <= Instant::now()) {
                call();
            }
        }
    }

    /// Waits for the end, a signal, the deadline, the end of `time`, or a change of the time.
    fn wait(&self, done: BorrowedFd<'_>, time: Option<Duration>) -> (bool, bool) {
        let busy = self.control.busy_event();
        let mut polls = [
            PollFd::from_borrowed_fd(done, PollFlags::IN),
            PollFd::new(&self.set.taken, PollFlags::IN),
            PollFd::new(busy, PollFlags::IN),
        ];
        let deadline = self.deadline.map(|(at, _)| at);
        let later = self.later.map(|(at, _)| at);
        let next = deadline.into_iter().chain(later).min();
        let next = next.map(|at| at.saturating_duration_since(Instant::now()));
        wait_for(&mut polls, time.into_iter().chain(next).min());
        let [ended, signalled, is_busy] = polls.map(|entry| !entry.revents().is_empty());
        if is_busy {
            // Emptied; the caller checks the conditions next.
            busy.take();
        }
        (ended, signalled)
    }

    /// Passes a signal on, and decides whether the VM must end.
    fn signal(&mut self, signal: i32, now: Instant) {
        match signal {
            STATISTICS => {
                self.statistics.inspect(|report| report());
                return;
            }
            libc::SIGINT => {
                let before = self.last_interrupt.replace(now);
                let soon = before.is_some_and(|at| now - at < DOUBLE_INTERRUPT)
                    && !self.control.is_terminal_managed();
                if soon || before.is_some() && self.untaken(signal) {
                    return self.control.stop(Stop::Signal(signal));
                }
            }
            libc::SIGTERM => {
                let end = (now + TERM_GRACE, Stop::Signal(signal));
                if self.deadline.is_none_or(|(at, _)| end.0 < at) {
                    self.deadline = Some(end);
                }
            }
            _ => {}
        }
        // Fails only if the shared pages have no room for their own fields.
        let _: Result<(), _> = self.pass(signal);
    }

    /// Whether the runtime has not noticed an earlier signal yet.
    fn untaken(&self, signal: i32) -> bool {
        let signals = self.shared.atomic_u64(offset_of!(Shared, signals) as u64);
        signals.is_ok_and(|s| s.load(Ordering::SeqCst) & bit(signal) != 0)
    }

    fn pass(&self, signal: i32) -> Result<(), platform::Error> {
        pass((&self.ram, &self.shared, &self.control), signal)
    }
}

/// Sets the bit of a signal for the guest, kicks the harts, and wakes a host call.
fn pass(
    (ram, shared, control): (&Mapping, &Mapping, &Control),
    signal: i32,
) -> Result<(), platform::Error> {
    let signals = shared.atomic_u64(offset_of!(Shared, signals) as u64)?;
    signals.fetch_or(bit(signal), Ordering::SeqCst);
    kick::all(shared, ram, Pending::Signal);
    control.wake();
    Ok(())
}

/// Makes the guest come to a checkpoint, if signals do so ([`checkpoint::trigger::SIGNAL`]).
pub(crate) fn request_checkpoint(reach: &Reach) {
    // Fails only if the shared pages have no room for their own fields.
    let _: Result<(), _> = pass((&reach.ram, &reach.shared, &reach.control), SNAPSHOT);
}

/// The bit of a signal in [`Shared::signals`].
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::GuestClock;
    use hartline_abi::hart::offset;

    #[test]
    fn requests_after_the_end_are_not_taken() {
        let set = SignalSet::block(true, true).unwrap();
        drop(set);
        let mask = change_mask(libc::SIG_BLOCK, &sigset(&[]).unwrap()).unwrap();
        // SAFETY: the set is initialised.
        let is_blocked = |signal| unsafe { libc::sigismember(&raw const mask, signal) } == 1;
        assert!(is_blocked(STATISTICS) && is_blocked(SNAPSHOT) && !is_blocked(libc::SIGTERM));
    }

    fn watched() -> (Signals<'static>, Arc<Control>) {
        let ram = Arc::new(Mapping::anonymous("ram", 2 << 20).unwrap());
        let shared = Arc::new(Mapping::anonymous("shared", 4 << 20).unwrap());
        let control = Arc::new(Control::new(1).unwrap());
        let set = SignalSet::block(false, false).unwrap();
        let clock = GuestClock::new(1_000_000_000, 0);
        let times = Arc::new(Times::new(Arc::clone(&shared), clock));
        let signals = Signals::new(ram, shared, Arc::clone(&control), set, None, times, None);
        (signals, control)
    }

    fn set_hart(signals: &Signals<'_>, offset: u64) {
        let hart = signals
            .shared
            .atomic_u64(offset_of!(Shared, harts) as u64)
            .unwrap();
        hart.store(offset, Ordering::SeqCst);
    }

    #[test]
    fn a_signal_reaches_the_hart() {
        let (mut signals, control) = watched();
        set_hart(&signals, 0x4000);
        signals.signal(libc::SIGINT, Instant::now());
        let at = |o: u64| {
            signals
                .ram
                .atomic_u64(0x4000 + o)
                .unwrap()
                .load(Ordering::SeqCst)
        };
        assert_eq!(at(offset::PENDING), Pending::Signal as u64);
        assert_eq!(at(offset::POLL_LIMIT), u64::MAX);
        assert!(signals.untaken(libc::SIGINT));
        assert_eq!(control.stopped(), None);
    }

    #[test]
    fn wild_hart_offsets_do_nothing() {
        let (mut signals, _) = watched();
        for offset in [1, 3, (2 << 20) - 8, 2 << 20, u64::MAX, u64::MAX - 519] {
            set_hart(&signals, offset);
            signals.signal(libc::SIGHUP, Instant::now());
        }
        assert!(signals.untaken(libc::SIGHUP));
    }

    #[test]
    fn insistence_ends_the_vm() {
        let (mut signals, control) = watched();
        let now = Instant::now();
        signals.signal(libc::SIGINT, now);
        signals.signal(libc::SIGINT, now + DOUBLE_INTERRUPT * 2);
        assert_eq!(
            control.stopped(),
            Some(Stop::Signal(libc::SIGINT)),
            "not taken"
        );

        let (mut signals, control) = watched();
        let take = |s: &Signals<'_>| {
            s.shared
                .atomic_u64(offset_of!(Shared, signals) as u64)
                .unwrap()
                .store(0, Ordering::SeqCst);
        };
        signals.signal(libc::SIGINT, now);
        take(&signals);
        signals.signal(libc::SIGINT, now + DOUBLE_INTERRUPT * 2);
        assert_eq!(control.stopped(), None, "taken by the program");
        take(&signals);
        signals.signal(
            libc::SIGINT,
            now + DOUBLE_INTERRUPT * 2 + Duration::from_millis(100),
        );
        assert_eq!(
            control.stopped(),
            Some(Stop::Signal(libc::SIGINT)),
            "twice in short time"
        );
    }

    #[test]
    fn a_program_that_manages_the_terminal_gets_all_interrupts() {
        let (mut signals, control) = watched();
        let now = Instant::now();
        control.manage_terminal();
        signals.signal(libc::SIGINT, now);
        let taken = offset_of!(Shared, signals) as u64;
        let taken = signals.shared.atomic_u64(taken).unwrap();
        taken.store(0, Ordering::SeqCst);
        signals.signal(libc::SIGINT, now + Duration::from_millis(100));
        assert_eq!(control.stopped(), None);
        signals.signal(libc::SIGINT, now + Duration::from_millis(200));
        assert_eq!(
            control.stopped(),
            Some(Stop::Signal(libc::SIGINT)),
            "not taken"
        );
    }

    #[test]
    fn a_shared_process_keeps_its_signals() {
        let before = change_mask(libc::SIG_BLOCK, &sigset(&[]).unwrap()).unwrap();
        let is_blocked = |set: &libc::sigset_t, signal| {
            // SAFETY: the set is one that the C library made.
            unsafe { libc::sigismember(std::ptr::from_ref(set), signal) == 1 }
        };
        let set = SignalSet::leave(libc::SIGURG).unwrap();
        let during = change_mask(libc::SIG_BLOCK, &sigset(&[]).unwrap()).unwrap();
        assert!(is_blocked(&during, libc::SIGINT) && is_blocked(&during, libc::SIGPROF));
        assert!(!is_blocked(&during, libc::SIGSEGV) && !is_blocked(&during, libc::SIGURG));
        // SAFETY: the handle belongs to the calling thread, which blocks the signal.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGWINCH) };
        assert_eq!(set.taken.next(), None, "not taken");
        drop(set);
        let after = change_mask(libc::SIG_BLOCK, &sigset(&[]).unwrap()).unwrap();
        for signal in 1..32 {
            assert_eq!(is_blocked(&before, signal), is_blocked(&after, signal));
        }
    }

    #[test]
    fn sigterm_sets_a_deadline() {
        let (mut signals, _) = watched();
        let now = Instant::now();
        signals.signal(libc::SIGTERM, now);
        assert_eq!(
            signals.deadline,
            Some((now + TERM_GRACE, Stop::Signal(libc::SIGTERM)))
        );
        signals.signal(libc::SIGTERM, now + Duration::from_secs(1));
        assert_eq!(
            signals.deadline.unwrap().0,
            now + TERM_GRACE,
            "not prolonged"
        );
    }
}
