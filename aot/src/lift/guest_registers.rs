//! Guest registers during lifting, as arguments and results, and in the `Hart` structure.

use hartline_abi::hart::{DEAD, PINNED_F, PINNED_X, offset};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, FloatValue, FunctionValue, IntValue, PointerValue,
    StructValue,
};

use super::debug::FunctionDebug;
use super::ir::{Ir, Memory, Signature};
use crate::analysis::{Convention, RegisterSet};

/// Variables of the 64 guest registers.
pub struct GuestRegisters<'ctx> {
    x: [PointerValue<'ctx>; 32],
    f: [PointerValue<'ctx>; 32],
    signature: Signature,
    /// The function's convention.
    convention: Convention,
    /// Whether dead registers hold [`DEAD`].
    marks_dead: bool,
}

/// Offset of `xn` in the `Hart` structure.
pub(super) fn x_offset(number: usize) -> u64 {
    offset::X + 8 * number as u64
}

/// Offset of `fn` in the `Hart` structure.
fn f_offset(number: usize) -> u64 {
    offset::F + 8 * number as u64
}

impl<'ctx> GuestRegisters<'ctx> {
    /// Makes the variables in the entry block under construction and sets the pinned registers from
    /// the parameters.
    pub fn new(
        ir: &Ir<'ctx>,
        function: FunctionValue<'ctx>,
        signature: Signature,
        convention: Convention,
        marks_dead: bool,
    ) -> Self {
        let registers = Self {
            x: std::array::from_fn(|n| ir.variable(ir.int, &format!("x{n}"))),
            f: std::array::from_fn(|n| ir.variable(ir.double, &format!("f{n}"))),
            signature,
            convention,
            marks_dead,
        };
        registers.forget(ir, RegisterSet::ALL);
        let variables = registers.pinned(&convention);
        for (variable, value) in variables.zip(function.get_param_iter()) {
            ir.set(variable, value);
        }
        registers
    }

    /// Adds debug information about the registers.
    pub fn describe(&self, ir: &Ir<'ctx>, debug: &FunctionDebug<'_, 'ctx>) {
        for (number, &variable) in self.x.iter().enumerate().skip(1) {
            debug.register(ir, &format!("x{number}"), variable, false);
        }
        for (number, &variable) in self.f.iter().enumerate() {
            debug.register(ir, &format!("f{number}"), variable, true);
        }
    }

    /// Returns the function's convention.
    pub fn convention(&self) -> Convention {
        self.convention
    }

    /// Variables of the registers of a convention, in the order of parameters and results.
    fn pinned(&self, convention: &Convention) -> impl Iterator<Item = PointerValue<'ctx>> {
        let x = convention.slots().map(|n| self.x[n]);
        let floats = self.pinned_floats();
        x.chain(floats.iter().map(|&n| self.f[usize::from(n)]))
    }

    fn pinned_floats(&self) -> &'static [u8] {
        match self.signature {
            Signature::Integer => &[],
            Signature::Full => &PINNED_F,
        }
    }

    /// Value of `xn`, `n` not 0.
    pub fn x(&self, ir: &Ir<'ctx>, number: usize) -> IntValue<'ctx> {
        ir.get(self.x[number])
    }

    /// Sets `xn`, `n` not 0.
    pub fn set_x(&self, ir: &Ir<'ctx>, number: usize, value: IntValue<'ctx>) {
        ir.set(self.x[number], value);
    }

    /// Value of `fn`.
    pub fn f(&self, ir: &Ir<'ctx>, number: usize) -> FloatValue<'ctx> {
        ir.get_double(self.f[number])
    }

    /// Sets `fn`.
    pub fn set_f(&self, ir: &Ir<'ctx>, number: usize, value: FloatValue<'ctx>) {
        ir.set(self.f[number], value);
    }

    /// The pinned registers.
    pub fn pinned_set(&self) -> RegisterSet {
        let set = |numbers: &[u8]| numbers.iter().fold(0, |set, &n| set | 1 << n);
        RegisterSet {
            x: set(&PINNED_X),
            f: set(self.pinned_floats()),
        }
    }

    /// Returns the registers of a convention as results. Pinned registers outside `needed` are
    /// undefined: the code that takes them sees some value, as LLVM optimises each function
    /// separately.
    pub fn pinned_values(
        &self,
        ir: &Ir<'ctx>,
        needed: RegisterSet,
        convention: &Convention,
    ) -> Vec<BasicValueEnum<'ctx>> {
        let needed = needed.union(convention.added());
        let integers = convention.slots().map(|n| match needed.x >> n & 1 {
            0 if self.marks_dead => ir.constant(DEAD).into(),
            0 => ir.int.get_undef().into(),
            _ => ir.get(self.x[n]).into(),
        });
        let floats = self.pinned_floats().iter();
        let floats = floats.map(|&n| match needed.f >> n & 1 {
            0 if self.marks_dead => self.dead_float(ir).into(),
            0 => ir.double.get_undef().into(),
            _ => ir.get_double(self.f[usize::from(n)]).into(),
        });
        integers.chain(floats).collect()
    }

    /// Returns the registers of a convention as arguments, as
    /// [`pinned_values`](Self::pinned_values) does for results.
    pub fn pinned_arguments(
        &self,
        ir: &Ir<'ctx>,
        needed: RegisterSet,
        convention: &Convention,
    ) -> Vec<BasicMetadataValueEnum<'ctx>> {
        let values = self.pinned_values(ir, needed, convention);
        values.into_iter().map(Into::into).collect()
    }

    /// Sets the pinned registers from a state returned by a function of `convention`. Registers of
    /// its excluded set are dead.
    pub fn set_pinned(&self, ir: &Ir<'ctx>, state: StructValue<'ctx>, convention: &Convention) {
        self.forget(ir, self.pinned_set());
        for (index, variable) in self.pinned(convention).enumerate() {
            ir.set(variable, ir.extract(state, index));
        }
    }

    /// Marks registers as unset: no code reads them before they are written. Code that reads them
    /// anyway gets 0 and not an undefined value, which LLVM could replace by anything.
    pub fn forget(&self, ir: &Ir<'ctx>, set: RegisterSet) {
        let (x, f) = match self.marks_dead {
            true => (ir.constant(DEAD), self.dead_float(ir)),
            false => (ir.constant(0), ir.double.const_zero()),
        };
        for n in set.x_numbers() {
            ir.set(self.x[n], x);
        }
        for n in set.f_numbers() {
            ir.set(self.f[n], f);
        }
    }

    fn dead_float(&self, ir: &Ir<'ctx>) -> FloatValue<'ctx> {
        ir.double.const_float(f64::from_bits(DEAD))
    }

    /// Marks the words of these registers in the `Hart` structure as dead, if registers are marked
    /// at all.
    pub fn mark_dead(&self, ir: &Ir<'ctx>, set: RegisterSet) {
        if !self.marks_dead {
            return;
        }
        for n in set.x_numbers() {
            ir.store(ir.hart_slot(x_offset(n)), ir.constant(DEAD), Memory::Hart);
        }
        for n in set.f_numbers() {
            ir.store(ir.hart_slot(f_offset(n)), self.dead_float(ir), Memory::Hart);
        }
    }

    /// Loads registers from the `Hart` structure.
    pub fn load(&self, ir: &Ir<'ctx>, set: RegisterSet) {
        self.load_from(ir, set, &HartSlots::of(ir, set, MANY));
    }

    /// Loads registers as [`load`](Self::load) does, for one of several loads that share `slots`.
    pub fn load_from(&self, ir: &Ir<'ctx>, set: RegisterSet, slots: &HartSlots<'ctx>) {
        for n in set.x_numbers() {
            let value = ir.load_int(64, slots.at(ir, x_offset(n)), Memory::Hart);
            ir.set(self.x[n], value);
        }
        for n in set.f_numbers() {
            let value = ir.load(ir.double, slots.at(ir, f_offset(n)), Memory::Hart);
            ir.set(self.f[n], value);
        }
    }

    /// Stores registers to the `Hart` structure.
    pub fn store(&self, ir: &Ir<'ctx>, set: RegisterSet) {
        self.store_to(ir, set, &HartSlots::of(ir, set, MANY));
    }

    /// Stores registers as [`store`](Self::store) does, where size matters more than speed.
    pub fn store_apart(&self, ir: &Ir<'ctx>, set: RegisterSet) {
        self.store_to(ir, set, &HartSlots::of(ir, set, 2));
    }

    fn store_to(&self, ir: &Ir<'ctx>, set: RegisterSet, slots: &HartSlots<'ctx>) {
        for n in set.x_numbers() {
            ir.store(slots.at(ir, x_offset(n)), ir.get(self.x[n]), Memory::Hart);
        }
        for n in set.f_numbers() {
            let value = ir.get_double(self.f[n]);
            ir.store(slots.at(ir, f_offset(n)), value, Memory::Hart);
        }
    }
}

/// The number of integer registers from which on the address of the `Hart` structure is kept in a
/// register: an access through it takes 4 bytes, an access through `gs:` takes 9.
const MANY: usize = 4;

/// The addressing of words in the `Hart` structure.
#[derive(Clone, Copy)]
pub struct HartSlots<'ctx> {
    /// The address of the middle of the integer registers; `None` to address through `gs:`.
    middle: Option<IntValue<'ctx>>,
}

impl<'ctx> HartSlots<'ctx> {
    /// Prepares loads of the registers `set` from here on in code without branches.
    pub fn for_loads(ir: &Ir<'ctx>, set: RegisterSet) -> Self {
        Self::of(ir, set, MANY)
    }

    /// Prepares accesses to the registers `set`; from `many` integer registers on, by an address.
    fn of(ir: &Ir<'ctx>, set: RegisterSet, many: usize) -> Self {
        let middle = (set.x_numbers().count() >= many).then(|| ir.load_hart(offset::MIDDLE));
        Self { middle }
    }

    fn at(&self, ir: &Ir<'ctx>, offset: u64) -> PointerValue<'ctx> {
        match self.middle {
            Some(middle) => ir.hart_slot_from(middle, offset),
            None => ir.hart_slot(offset),
        }
    }
}
