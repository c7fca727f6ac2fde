//! Delivery of signals: selection, entry into a handler, return from it, and the alternate stack.

use super::frame::{self, FRAME_SIZE};
use super::{Disposition, NO_STACK, SigInfo, Signals, ThreadSignals, bit, is_on_stack};
use crate::convert::low_u8;
use crate::mm::AddressSpace;
use crate::mm::user;
use core::mem::offset_of;
use hartline_abi::hart::Hart;
use hartline_linux::errno::Errno;
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::{
    MINSIGSTKSZ, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SIG_DFL, SIGSEGV, SS_AUTODISARM,
    SS_DISABLE, SS_ONSTACK, Sigaction, StackT,
};
use hartline_linux::ucontext::RtSigframe;

/// The result of [`Signals::deliver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// No signal was delivered.
    Nothing,
    /// The signal has no effect. There may be more.
    Ignored,
    /// The frame of a handler was pushed: the program continues at `Hart::pc`.
    Handler,
    /// The signal ends the process.
    Terminate(SigInfo),
    /// The signal stops the process.
    Stop(u8),
}

impl Signals<'_> {
    /// Whether a system call that returned `EINTR` is restarted after the handler of the next
    /// signal.
    #[must_use]
    pub fn next_restarts(&self) -> bool {
        match self.next_deliverable().map(|s| self.process.disposition(s)) {
            Some(Disposition::Handle(action)) => action.sa_flags & SA_RESTART != 0,
            _ => true,
        }
    }

    /// Whether the next signal enters a handler.
    #[must_use]
    pub fn next_is_handled(&self) -> bool {
        let next = self.next_deliverable();
        next.is_some_and(|signal| {
            matches!(self.process.disposition(signal), Disposition::Handle(_))
        })
    }

    /// Whether the next signal stops the process.
    #[must_use]
    pub fn next_stops(&self) -> bool {
        let next = self.next_deliverable();
        next.is_some_and(|signal| self.process.disposition(signal) == Disposition::Stop)
    }

    /// The next signal to deliver: faults first, then by number.
    pub(super) fn next_deliverable(&self) -> Option<u8> {
        if let Some(first) = self.thread.pending.front()
            && first.is_fault()
        {
            return Some(first.signal());
        }
        let mask = self.pending() & !self.thread.blocked;
        (mask != 0).then(|| low_u8(mask.trailing_zeros().into()) + 1)
    }

    /// The `siginfo_t` of the next signal.
    #[must_use]
    pub fn next_info(&self) -> Option<SigInfo> {
        let signal = self.next_deliverable()?;
        let mut pending = self.thread.pending.iter().chain(&self.process.pending);
        pending.find(|info| info.signal() == signal).copied()
    }

    /// Delivers one pending signal, if there is one that is not blocked: a tracer sees each before it is
    /// delivered.
    pub fn deliver(&mut self, hart: &Hart, memory: &mut AddressSpace) -> Delivery {
        let next = self.next_deliverable();
        let Some((signal, info)) = next.and_then(|signal| Some((signal, self.take(bit(signal))?)))
        else {
            return Delivery::Nothing;
        };
        match self.process.disposition(signal) {
            Disposition::Ignore => Delivery::Ignored,
            Disposition::Stop => Delivery::Stop(signal),
            Disposition::Terminate => Delivery::Terminate(info),
            Disposition::Handle(action) => match self.enter_handler(hart, memory, action, info) {
                Ok(()) => Delivery::Handler,
                Err(_) => Delivery::Terminate(SigInfo::sent(SIGSEGV, SI_KERNEL, 0, 0)),
            },
        }
    }

    /// Pushes the frame of a handler, and enters the handler.
    fn enter_handler(
        &mut self,
        hart: &Hart,
        memory: &mut AddressSpace,
        action: Sigaction,
        info: SigInfo,
    ) -> Result<(), Errno> {
        let signal = info.signal();
        let sp = hart.x(2);
        let stack = self.thread.stack;
        let use_alternate = action.sa_flags & SA_ONSTACK != 0
            && stack.ss_flags & SS_DISABLE == 0
            && !is_on_stack(&stack, sp);
        let top = match use_alternate {
            true => stack.ss_sp.wrapping_add(stack.ss_size),
            false => sp,
        };
        let address = top.wrapping_sub(FRAME_SIZE) & !15;
        let overflows = !use_alternate && is_on_stack(&stack, sp) && address < stack.ss_sp;
        if overflows || (use_alternate && address < stack.ss_sp) {
            return Err(Errno::EFAULT);
        }
        let mask = self.thread.saved.take().unwrap_or(self.thread.blocked);
        let frame = frame::frame(hart, info, self.thread.stack_status(sp), mask);
        user::write(memory, address, &frame)?;
        if stack.ss_flags & SS_AUTODISARM != 0 {
            self.thread.stack = NO_STACK;
        }
        self.thread.blocked |= action.sa_mask;
        if action.sa_flags & SA_NODEFER == 0 {
            self.thread.blocked |= bit(signal);
        }
        if action.sa_flags & SA_RESETHAND != 0 {
            let sa_handler = SIG_DFL;
            self.process.replace_action(
                signal,
                Sigaction {
                    sa_handler,
                    ..self.process.action(signal)
                },
            );
        }
        hart.pc.set(action.sa_handler & !1);
        hart.set_x(1, self.process.trampoline);
        hart.set_x(2, address);
        hart.set_x(10, u64::from(signal));
        hart.set_x(11, address + offset_of!(RtSigframe, info) as u64);
        hart.set_x(12, address + offset_of!(RtSigframe, uc) as u64);
        Ok(())
    }
}

impl ThreadSignals {
    /// The alternate stack with `SS_ONSTACK` if `sp` is on it.
    #[must_use]
    pub fn stack_status(&self, sp: u64) -> StackT {
        let mut stack = self.stack;
        if stack.ss_flags & SS_DISABLE == 0 && is_on_stack(&stack, sp) {
            stack.ss_flags |= SS_ONSTACK;
        }
        stack
    }

    /// Sets the alternate stack.
    ///
    /// # Errors
    /// `EPERM` while it is in use, `EINVAL` for unknown flags, `ENOMEM` if it is too small.
    pub fn set_stack(&mut self, new: StackT, sp: u64) -> Result<(), Errno> {
        if self.stack_status(sp).ss_flags & SS_ONSTACK != 0 {
            return Err(Errno::EPERM);
        }
        match new.ss_flags & !SS_AUTODISARM {
            SS_DISABLE => self.stack = NO_STACK,
            0 | SS_ONSTACK if new.ss_size < MINSIGSTKSZ => return Err(Errno::ENOMEM),
            0 | SS_ONSTACK => {
                self.stack = StackT {
                    ss_flags: new.ss_flags & SS_AUTODISARM,
                    pad: 0,
                    ..new
                };
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Pops the frame at `sp` (`rt_sigreturn`).
    ///
    /// # Errors
    /// `EFAULT` if the frame cannot be read: the program ends by `SIGSEGV`.
    pub fn leave_handler(&mut self, hart: &Hart, memory: &mut AddressSpace) -> Result<(), Errno> {
        let frame: RtSigframe = user::read(memory, hart.x(2))?;
        frame::restore(&frame, hart);
        self.set_blocked(frame.uc.uc_sigmask);
        let sp = hart.x(2);
        // As on Linux, an alternate stack that cannot be restored is not an error.
        let _ = self.set_stack(frame.uc.uc_stack, sp);
        Ok(())
    }
}
