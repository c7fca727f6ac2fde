//! Interpreting without the lock of the library OS.
//!
//! A vCPU interprets a stretch of code as it runs translated code: it polls the words with which it is
//! kicked, and its faults make a guard of their own. It needs the lock for everything else: traps,
//! and addresses for which it does not know yet that there is no translation.

use super::{CodeId, Interpreter, Step};
use crate::arch::kick::is_kicked;
use crate::convert::to_usize;
use crate::exec::hotness::Counters;
use crate::exec::images;
use alloc::boxed::Box;
use core::ops::Range;
use core::ptr::{addr_of, addr_of_mut};
use core::sync::atomic::{AtomicBool, Ordering};
use hartline_abi::hart::Hart;
use hartline_isa::{JumpKind, Trap};

/// Number of addresses without a translation that a vCPU knows at once, a power of two.
const MISSES: usize = 1024;

/// Number of x1, the return address.
const RA: usize = 1;

/// An address for which no image had an entry.
#[derive(Debug, Clone, Copy, Default)]
struct Miss {
    pc: u64,
    /// The code of which it is an address.
    code: CodeId,
    /// The number of images that all processes had added before ([`images::added`]).
    added: u64,
    /// Number of times that execution came here.
    count: u64,
}

/// The interpreter of a vCPU. Only code on this vCPU uses it.
pub struct CpuInterpreter {
    interpreter: Interpreter,
    misses: [Miss; MISSES],
    /// An instruction is being executed: a fault belongs to the program.
    executes: AtomicBool,
    /// Number of executed instructions at the last [`take_work`](Self::take_work).
    worked: u64,
}

/// What ends a stretch, besides traps and kicks.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Memory around `Hart::pc` from which instructions may be fetched.
    pub fetch: Range<u64>,
    /// Translations are used: the stretch ends at an address that may have one.
    pub translates: bool,
    /// Whether `frm` has a mode that translated code can have.
    pub is_usual_mode: bool,
    /// Number of instructions, about.
    pub most: u64,
}

/// The calls in interpreted code.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Number of calls that have not returned.
    pub depth: u64,
    /// A host caller waits for the return to `ra`.
    pub nested: bool,
}

impl Calls {
    /// Counts a return to `Hart::pc`. Result: whether the host caller waits for it.
    fn is_last_return(&mut self, hart: &Hart) -> bool {
        let is_last = self.depth == 0 && self.nested && hart.pc.get() == hart.x(RA) & !1;
        self.depth = self.depth.saturating_sub(1);
        is_last
    }
}

/// Why a stretch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// As [`Step::Trap`].
    Trap(Trap),
    /// A `fence.i` was executed: code that the program made may have changed.
    Fence,
    /// The host caller continues.
    Returned,
    /// Execution came to `Hart::pc`, by a jump of this kind or by a branch.
    Arrived(Option<JumpKind>),
}

impl Default for CpuInterpreter {
    fn default() -> Self {
        Self {
            interpreter: Interpreter::new(),
            misses: [Miss::default(); MISSES],
            executes: AtomicBool::new(false),
            worked: 0,
        }
    }
}

impl CpuInterpreter {
    /// An interpreter that exists as long as the VM.
    pub fn leak() -> *mut Self {
        Box::into_raw(Box::default())
    }

    /// Number of instructions that an interpreter has executed, without traps.
    ///
    /// # Safety
    /// It is an interpreter, which another vCPU may be using.
    pub unsafe fn executed_on(this: *const Self) -> u64 {
        // SAFETY: the counter is atomic, and nothing else is read.
        unsafe { Interpreter::executed_by(addr_of!((*this).interpreter)) }
    }

    /// Number of instructions since the last call.
    pub fn take_work(&mut self) -> u64 {
        let executed = self.interpreter.executed();
        executed - core::mem::replace(&mut self.worked, executed)
    }

    /// Whether a fault outside translated code belongs to the program.
    pub fn is_executing(&self) -> bool {
        self.executes.load(Ordering::Relaxed)
    }

    /// Records that the frame that executed an instruction was dropped.
    pub fn abandon(&mut self) {
        self.executes.store(false, Ordering::Relaxed);
    }

    /// The address that the instruction at `Hart::pc` accesses, and whether it writes there.
    pub fn access(&self, hart: &Hart) -> Option<(u64, bool)> {
        self.interpreter.access(hart)
    }

    /// Selects the code to execute.
    pub fn set_code(&mut self, code: CodeId) {
        self.interpreter.set_code(code);
    }

    /// Records that no image has an entry for `pc` in the selected code.
    pub fn add_miss(&mut self, pc: u64) {
        self.misses[miss_slot(pc)] = Miss {
            pc,
            code: self.interpreter.code(),
            added: images::added(),
            count: 0,
        };
    }

    /// Whether no image has an entry for `pc`, as far as is known.
    #[inline]
    fn misses(&self, pc: u64) -> bool {
        let miss = self.misses[miss_slot(pc)];
        miss.pc == pc && miss.code == self.interpreter.code() && miss.added == images::added()
    }

    /// Counts that execution came to a known miss. The counters of all vCPUs get many at once, because
    /// vCPUs that execute the same code would wait for each other's cache lines.
    #[inline]
    fn count(&mut self, pc: u64, (counters, variant): (Counters, u32)) {
        const MANY: u64 = 16;
        let miss = &mut self.misses[miss_slot(pc)];
        miss.count += 1;
        if miss.count.is_multiple_of(MANY) {
            counters.count_times(pc, variant, MANY);
        }
    }

    /// Executes one instruction.
    ///
    /// # Safety
    /// As for [`Interpreter::step`], and this vCPU's interpreter, to which there is no reference.
    pub unsafe fn step(this: *mut Self, hart: &Hart) -> Step {
        // SAFETY: the caller's contract. A fault handler uses it between two accesses only.
        unsafe {
            (*this).executes.store(true, Ordering::Relaxed);
            let step = (*addr_of_mut!((*this).interpreter)).step(hart);
            (*this).executes.store(false, Ordering::Relaxed);
            step
        }
    }

    /// Executes a stretch of code from `Hart::pc`, where there is no translation. Counts the
    /// addresses to which it comes for a variant.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    pub(crate) unsafe fn run(
        this: *mut Self,
        hart: &Hart,
        limits: &Limits,
        (counters, variant): (Counters, u32),
        calls: &mut Calls,
    ) -> Pause {
        // SAFETY: the caller's contract. A fault handler uses the interpreter between two accesses
        // only, in which nothing else of it is in use.
        unsafe {
            let end = (*this).interpreter.executed() + limits.most;
            loop {
                (*this).executes.store(true, Ordering::Relaxed);
                let run = (*addr_of_mut!((*this).interpreter)).run_straight(hart, limits.fetch.end);
                (*this).executes.store(false, Ordering::Relaxed);
                let (step, last) = run;
                let kind = match step {
                    Step::Trap(trap) => return Pause::Trap(trap),
                    Step::Fence => return Pause::Fence,
                    Step::Next => None,
                    Step::Jump(kind) => Some(kind),
                };
                if kind == Some(JumpKind::Return) && calls.is_last_return(hart) {
                    return Pause::Returned;
                }
                if !(*this).goes_on(hart, limits) || (*this).interpreter.executed() >= end {
                    return Pause::Arrived(kind);
                }
                let pc = hart.pc.get();
                if limits.translates && (kind.is_some() || pc <= last) {
                    (*this).count(pc, (counters, variant));
                }
                calls.depth += u64::from(kind == Some(JumpKind::Call));
            }
        }
    }

    /// Whether the code at `Hart::pc` belongs to the stretch.
    #[inline]
    fn goes_on(&self, hart: &Hart, limits: &Limits) -> bool {
        let pc = hart.pc.get();
        limits.fetch.contains(&pc)
            && limits.is_usual_mode == is_usual_mode(hart)
            && (!limits.translates || self.misses(pc))
            && !is_kicked(&hart.kick)
    }
}

/// Whether `frm` has a mode that translated code can have: neither RMM nor a reserved one.
#[inline]
pub(crate) fn is_usual_mode(hart: &Hart) -> bool {
    hart.frm.get() < 4
}

fn miss_slot(pc: u64) -> usize {
    to_usize(pc >> 1) % MISSES
}
