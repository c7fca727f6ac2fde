//! Signals of the program: actions, masks, pending signals, and delivery.

mod delivery;
mod frame;

pub use delivery::Delivery;
pub use frame::{FRAME_SIZE, SigInfo};

use crate::convert::{low_i32, low_u8};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;
use hartline_linux::errno::Errno;
use hartline_linux::signal::{
    _NSIG, SA_NOCLDSTOP, SA_NOCLDWAIT, SIG_DFL, SIG_IGN, SIGCHLD, SIGCONT, SIGKILL, SIGRTMIN,
    SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, SS_AUTODISARM, SS_DISABLE, Sigaction,
    StackT,
};

/// Most queued instances of real-time signals, whatever `RLIMIT_SIGPENDING` is.
pub(super) const QUEUE_LIMIT: usize = 4096;

/// No alternate stack.
pub const NO_STACK: StackT = StackT {
    ss_sp: 0,
    ss_flags: SS_DISABLE,
    pad: 0,
    ss_size: 0,
};

/// Whether a stack pointer is on an alternate stack.
fn is_on_stack(stack: &StackT, sp: u64) -> bool {
    let above = sp.wrapping_sub(stack.ss_sp);
    stack.ss_flags & SS_AUTODISARM == 0 && sp > stack.ss_sp && above <= stack.ss_size
}

/// The effect of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disposition {
    Ignore,
    Stop,
    Terminate,
    Handle(Sigaction),
}

/// The bit of a signal in a mask.
#[must_use]
pub const fn bit(signal: u8) -> u64 {
    1 << (signal - 1)
}

/// Signals that cannot be blocked or handled.
pub const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// Signal state that the threads of a process share.
#[derive(Debug)]
pub struct ProcessSignals {
    /// Shared with other processes after `CLONE_SIGHAND`.
    actions: Rc<RefCell<[Sigaction; _NSIG as usize]>>,
    /// What is pending for the process as a whole.
    pending: VecDeque<SigInfo>,
    /// Address of the code that handlers return to.
    pub trampoline: u64,
}

impl Default for ProcessSignals {
    fn default() -> Self {
        ProcessSignals {
            actions: Rc::new(RefCell::new([Sigaction::default(); _NSIG as usize])),
            pending: VecDeque::new(),
            trampoline: 0,
        }
    }
}

/// Signal state of a thread.
#[derive(Debug)]
pub struct ThreadSignals {
    blocked: u64,
    pending: VecDeque<SigInfo>,
    /// Mask to restore when the handler that interrupts `rt_sigsuspend` or `ppoll` is
    /// entered.
    saved: Option<u64>,
    /// While `rt_sigtimedwait` waits, the mask that it will restore; otherwise empty. An ignored
    /// signal of this mask is not dropped.
    real_blocked: u64,
    /// A tracer sees signals that are ignored, too.
    is_traced: bool,
    /// Alternate stack.
    stack: StackT,
}

impl Default for ThreadSignals {
    fn default() -> Self {
        ThreadSignals {
            blocked: 0,
            pending: VecDeque::new(),
            saved: None,
            real_blocked: 0,
            is_traced: false,
            stack: NO_STACK,
        }
    }
}

impl ThreadSignals {
    /// The state of a new thread of this one: the same mask, no pending signals.
    #[must_use]
    pub fn of_new_thread(&self, keeps_stack: bool) -> ThreadSignals {
        ThreadSignals {
            blocked: self.saved.unwrap_or(self.blocked),
            stack: match keeps_stack {
                true => self.stack,
                false => NO_STACK,
            },
            ..ThreadSignals::default()
        }
    }

    /// The mask of blocked signals.
    #[must_use]
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// The signals that are not dropped if they are ignored: those that are blocked, or will be
    /// after `rt_sigtimedwait`.
    #[must_use]
    pub fn kept(&self) -> u64 {
        match self.is_traced {
            true => u64::MAX,
            false => self.blocked | self.real_blocked,
        }
    }

    /// The pending signals of the thread alone.
    #[must_use]
    pub fn pending(&self) -> u64 {
        set_of(&self.pending)
    }

    /// The pending signals of the thread alone, the oldest first.
    pub fn queue(&self) -> &VecDeque<SigInfo> {
        &self.pending
    }

    /// Keeps signals that are ignored, for a tracer, or drops them again.
    pub(crate) fn set_traced(&mut self, is_traced: bool) {
        self.is_traced = is_traced;
    }

    /// Makes a signal the next one.
    pub(crate) fn push_front(&mut self, info: SigInfo) {
        self.pending.push_front(info);
    }

    /// Drops the pending signals of `set`.
    pub fn drop_pending(&mut self, set: u64) {
        self.pending.retain(|info| bit(info.signal()) & set == 0);
    }

    /// Whether the signal of the POSIX timer `number` is pending for the thread alone.
    #[must_use]
    pub fn is_timer_pending(&self, number: u32) -> bool {
        self.pending.iter().any(|info| info.is_of_timer(number))
    }

    /// Number of pending signals of the thread alone.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.pending.len()
    }

    /// Removes the alternate stack.
    pub fn remove_stack(&mut self) {
        self.stack = NO_STACK;
    }

    /// Sets the mask of blocked signals.
    pub fn set_blocked(&mut self, mask: u64) {
        self.blocked = mask & !UNBLOCKABLE;
    }

    /// Sets the mask for one call (`rt_sigsuspend`, `ppoll`, `pselect6`). A handler's return or
    /// [`Signals::end_temporary`] restores the old mask.
    pub fn set_temporary(&mut self, mask: u64) {
        self.saved = Some(self.blocked);
        self.set_blocked(mask);
    }

    /// Restores the mask before [`set_temporary`](Self::set_temporary), whatever is pending.
    pub fn restore_mask(&mut self) {
        if let Some(mask) = self.saved.take() {
            self.blocked = mask;
        }
    }

    /// Unblocks the signals of `set` while `rt_sigtimedwait` waits for them.
    pub fn begin_wait(&mut self, set: u64) {
        self.real_blocked = self.blocked;
        self.blocked &= !set;
    }

    /// Restores the mask before [`begin_wait`](Self::begin_wait).
    pub fn end_wait(&mut self) {
        self.blocked |= core::mem::take(&mut self.real_blocked);
    }
}

/// The set of signals in a queue.
fn set_of(queue: &VecDeque<SigInfo>) -> u64 {
    (queue.iter()).fold(0, |set, info| set | bit(info.signal()))
}

/// Queues a signal; a standard signal is pending at most once.
fn push(queue: &mut VecDeque<SigInfo>, info: SigInfo) {
    let signal = info.signal();
    let queued = set_of(queue) & bit(signal) != 0;
    if !queued || (signal >= SIGRTMIN && queue.len() < QUEUE_LIMIT) {
        queue.push_back(info);
    }
}

/// Checks a signal number from the program.
///
/// # Errors
/// `EINVAL` unless it is 1 to [`_NSIG`].
pub fn check_number(signal: u64) -> Result<u8, Errno> {
    match u8::try_from(low_i32(signal)) {
        Ok(signal @ 1..=_NSIG) => Ok(signal),
        _ => Err(Errno::EINVAL),
    }
}

impl ProcessSignals {
    /// The action of a signal, 1 to [`_NSIG`].
    #[must_use]
    pub fn action(&self, signal: u8) -> Sigaction {
        self.actions.borrow()[usize::from(signal - 1)]
    }

    /// Sets the action of a signal, 1 to [`_NSIG`]. Returns whether the signal is ignored from now
    /// on: then the caller drops the signal where it is pending.
    ///
    /// # Errors
    /// `EINVAL` for `SIGKILL` and `SIGSTOP`.
    pub fn set_action(&mut self, signal: u8, mut action: Sigaction) -> Result<bool, Errno> {
        if bit(signal) & UNBLOCKABLE != 0 {
            return Err(Errno::EINVAL);
        }
        action.sa_mask &= !UNBLOCKABLE;
        self.replace_action(signal, action);
        Ok(self.disposition(signal) == Disposition::Ignore)
    }

    /// Drops the pending signals of `set`.
    pub fn drop_pending(&mut self, set: u64) {
        self.pending.retain(|info| bit(info.signal()) & set == 0);
    }

    /// The state of a new process of this one: the same actions, no pending signals.
    #[must_use]
    pub fn fork(&self) -> ProcessSignals {
        ProcessSignals {
            actions: Rc::new(RefCell::new(*self.actions.borrow())),
            trampoline: self.trampoline,
            ..ProcessSignals::default()
        }
    }

    /// The pending signals of the process as a whole.
    #[must_use]
    pub fn pending(&self) -> u64 {
        set_of(&self.pending)
    }

    /// The pending signals of the process as a whole, the oldest first.
    pub fn queue(&self) -> &VecDeque<SigInfo> {
        &self.pending
    }

    /// Number of pending signals of the process as a whole.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.pending.len()
    }

    /// The state of a new process with the actions of this one (`CLONE_SIGHAND`).
    #[must_use]
    pub fn share(&self) -> ProcessSignals {
        ProcessSignals {
            actions: Rc::clone(&self.actions),
            trampoline: self.trampoline,
            ..ProcessSignals::default()
        }
    }

    /// Whether other processes have the same actions.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Rc::strong_count(&self.actions) > 1
    }

    /// Sets the action of a signal, 1 to [`_NSIG`].
    pub(super) fn replace_action(&self, signal: u8, action: Sigaction) {
        self.actions.borrow_mut()[usize::from(signal - 1)] = action;
    }

    /// Removes all handlers; ignored signals stay ignored. Other processes keep their actions.
    pub fn clear_handlers(&mut self) {
        let mut actions = *self.actions.borrow();
        for action in &mut actions {
            *action = Sigaction {
                sa_handler: match action.sa_handler {
                    SIG_IGN => SIG_IGN,
                    _ => SIG_DFL,
                },
                ..Sigaction::default()
            };
        }
        self.actions = Rc::new(RefCell::new(actions));
    }

    /// Sends a signal to the process. `kept` are the signals that any of its threads
    /// [keeps](ThreadSignals::kept). An ignored signal is dropped, unless it is blocked.
    pub fn send(&mut self, info: SigInfo, kept: u64) {
        if !self.is_dropped(info.signal(), kept) {
            push(&mut self.pending, info);
        }
    }

    /// Sends a signal to a thread of the process.
    pub fn send_to(&self, thread: &mut ThreadSignals, info: SigInfo) {
        if !self.is_dropped(info.signal(), thread.kept()) {
            push(&mut thread.pending, info);
        }
    }

    fn is_dropped(&self, signal: u8, kept: u64) -> bool {
        kept & bit(signal) == 0 && self.disposition(signal) == Disposition::Ignore
    }

    /// Whether the signal of the POSIX timer `number` is pending for the process as a whole.
    #[must_use]
    pub fn is_timer_pending(&self, number: u32) -> bool {
        self.pending.iter().any(|info| info.is_of_timer(number))
    }

    /// Whether the program has a handler for a signal.
    #[must_use]
    pub fn has_handler(&self, signal: u8) -> bool {
        matches!(self.disposition(signal), Disposition::Handle(_))
    }

    /// The signals that the program ignores, and those that it handles.
    #[must_use]
    pub fn dispositions(&self) -> [u64; 2] {
        let mut sets = [0; 2];
        for signal in 1..=_NSIG {
            match self.action(signal).sa_handler {
                SIG_DFL => {}
                SIG_IGN => sets[0] |= bit(signal),
                _ => sets[1] |= bit(signal),
            }
        }
        sets
    }

    /// Whether the program ignores `SIGCHLD` explicitly: ended children then leave no zombie.
    #[must_use]
    pub fn ignores_children(&self) -> bool {
        let action = self.action(SIGCHLD);
        action.sa_handler == SIG_IGN || action.sa_flags & SA_NOCLDWAIT != 0
    }

    /// Whether `SIGCHLD` is also sent for children that stop or continue.
    #[must_use]
    pub fn wants_stopped_children(&self) -> bool {
        self.action(SIGCHLD).sa_flags & SA_NOCLDSTOP == 0
    }

    /// The effect of a signal.
    fn disposition(&self, signal: u8) -> Disposition {
        let action = self.action(signal);
        match action.sa_handler {
            SIG_DFL => match signal {
                SIGCHLD | SIGCONT | SIGURG | SIGWINCH => Disposition::Ignore,
                SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => Disposition::Stop,
                _ => Disposition::Terminate,
            },
            SIG_IGN => Disposition::Ignore,
            _ => Disposition::Handle(action),
        }
    }
}

/// Signal state of a thread and of its process.
#[derive(Debug)]
pub struct Signals<'a> {
    /// The state that the threads of the process share.
    pub process: &'a mut ProcessSignals,
    /// The state of the thread.
    pub thread: &'a mut ThreadSignals,
}

impl Signals<'_> {
    /// Resets the state for `execve`: removes handlers and the alternate stack.
    pub fn reset(&mut self) {
        self.process.clear_handlers();
        self.thread.remove_stack();
    }

    /// Restores the mask before [`ThreadSignals::set_temporary`], unless a handler is about
    /// to run, whose return restores it.
    pub fn end_temporary(&mut self) {
        if !self.is_deliverable() {
            self.thread.restore_mask();
        }
    }

    /// The pending signals of the thread and of the process.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.process.pending() | self.thread.pending()
    }

    /// Whether an unblocked signal is pending: a blocking call returns `EINTR`.
    #[inline]
    #[must_use]
    pub fn is_deliverable(&self) -> bool {
        let are_any = !self.thread.pending.is_empty() || !self.process.pending.is_empty();
        are_any && self.pending() & !self.thread.blocked != 0
    }

    /// Sends a signal that an instruction has caused. If it is blocked or ignored, it ends the
    /// program.
    pub fn send_fault(&mut self, info: SigInfo) {
        let signal = info.signal();
        let blocked = self.thread.blocked & bit(signal) != 0;
        if blocked || self.process.disposition(signal) == Disposition::Ignore {
            self.process.replace_action(signal, Sigaction::default());
            self.thread.blocked &= !bit(signal);
        }
        self.thread.pending.push_front(info);
    }

    /// The pending signals of `set` that POSIX timers have sent.
    pub fn of_timers(&mut self, set: u64) -> impl Iterator<Item = &mut SigInfo> {
        let thread = self.thread.pending.iter_mut();
        let pending = thread.chain(self.process.pending.iter_mut());
        pending.filter(move |info| info.timer_number().is_some() && bit(info.signal()) & set != 0)
    }

    /// Takes the first pending signal of `set` (`rt_sigtimedwait`).
    pub fn take(&mut self, set: u64) -> Option<SigInfo> {
        let mask = self.pending() & set;
        if mask == 0 {
            return None;
        }
        let signal = low_u8(mask.trailing_zeros().into()) + 1;
        let take = |queue: &mut VecDeque<SigInfo>| {
            let index = queue.iter().position(|info| info.signal() == signal)?;
            queue.remove(index)
        };
        take(&mut self.thread.pending).or_else(|| take(&mut self.process.pending))
    }

    /// Whether a handler would run for a fault signal, so that it need not be reported.
    #[must_use]
    pub fn handles(&self, signal: u8) -> bool {
        self.thread.blocked & bit(signal) == 0 && self.process.has_handler(signal)
    }

    /// Whether a signal has no effect now, because it is blocked or ignored.
    #[must_use]
    pub fn is_held(&self, signal: u8) -> bool {
        self.thread.blocked & bit(signal) != 0
            || self.process.disposition(signal) == Disposition::Ignore
    }
}

#[cfg(test)]
mod tests;
