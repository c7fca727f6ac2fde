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
    /// Pinned registers that stay in memory: the function only passes them on.
    parked: RegisterSet,
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
        parked: RegisterSet,
    ) -> Self {
        let registers = Self {
            x: std::array::from_fn(|n| ir.variable(ir.int, &format!("x{n}"))),
            f: std::array::from_fn(|n| ir.variable(ir.double, &format!("f{n}"))),
            signature,
            convention,
            marks_dead,
            parked,
        };
        // Not those that the parameters set: LLVM describes parameters as of the entry, so that the 0 would
        // count in debug information.
        let set = registers.set_by_parameters();
        registers.forget(ir, RegisterSet::ALL.difference(parked).difference(set));
        let variables = registers.pinned(&convention);
        for ((variable, is_parked), value) in variables.zip(function.get_param_iter()) {
            ir.set_in(variable, value, is_parked);
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

    /// Variables of the registers of a convention, in the order of parameters and results, and whether each
    /// is parked.
    fn pinned(&self, convention: &Convention) -> impl Iterator<Item = (PointerValue<'ctx>, bool)> {
        let is_in = |set: u32, n: usize| set >> n & 1 == 1;
        let x = convention
            .slots()
            .map(move |n| (self.x[n], is_in(self.parked.x, n)));
        let floats = self.pinned_floats().iter().map(|&n| usize::from(n));
        x.chain(floats.map(move |n| (self.f[n], is_in(self.parked.f, n))))
    }

    /// The registers that have a parameter.
    fn set_by_parameters(&self) -> RegisterSet {
        let bits = |numbers: &[u8]| numbers.iter().fold(0, |set, number| set | 1 << number);
        RegisterSet {
            x: self
                .convention
                .slots()
                .fold(0, |set, number| set | 1 << number),
            f: bits(self.pinned_floats()),
        }
    }

    fn read_x(&self, ir: &Ir<'ctx>, n: usize) -> IntValue<'ctx> {
        ir.get_in(ir.int.into(), self.x[n], self.parked.x >> n & 1 == 1)
            .into_int_value()
    }

    fn read_f(&self, ir: &Ir<'ctx>, n: usize) -> FloatValue<'ctx> {
        ir.get_in(ir.double.into(), self.f[n], self.parked.f >> n & 1 == 1)
            .into_float_value()
    }

    fn write_x(&self, ir: &Ir<'ctx>, n: usize, value: IntValue<'ctx>) {
        ir.set_in(self.x[n], value, self.parked.x >> n & 1 == 1);
    }

    fn write_f(&self, ir: &Ir<'ctx>, n: usize, value: FloatValue<'ctx>) {
        ir.set_in(self.f[n], value, self.parked.f >> n & 1 == 1);
    }

    fn pinned_floats(&self) -> &'static [u8] {
        match self.signature {
            Signature::Integer => &[],
            Signature::Full => &PINNED_F,
        }
    }

    /// Value of `xn`, `n` not 0.
    pub fn x(&self, ir: &Ir<'ctx>, number: usize) -> IntValue<'ctx> {
        self.read_x(ir, number)
    }

    /// Sets `xn`, `n` not 0.
    pub fn set_x(&self, ir: &Ir<'ctx>, number: usize, value: IntValue<'ctx>) {
        self.write_x(ir, number, value);
    }

    /// Value of `fn`.
    pub fn f(&self, ir: &Ir<'ctx>, number: usize) -> FloatValue<'ctx> {
        self.read_f(ir, number)
    }

    /// Sets `fn`.
    pub fn set_f(&self, ir: &Ir<'ctx>, number: usize, value: FloatValue<'ctx>) {
        self.write_f(ir, number, value);
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
            _ => self.read_x(ir, n).into(),
        });
        let floats = self.pinned_floats().iter();
        let floats = floats.map(|&n| match needed.f >> n & 1 {
            0 if self.marks_dead => self.dead_float(ir).into(),
            0 => ir.double.get_undef().into(),
            _ => self.read_f(ir, usize::from(n)).into(),
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
        self.forget(ir, self.pinned_set().difference(self.parked));
        for (index, (variable, is_parked)) in self.pinned(convention).enumerate() {
            ir.set_in(variable, ir.extract(state, index), is_parked);
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
            self.write_x(ir, n, x);
        }
        for n in set.f_numbers() {
            self.write_f(ir, n, f);
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
            self.write_x(ir, n, value);
        }
        for n in set.f_numbers() {
            let value = ir.load(ir.double, slots.at(ir, f_offset(n)), Memory::Hart);
            self.write_f(ir, n, value.into_float_value());
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
            ir.store(slots.at(ir, x_offset(n)), self.read_x(ir, n), Memory::Hart);
        }
        for n in set.f_numbers() {
            let value = self.read_f(ir, n);
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
