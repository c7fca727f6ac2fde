//! The interpreter: executes single instructions on a [`Hart`], with the same semantics that the
//! translator lifts.
//!
//! It runs code that is not translated, single instructions that translated code hands over, and
//! the whole program while `frm` is RMM.

pub mod fcsr;
mod machine;
pub(crate) mod memory;
#[cfg(test)]
mod reference;
mod softfloat;
pub(crate) mod stretch;
#[cfg(test)]
mod tests;

use crate::convert::{low_u16, to_usize};
use core::ptr::addr_of;
use core::sync::atomic::{AtomicU64, Ordering};
use hartline_abi::hart::Hart;
use hartline_isa::{
    Instruction, JumpKind, Rounding, Trap, Width, decode, execute, instruction_length,
};

use machine::Execution;
use memory::{Direct, GuestMemory};

/// Kind of the executed instruction, as the dispatcher needs it. `Hart.pc` is where execution
/// continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Another instruction, including a conditional branch, taken or not.
    Next,
    /// `jal` or `jalr`.
    Jump(JumpKind),
    /// `fence.i`: the decoded instructions were dropped.
    Fence,
    /// Nothing was executed: `Hart.pc` is the address of the trapping instruction.
    Trap(Trap),
}

/// Number of entries of the decoded-instruction cache, a power of two.
const CACHE_ENTRIES: usize = 4096;

/// A decoded instruction. The cache is indexed by halfword address.
#[derive(Clone, Copy)]
struct Entry {
    pc: u64,
    code: CodeId,
    instruction: Instruction,
}

/// An interpreter: one per vCPU, as its cache is not synchronized.
pub struct Interpreter {
    cache: [Option<Entry>; CACHE_ENTRIES],
    /// The code that is executed.
    code: CodeId,
    /// Atomic, because other vCPUs read it.
    executed: AtomicU64,
}

/// Number of a program's code at some time. Programs in different address spaces have different code
/// at the same addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CodeId(u64);

impl CodeId {
    /// A number that nothing has, on any vCPU.
    #[must_use]
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Default for Interpreter {
    fn default() -> Self {
        Self::new()
    }
}

impl Interpreter {
    /// An interpreter with an empty cache. The structure is large (128 KiB): do not put it on a
    /// small stack.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cache: [None; CACHE_ENTRIES],
            code: CodeId(0),
            executed: AtomicU64::new(0),
        }
    }

    /// The code that is executed.
    #[must_use]
    pub const fn code(&self) -> CodeId {
        self.code
    }

    /// Selects the code to execute. After code has changed it has another number.
    pub fn set_code(&mut self, code: CodeId) {
        self.code = code;
    }

    /// The address that the fetched instruction at `hart.pc` accesses, and whether it writes.
    pub(crate) fn access(&self, hart: &Hart) -> Option<(u64, bool)> {
        let entry = self.cache[slot(hart.pc.get())].filter(|entry| entry.pc == hart.pc.get())?;
        let (base, offset) = entry.instruction.memory_operand()?;
        let address = hart.x(base.index()).wrapping_add_signed(offset.into());
        Some((address, entry.instruction.is_store()))
    }

    /// Number of executed instructions, without traps.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    /// As [`executed`](Self::executed), of an interpreter that another vCPU may be using.
    ///
    /// # Safety
    /// It is an interpreter.
    pub(crate) unsafe fn executed_by(this: *const Self) -> u64 {
        // SAFETY: the caller's contract; the reference is to the counter only.
        unsafe { (*addr_of!((*this).executed)).load(Ordering::Relaxed) }
    }

    /// Executes the instruction at `hart.pc` and sets `hart.pc` to the next one.
    ///
    /// If an access to guest memory faults, `hart` is as before the instruction.
    ///
    /// # Safety
    /// Whatever the guest program addresses must either be guest memory, which
    /// Rust code accesses by assembly or atomically only, or raise a fault that is
    /// handled without returning into this call.
    #[inline]
    pub unsafe fn step(&mut self, hart: &Hart) -> Step {
        // SAFETY: the caller's contract.
        unsafe { self.step_in(&mut Direct, hart) }
    }

    /// As [`step`](Self::step), with another memory than the program's.
    ///
    /// # Safety
    /// The contract of each access of `memory`.
    #[inline(always)]
    pub(crate) unsafe fn step_in(&mut self, memory: &mut impl GuestMemory, hart: &Hart) -> Step {
        let pc = hart.pc.get();
        // SAFETY: the caller's contract.
        let Some(instruction) = (unsafe { self.fetch(memory, pc) }) else {
            return Step::Trap(Trap::IllegalInstruction);
        };
        if hart.frm.get() > 4 && instruction.rounding() == Some(Rounding::Dyn) {
            return Step::Trap(Trap::IllegalInstruction);
        }
        let next_pc = pc.wrapping_add(instruction.length().into());
        let mut execution = Execution {
            hart,
            memory,
            pc,
            next_pc,
            step: Step::Next,
            flush: false,
        };
        execute(&instruction, &mut execution);
        let Execution {
            next_pc,
            step,
            flush,
            ..
        } = execution;
        hart.pc.set(next_pc);
        if !matches!(step, Step::Trap(_)) {
            // Only this vCPU writes it.
            let executed = self.executed.load(Ordering::Relaxed) + 1;
            self.executed.store(executed, Ordering::Relaxed);
        }
        if flush {
            self.code = CodeId::next();
            return Step::Fence;
        }
        step
    }

    /// Executes instructions that are adjacent in memory below `end`, up to the first that is not
    /// [`Step::Next`] or is a taken branch. Returns the step and the address of the last one.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    pub unsafe fn run_straight(&mut self, hart: &Hart, end: u64) -> (Step, u64) {
        /// Longest instruction, bytes.
        const LONGEST: u64 = 4;
        loop {
            let pc = hart.pc.get();
            // SAFETY: the caller's contract.
            let step = unsafe { self.step(hart) };
            let follows = hart.pc.get().wrapping_sub(pc).wrapping_sub(1) < LONGEST;
            if step != Step::Next || !follows || hart.pc.get() >= end {
                return (step, pc);
            }
        }
    }

    /// Executes instructions until one is not [`Step::Next`], but at most `limit` (at least one).
    /// Returns the step of the last one.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    pub unsafe fn run(&mut self, hart: &Hart, limit: u64) -> Step {
        let mut left = limit;
        loop {
            // SAFETY: the caller's contract.
            let step = unsafe { self.step(hart) };
            left = left.saturating_sub(1);
            if step != Step::Next || left == 0 {
                return step;
            }
        }
    }

    /// The instruction at `pc`; `None` if it is illegal.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    #[inline(always)]
    pub(crate) unsafe fn fetch(
        &mut self,
        memory: &mut impl GuestMemory,
        pc: u64,
    ) -> Option<Instruction> {
        match self.cache[slot(pc)] {
            Some(entry) if entry.pc == pc && entry.code == self.code => Some(entry.instruction),
            // SAFETY: the caller's contract.
            _ => unsafe { self.fetch_and_decode(memory, pc) },
        }
    }

    /// Reads and decodes an instruction. The second half is read only if the first one requires it,
    /// since its page may be missing.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    #[cold]
    unsafe fn fetch_and_decode(
        &mut self,
        memory: &mut impl GuestMemory,
        pc: u64,
    ) -> Option<Instruction> {
        // SAFETY: the caller's contract.
        let low = low_u16(unsafe { memory.load(Width::Half, pc) });
        let mut bits = u32::from(low);
        if instruction_length(low) == 4 {
            // SAFETY: the caller's contract.
            let high = low_u16(unsafe { memory.load(Width::Half, pc.wrapping_add(2)) });
            bits |= u32::from(high) << 16;
        }
        let instruction = decode(bits)?;
        self.cache[slot(pc)] = Some(Entry {
            pc,
            code: self.code,
            instruction,
        });
        Some(instruction)
    }
}

/// Index into the cache.
fn slot(pc: u64) -> usize {
    to_usize(pc >> 1) % CACHE_ENTRIES
}
