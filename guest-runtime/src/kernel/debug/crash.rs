//! Faults in code that LLVM has translated without exact registers, as a debugger sees them: the host finds the
//! registers that still exist ([`Operation::Locate`]), and the thread cannot continue.

use super::Reason;
use crate::arch::host::Host;
use crate::debugger::target::PC;
use crate::debugger::text::hex;
use crate::kernel::exit::{End, Fault, HostFault};
use crate::kernel::signals::{SigInfo, bit};
use crate::kernel::{Control, Kernel};
use alloc::boxed::Box;
use hartline_abi::call::Operation;
use hartline_linux::signal::SIGKILL;

const PARTLY_KNOWN: &[u8] =
    b"hartline: not all registers are known at this fault, and the program cannot \
continue after it; with \"monitor precise on\" before it, they are\n";
const NOT_KNOWN: &[u8] =
    b"hartline: the registers are not known at this fault, pc is the start of the function, \
and the program cannot continue; with \"monitor precise on\" before it, they are\n";

/// `x0` and pc.
const ALWAYS_KNOWN: u64 = 1 | 1 << PC;

/// A fault after which a thread cannot continue.
#[derive(Debug)]
pub(crate) struct Crash {
    fault: Fault,
    /// The registers that are known, by their numbers in [`crate::debugger::target`].
    known: u64,
    /// The debugger has been told.
    is_told: bool,
}

/// The state of a program at a fault in translated code.
struct Located {
    pc: u64,
    /// Integer registers whose values are known.
    known: u32,
    x: [u64; 32],
}

/// Asks the host for the state of the program. `None`: it does not find it.
fn locate(mut host: Host, fault: &HostFault) -> Option<Located> {
    let location = fault.location.as_ref()?;
    let words = fault.registers.iter().chain(&fault.hart);
    let (data, _) = host.call_data().as_chunks_mut::<8>();
    for (to, word) in data.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    let image = (location.image_offset, location.origin.gpa);
    let mut args = [fault.pc, image.0, image.1, location.function, 0, 0];
    host.call(Operation::Locate, &mut args).ok()?;
    let (data, _) = host.call_data().as_chunks::<8>();
    let mut x = [0; 32];
    for (to, word) in x.iter_mut().zip(data) {
        *to = u64::from_le_bytes(*word);
    }
    let known = crate::convert::low_u32(args[1]);
    Some(Located {
        pc: args[0],
        known,
        x,
    })
}

impl Kernel {
    /// Whether a debugger wants to see the fault of the running task that raises `signal`.
    pub(crate) fn crashes_under_debugger(&self, signal: u8) -> bool {
        let is_seen = |debugger: &super::Debugger| debugger.passed & bit(signal) == 0;
        self.process().debugged && self.debugger.as_deref().is_some_and(is_seen)
    }

    /// Makes the running task stand still at a fault in translated code. It ends when the debugger continues it.
    pub(crate) fn stand_after_crash(&mut self, fault: Fault) {
        let found = (fault.host.as_ref()).and_then(|fault| locate(self.host, fault));
        let function = fault.host.as_ref().and_then(|host| host.location.as_ref());
        let function = function.map_or(0, |location| location.function);
        let hart = self.hart();
        let mut known = ALWAYS_KNOWN;
        hart.pc.set(function);
        if let Some(found) = found {
            hart.pc.set(found.pc);
            for (number, value) in found.x.into_iter().enumerate().skip(1) {
                hart.set_x(number, value);
            }
            known |= u64::from(found.known);
        }
        self.task_mut().crash = Some(Box::new(Crash {
            fault,
            known,
            is_told: false,
        }));
        self.kick_self();
    }

    /// Tells the debugger of the running task's fault in translated code, or ends its process when the debugger lets
    /// it continue. `None`: there was no such fault.
    pub(in crate::kernel) fn resume_crashed(&mut self) -> Option<Control> {
        let crash = self.task().crash.as_ref()?;
        let (signal, is_told) = (crash.fault.signal, crash.is_told);
        if self.must_stand(self.task()) {
            self.suspend();
            return Some(Control::Restart);
        }
        if self.is_killed(self.task().pid) {
            return Some(Control::End(End::Signaled(SIGKILL)));
        }
        if is_told || !self.crashes_under_debugger(signal) {
            let crash = self.task_mut().crash.take()?;
            return Some(Control::End(End::Fault(crash.fault)));
        }
        self.tell_crash();
        self.suspend();
        Some(Control::Restart)
    }

    fn tell_crash(&mut self) {
        let Some(crash) = &mut self.task_mut().crash else {
            return;
        };
        crash.is_told = true;
        let fault = &crash.fault;
        let info = SigInfo::fault(fault.signal, fault.code, fault.address);
        let text = match crash.known == ALWAYS_KNOWN {
            true => NOT_KNOWN,
            false => PARTLY_KNOWN,
        };
        self.task_mut().debug.info = Some(info);
        // Text is allowed only while the debugger waits.
        if (self.debugger.as_ref()).is_some_and(|debugger| debugger.owes_stop) {
            self.answer(&[&b"O"[..], &hex(text)].concat());
        }
        self.debug_event_here(Reason::Signal(info.signal()));
    }

    /// Whether the value of a register of a stopped thread is known.
    pub(super) fn is_known(&self, tid: u32, register: usize) -> bool {
        let crash = self.program_task(tid).and_then(|task| task.crash.as_ref());
        crash.is_none_or(|crash| register <= PC && crash.known >> register & 1 == 1)
    }
}
