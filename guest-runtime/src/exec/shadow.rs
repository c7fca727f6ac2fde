//! Comparison with the interpreter (`--check`). Before translated code runs, the interpreter
//! executes the same code ahead, with its stores kept aside. When translated code returns to the
//! runtime, the interpreter must have passed the same point, with the same registers and the same
//! memory.
//!
//! Registers that are dead by liveness contain [`DEAD`] in the images of such a run. They are not
//! compared; if the code reads one nevertheless, that is an error.
//!
//! It is unknown in advance how far translated code runs, so some interpreter runs end too early.
//! Code that faults, reads the time or shares memory with other vCPUs is not compared.

use crate::arch::cpus;
use crate::convert::to_usize;
use crate::exec::interp::memory::{GuestMemory, modify, sign_extend, truncate};
use crate::exec::interp::{CodeId, Interpreter, Step};
use crate::mm::user;
use crate::mm::{Access, AddressSpace};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use hartline_abi::hart::{DEAD, Hart};
use hartline_abi::layout::PAGE_SIZE;
use hartline_isa::{AmoOp, Instruction, Operation, Width};

/// Smallest and largest number of instructions that are executed ahead.
const LIMITS: (usize, usize) = (64, 16_384);
/// The interpreter's run ahead.
pub(crate) struct Shadow {
    hart: Box<Hart>,
    interpreter: Box<Interpreter>,
    /// Whether there is a run to compare with.
    is_ready: bool,
    steps: Vec<Done>,
    stores: Vec<Stored>,
    end: End,
    /// Number of instructions to execute ahead.
    limit: usize,
    /// Number of comparisons, and number of failed attempts.
    compared: u64,
    missed: u64,
}

/// An executed instruction.
struct Done {
    pc: u64,
    /// The register that it wrote, with the old value.
    register: Option<(Register, u64)>,
    /// Number of earlier stores.
    stores: usize,
}

/// A store.
#[derive(Clone, Copy)]
struct Stored {
    address: u64,
    width: Width,
    value: u64,
}

/// The reason why the interpreter stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It reached the limit.
    Limit,
    /// The next instruction depends on more than registers and memory.
    Unknown,
    /// It reached an instruction that the runtime serves.
    Trap,
}

/// An integer or floating-point register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Register {
    X(usize),
    F(usize),
}

impl Register {
    fn all() -> impl Iterator<Item = Self> {
        (1..32).map(Self::X).chain((0..32).map(Self::F))
    }

    fn of(self, hart: &Hart) -> u64 {
        match self {
            Self::X(number) => hart.x(number),
            Self::F(number) => hart.f(number),
        }
    }

    fn set(self, hart: &Hart, value: u64) {
        match self {
            Self::X(number) => hart.set_x(number, value),
            Self::F(number) => hart.set_f(number, value),
        }
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::X(number) => write!(f, "x{number}"),
            Self::F(number) => write!(f, "f{number}"),
        }
    }
}

/// A set of registers: bit n is `xn`, bit 32 + n is `fn`.
#[derive(Clone, Copy)]
struct Registers(u64);

impl Registers {
    /// The registers that contain [`DEAD`].
    fn dead(hart: &Hart) -> Self {
        let dead = |set, register: Register| match register.of(hart) == DEAD {
            true => set | Self::bit(register),
            false => set,
        };
        Self(Register::all().fold(0, dead))
    }

    fn bit(register: Register) -> u64 {
        match register {
            Register::X(number) => 1 << number,
            Register::F(number) => 1 << (32 + number),
        }
    }

    /// Updates the set after an instruction that computes `written` from `read`.
    fn follow(&mut self, read: u64, written: Option<Register>) {
        let written = written.map_or(0, Self::bit);
        match self.0 & read {
            0 => self.0 &= !written,
            _ => self.0 |= written,
        }
    }

    fn first_in(self, set: u64) -> Option<Register> {
        Register::all().find(|&register| self.0 & set & Self::bit(register) != 0)
    }
}

/// A difference between translated code and the interpreter.
#[derive(Debug, PartialEq, Eq)]
enum Difference {
    Register(Register, u64, u64),
    Byte(u64, u8, u8),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(register, found, right) => {
                write!(f, "{register} is {found:#x}, not {right:#x}")
            }
            Self::Byte(address, found, right) => {
                write!(f, "the byte at {address:#x} is {found:#x}, not {right:#x}")
            }
        }
    }
}

/// The program's memory, with stores kept aside.
struct Ahead<'a> {
    memory: &'a mut AddressSpace,
    /// Words that were stored to: their values, and a bit for each valid byte.
    aside: BTreeMap<u64, (u64, u8)>,
    stores: &'a mut Vec<Stored>,
    /// An access was not allowed.
    failed: bool,
    /// The last page that was found readable; the next field: writable.
    readable: u64,
    writable: u64,
}

impl Ahead<'_> {
    fn may(&mut self, address: u64, length: u64, access: Access) -> bool {
        let last = match access {
            Access::Write => self.writable,
            _ => self.readable,
        };
        let page = address & !(PAGE_SIZE - 1);
        if page == last && address - page + length <= PAGE_SIZE {
            return true;
        }
        let ends = [address, address.wrapping_add(length - 1)];
        let allowed = ends.iter().all(|&at| self.memory.check(at, access).is_ok());
        if !allowed || user::slice(self.memory, address, length).is_err() {
            self.failed = true;
            return false;
        }
        match access {
            Access::Write => self.writable = page,
            _ => self.readable = page,
        }
        true
    }

    fn word(&self, number: u64) -> (u64, u64) {
        let (value, valid) = self.aside.get(&number).copied().unwrap_or_default();
        let bytes: [u8; 8] = core::array::from_fn(|byte| match valid >> byte & 1 {
            0 => 0,
            _ => 0xff,
        });
        (value, u64::from_le_bytes(bytes))
    }
}

fn mask(width: Width) -> u64 {
    match width {
        Width::Double => u64::MAX,
        _ => (1 << (8 * width.bytes())) - 1,
    }
}

/// Checks each access. Memory is accessed after [`user::slice`] has made it present.
impl GuestMemory for Ahead<'_> {
    unsafe fn load(&mut self, width: Width, address: u64) -> u64 {
        let length = u64::from(width.bytes());
        if !self.may(address, length, Access::Read) {
            return 0;
        }
        let mut bytes = [0; 8];
        for (index, byte) in bytes[..to_usize(length)].iter_mut().enumerate() {
            // SAFETY: `may` made the range present and readable, and no other vCPU runs.
            *byte = unsafe { (address as *const u8).add(index).read_volatile() };
        }
        let mut value = u64::from_le_bytes(bytes);
        if self.aside.is_empty() {
            return value;
        }
        let (number, shift) = (address / 8, address % 8 * 8);
        let (word, valid) = self.word(number);
        value = value & !(valid >> shift) | (word & valid) >> shift;
        if shift != 0 {
            let (word, valid) = self.word(number + 1);
            value = value & !(valid << (64 - shift)) | (word & valid) << (64 - shift);
        }
        value & mask(width)
    }

    unsafe fn store(&mut self, width: Width, address: u64, value: u64) {
        if !self.may(address, u64::from(width.bytes()), Access::Write) {
            return;
        }
        self.stores.push(Stored {
            address,
            width,
            value,
        });
        let bytes = value.to_le_bytes();
        for (index, &byte) in bytes[..width.bytes() as usize].iter().enumerate() {
            let at = address + index as u64;
            let (word, valid) = self.aside.entry(at / 8).or_default();
            let shift = at % 8 * 8;
            *word = *word & !(0xff << shift) | u64::from(byte) << shift;
            *valid |= 1 << (at % 8);
        }
    }

    unsafe fn amo(&mut self, op: AmoOp, width: Width, address: u64, operand: u64) -> u64 {
        // SAFETY: `load` and `store` check their accesses.
        unsafe {
            let old = self.load(width, address);
            self.store(
                width,
                address,
                truncate(width, modify(op, width, old, operand)),
            );
            sign_extend(width, old)
        }
    }

    unsafe fn replace(&mut self, width: Width, address: u64, expected: u64, new: u64) -> bool {
        // SAFETY: `load` and `store` check their accesses.
        unsafe {
            let done = self.load(width, address) == truncate(width, expected);
            if done {
                self.store(width, address, new);
            }
            done
        }
    }
}

/// The registers that an instruction reads, as bits of [`Registers`].
fn read_by(instruction: &Instruction) -> u64 {
    let registers = instruction.register_use();
    u64::from(registers.x_read) | u64::from(registers.f_read) << 32
}

/// The registers read by an instruction that determine its branch target or memory address. Others
/// may be meaningless: functions save registers of their callers, and copy arguments that were not
/// passed, as `fcntl` does.
fn relied_on_by(instruction: &Instruction) -> u64 {
    match instruction.operation() {
        Operation::Branch { .. } | Operation::Jalr { .. } => read_by(instruction),
        _ => instruction
            .memory_operand()
            .map_or(0, |(base, _)| 1 << base.index()),
    }
}

fn written_by(instruction: &Instruction) -> Option<Register> {
    let registers = instruction.register_use();
    match (registers.x_written, registers.f_written) {
        (0, 0) => None,
        (0, f) => Some(Register::F(f.trailing_zeros() as usize)),
        (x, _) => Some(Register::X(x.trailing_zeros() as usize)),
    }
}

impl Shadow {
    pub fn new() -> Self {
        Self {
            hart: Box::default(),
            interpreter: Box::default(),
            is_ready: false,
            steps: Vec::new(),
            stores: Vec::new(),
            end: End::Unknown,
            limit: LIMITS.0,
            compared: 0,
            missed: 0,
        }
    }

    /// The number of comparisons, and of failed attempts.
    pub fn counts(&self) -> (u64, u64) {
        (self.compared, self.missed)
    }

    /// Executes ahead from the pc of `hart`, where translated code is about to continue. With
    /// several vCPUs nothing is compared.
    ///
    /// # Panics
    /// If the code relies on a register that is dead by liveness.
    #[cold]
    pub fn enter(&mut self, hart: &Hart, code: CodeId, memory: &mut AddressSpace) {
        if cpus::several() {
            return;
        }
        self.interpreter.set_code(code);
        self.steps.clear();
        self.stores.clear();
        let own = &self.hart;
        own.x.set(hart.x.get());
        own.f.set(hart.f.get());
        own.pc.set(hart.pc.get());
        own.frm.set(hart.frm.get());
        own.reservation.set(hart.reservation.get());
        own.reserved_value.set(hart.reserved_value.get());
        let mut dead = Registers::dead(own);
        let mut ahead = Ahead {
            memory,
            aside: BTreeMap::new(),
            stores: &mut self.stores,
            failed: false,
            readable: u64::MAX,
            writable: u64::MAX,
        };
        self.end = End::Limit;
        while self.steps.len() < self.limit {
            let (pc, stores) = (own.pc.get(), ahead.stores.len());
            // SAFETY: `Ahead` checks each access.
            let fetched = unsafe { self.interpreter.fetch(&mut ahead, pc) };
            let Some(instruction) = fetched.filter(|_| !ahead.failed) else {
                self.end = End::Unknown;
                break;
            };
            if matches!(
                instruction.operation(),
                Operation::Csr { .. } | Operation::FenceI
            ) {
                self.end = End::Unknown;
                break;
            }
            let written = written_by(&instruction);
            let register = written.map(|register| (register, register.of(own)));
            // SAFETY: as above.
            let step = unsafe { self.interpreter.step_in(&mut ahead, own) };
            if ahead.failed {
                ahead.stores.truncate(stores);
                if let Some((register, old)) = register {
                    register.set(own, old);
                }
                own.pc.set(pc);
                self.end = End::Unknown;
                break;
            }
            if matches!(step, Step::Trap(_)) {
                self.end = End::Trap;
                break;
            }
            if let Some(register) = dead.first_in(relied_on_by(&instruction)) {
                panic!(
                    "check: the instruction at {pc:#x} relies on {register}, which liveness \
                     called dead at {:#x}",
                    hart.pc.get()
                );
            }
            dead.follow(read_by(&instruction), written);
            self.steps.push(Done {
                pc,
                register,
                stores,
            });
        }
        self.is_ready = true;
    }

    /// Compares after translated code has returned, at the pc of `hart`.
    ///
    /// # Panics
    /// If the interpreter's result is different.
    #[cold]
    pub fn leave(&mut self, hart: &Hart) {
        let Err(differences) = self.compare(hart) else {
            return;
        };
        let from = self.steps.first().map_or(hart.pc.get(), |step| step.pc);
        let mut text = alloc::string::String::new();
        for difference in differences.iter().take(8) {
            text += &alloc::format!("; {difference}");
        }
        panic!(
            "check: translated code came from {from:#x} to {:#x}, where the interpreter was \
             {}{text}",
            hart.pc.get(),
            match differences.is_empty() {
                true => "not",
                false => "with other values",
            }
        );
    }

    /// Discards the run ahead, because translated code does not continue.
    pub fn forget(&mut self) {
        self.is_ready = false;
    }

    /// Compares the state of translated code, in `hart`, with the interpreter's run.
    ///
    /// # Errors
    /// The smallest set of differences at any visit of the interpreter to this pc.
    fn compare(&mut self, hart: &Hart) -> Result<(), Vec<Difference>> {
        if !core::mem::take(&mut self.is_ready) {
            return Ok(());
        }
        let mut best: Option<Vec<Difference>> = None;
        let mut index = self.steps.len();
        let (mut pc, mut stores) = (self.hart.pc.get(), self.stores.len());
        loop {
            if pc == hart.pc.get() {
                let mut differences = self.registers(hart);
                if differences.is_empty() {
                    differences = different_bytes(&self.stores[..stores]);
                }
                if differences.is_empty() {
                    self.found(index);
                    return Ok(());
                }
                let is_better = |best: &Vec<_>| differences.len() < best.len();
                if best.as_ref().is_none_or(is_better) {
                    best = Some(differences);
                }
            }
            let Some(before) = index.checked_sub(1) else {
                break;
            };
            index = before;
            let done = &self.steps[index];
            (pc, stores) = (done.pc, done.stores);
            if let Some((register, old)) = done.register {
                register.set(&self.hart, old);
            }
        }
        if self.end == End::Trap {
            // The interpreter reached every point before the next service of the runtime.
            return Err(best.unwrap_or_default());
        }
        // The interpreter may reach this pc again later, with other registers.
        self.missed += 1;
        self.limit = match self.limit >= LIMITS.1 {
            true => LIMITS.0,
            false => self.limit * 4,
        };
        Ok(())
    }

    /// Adapts the limit to the point at which translated code returned.
    fn found(&mut self, index: usize) {
        self.compared += 1;
        let wanted = self.limit - self.limit / 16;
        self.limit = wanted.max(2 * index + 16).clamp(LIMITS.0, LIMITS.1);
    }

    /// Registers whose values differ from the interpreter's.
    fn registers(&self, hart: &Hart) -> Vec<Difference> {
        let pairs = Register::all().map(|register| {
            let (found, right) = (register.of(hart), register.of(&self.hart));
            (register, found, right)
        });
        pairs
            .filter(|&(_, found, right)| found != right && found != DEAD && right != DEAD)
            .map(|(register, found, right)| Difference::Register(register, found, right))
            .collect()
    }
}

/// Bytes of memory that differ from their values after these stores.
fn different_bytes(stores: &[Stored]) -> Vec<Difference> {
    let (mut seen, mut differences) = (BTreeSet::new(), Vec::new());
    for store in stores.iter().rev() {
        let right = store.value.to_le_bytes();
        let length = store.width.bytes() as usize;
        let mut found = [0; 8];
        for (index, byte) in found[..length].iter_mut().enumerate() {
            // SAFETY: the store was checked, so the page is present.
            *byte = unsafe { (store.address as *const u8).add(index).read_volatile() };
        }
        let is_dead = u64::from_le_bytes(found) == DEAD;
        for (index, (&found, &right)) in found[..length].iter().zip(&right).enumerate() {
            let at = store.address + index as u64;
            if seen.insert(at) && found != right && !is_dead {
                differences.push(Difference::Byte(at, found, right));
            }
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_isa::decode;

    const LEFT_AT: u64 = 0x1000;

    fn hart(pc: u64) -> Hart {
        let hart = Hart::default();
        hart.pc.set(pc);
        hart
    }

    /// The interpreter has executed `addi x5, x5, 1` at [`LEFT_AT`] three times in a loop.
    fn counted(end: End) -> Shadow {
        let mut shadow = Shadow::new();
        for old in 0..3 {
            shadow.steps.push(Done {
                pc: LEFT_AT,
                register: Some((Register::X(5), old)),
                stores: 0,
            });
        }
        shadow.hart.set_x(5, 3);
        shadow.hart.pc.set(LEFT_AT + 4);
        shadow.end = end;
        shadow.is_ready = true;
        shadow
    }

    fn back_with(value: u64) -> Hart {
        let back = hart(LEFT_AT);
        back.set_x(5, value);
        back
    }

    #[test]
    fn translated_code_may_leave_wherever_the_interpreter_was() {
        for value in 0..3 {
            let mut shadow = counted(End::Trap);
            assert_eq!(shadow.compare(&back_with(value)), Ok(()));
            assert_eq!(shadow.counts(), (1, 0));
        }
    }

    #[test]
    fn other_values_and_places_are_found() {
        let wrong = Difference::Register(Register::X(5), 9, 2);
        let found = counted(End::Trap).compare(&back_with(9));
        assert_eq!(found, Err(alloc::vec![wrong]));
        let elsewhere = counted(End::Trap).compare(&hart(0x2000));
        assert_eq!(elsewhere, Err(Vec::new()));
    }

    #[test]
    fn what_comes_later_is_not_known() {
        let mut shadow = counted(End::Limit);
        assert_eq!(shadow.compare(&back_with(9)), Ok(()));
        assert_eq!(shadow.counts(), (0, 1));
        assert!(shadow.limit > LIMITS.0);
    }

    #[test]
    fn registers_of_no_use_are_not_compared() {
        assert_eq!(counted(End::Trap).compare(&back_with(DEAD)), Ok(()));
    }

    #[test]
    fn memory_is_compared_with_the_last_stores() {
        let memory = [1_u8, 2, 3, 4];
        let address = memory.as_ptr() as u64;
        let store = |offset, width, value| Stored {
            address: address + offset,
            width,
            value,
        };
        let first = store(0, Width::Word, 0x0405_0201);
        let rest = [store(2, Width::Byte, 3), store(3, Width::Byte, 4)];
        assert_eq!(different_bytes(&[first, rest[0], rest[1]]), []);
        let expected = Difference::Byte(address + 2, 3, 5);
        assert_eq!(different_bytes(&[first, rest[1]]), [expected]);
    }

    #[test]
    fn only_uses_that_decide_something_are_errors() {
        let relied_on = |word: u32| relied_on_by(&decode(word).unwrap());
        // ld a0, 8(a1); sd a0, 8(a1); beq a0, a1, .; add a0, a0, a1; amoadd.d a0, a2, (a1).
        assert_eq!(relied_on(0x0085_b503), 1 << 11);
        assert_eq!(relied_on(0x00a5_b423), 1 << 11);
        assert_eq!(relied_on(0x00b5_0063), 1 << 10 | 1 << 11);
        assert_eq!(relied_on(0x00b5_0533), 0);
        assert_eq!(relied_on(0x00c5_b52f), 1 << 11);
    }

    #[test]
    fn what_is_made_of_a_dead_register_is_dead() {
        let mut dead = Registers(1 << 10);
        dead.follow(1 << 10, Some(Register::X(11)));
        assert_eq!(dead.0, 1 << 10 | 1 << 11);
        dead.follow(1 << 12, Some(Register::X(10)));
        assert_eq!(dead.0, 1 << 11);
    }
}
