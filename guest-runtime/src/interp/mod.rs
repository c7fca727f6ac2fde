//! The interpreter: executes one instruction after the other on a [`Hart`], by
//! the same semantics that the translator lifts.
//!
//! It serves code that is not translated, single instructions that translated
//! code hands over, and all of a program while `frm` is RMM.

pub mod fcsr;
mod machine;
pub(crate) mod memory;
#[cfg(test)]
mod reference;
mod softfloat;
#[cfg(test)]
mod tests;

use hartline_abi::hart::Hart;
use hartline_isa::{
    Instruction, JumpKind, Rounding, Trap, Width, decode, execute, instruction_length,
};

use machine::Execution;
use memory::{Direct, GuestMemory};

/// What the executed instruction was, as far as it matters to the dispatcher.
/// `Hart.pc` is where execution goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Neither of the others; a conditional branch included, taken or not.
    Next,
    /// `jal` or `jalr`.
    Jump(JumpKind),
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
    /// The code that is executed now.
    code: CodeId,
    /// The last value that any code had.
    last_code: u64,
    executed: u64,
}

/// Which code the interpreter executes: programs in different address spaces have
/// different code at the same addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CodeId(u64);

impl Default for Interpreter {
    fn default() -> Self {
        Self::new()
    }
}

impl Interpreter {
    /// An interpreter with an empty cache. The structure is large (128 KiB), so
    /// it does not belong on a small stack.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cache: [None; CACHE_ENTRIES],
            code: CodeId(0),
            last_code: 0,
            executed: 0,
        }
    }

    /// Forgets decoded instructions: after guest code has changed without the
    /// guest executing `fence.i` here (`munmap`, `mprotect`,
    /// `riscv_flush_icache`, a `fence.i` in translated code).
    pub fn flush(&mut self) {
        self.last_code += 1;
        self.code = CodeId(self.last_code);
    }

    /// Which code is executed.
    #[must_use]
    pub const fn code(&self) -> CodeId {
        self.code
    }

    /// Executes other code from now on, or the same code as before.
    pub fn set_code(&mut self, code: CodeId) {
        self.code = code;
    }

    /// The address that the instruction at `hart.pc`, which was fetched, accesses, and
    /// whether it writes there.
    pub(crate) fn access(&self, hart: &Hart) -> Option<(u64, bool)> {
        let entry = self.cache[slot(hart.pc)].filter(|entry| entry.pc == hart.pc)?;
        let (base, offset) = entry.instruction.memory_operand()?;
        let address = hart.x[base.index()].wrapping_add_signed(offset.into());
        Some((address, entry.instruction.is_store()))
    }

    /// Number of instructions executed so far, traps not included.
    #[must_use]
    pub const fn executed(&self) -> u64 {
        self.executed
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
    pub unsafe fn step(&mut self, hart: &mut Hart) -> Step {
        // SAFETY: the caller's contract.
        unsafe { self.step_in(&mut Direct, hart) }
    }

    /// The same with other memory than the program's.
    ///
    /// # Safety
    /// That of each access of `memory`.
    #[inline(always)]
    pub(crate) unsafe fn step_in(
        &mut self,
        memory: &mut impl GuestMemory,
        hart: &mut Hart,
    ) -> Step {
        let pc = hart.pc;
        // SAFETY: the caller's contract.
        let Some(instruction) = (unsafe { self.fetch(memory, pc) }) else {
            return Step::Trap(Trap::IllegalInstruction);
        };
        if hart.frm > 4 && instruction.rounding() == Some(Rounding::Dyn) {
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
        hart.pc = next_pc;
        if flush {
            self.flush();
        }
        if !matches!(step, Step::Trap(_)) {
            self.executed += 1;
        }
        step
    }

    /// Executes instructions that follow each other in memory below `end`, up to the
    /// first that is not [`Step::Next`] or is a branch that is taken. Result: the last
    /// one's step and address.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    pub unsafe fn run_straight(&mut self, hart: &mut Hart, end: u64) -> (Step, u64) {
        /// Longest instruction, bytes.
        const LONGEST: u64 = 4;
        loop {
            let pc = hart.pc;
            // SAFETY: the caller's contract.
            let step = unsafe { self.step(hart) };
            let follows = hart.pc.wrapping_sub(pc).wrapping_sub(1) < LONGEST;
            if step != Step::Next || !follows || hart.pc >= end {
                return (step, pc);
            }
        }
    }

    /// Executes instructions until one is not [`Step::Next`], but at most `limit`
    /// (at least one), and returns the last one's step.
    ///
    /// # Safety
    /// As for [`step`](Self::step).
    pub unsafe fn run(&mut self, hart: &mut Hart, limit: u64) -> Step {
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

    /// Reads and decodes; the second half is read only if the first one asks for
    /// it, since it may lie in a page that is not there.
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
        let mut bits = unsafe { memory.load(Width::Half, pc) } as u32;
        if instruction_length(bits as u16) == 4 {
            // SAFETY: the caller's contract.
            bits |= (unsafe { memory.load(Width::Half, pc.wrapping_add(2)) } as u32) << 16;
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
    (pc >> 1) as usize % CACHE_ENTRIES
}
