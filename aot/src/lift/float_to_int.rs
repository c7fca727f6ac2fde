//! Conversions from float to integer.

use hartline_abi::hart::offset;
use hartline_isa::{IntFormat, Operation, Rounding, fflags};
use inkwell::FloatPredicate;
use inkwell::values::{FloatValue, IntValue};

use super::ir::{Likely, Memory};
use super::lifter::Lifter;
use super::service::Service;

/// Returns the lowest integer of a format and the number after its highest one.
fn range(to: IntFormat) -> (f64, f64) {
    let two = |power: i32| 2f64.powi(power);
    match to {
        IntFormat::I32 => (-two(31), two(31)),
        IntFormat::U32 => (0.0, two(32)),
        IntFormat::I64 => (-two(63), two(63)),
        IntFormat::U64 => (0.0, two(64)),
    }
}

/// Returns a range of values that are in the range of the format after rounding, and in the range of
/// `i64`: the first value and the one after the last.
fn common_range(to: IntFormat) -> (f64, f64) {
    let (low, high) = range(to);
    match to {
        IntFormat::I32 => (low + 1.0, high - 1.0),
        IntFormat::U32 => (low, high - 1.0),
        // Doubles of this size are integers.
        IntFormat::I64 => (low, high),
        IntFormat::U64 => (low, 2f64.powi(63)),
    }
}

/// Returns the lowest and the highest integer of a format as register images.
fn limits(to: IntFormat) -> (u64, u64) {
    match to {
        IntFormat::I32 => (i32::MIN as u64, i32::MAX as u64),
        IntFormat::U32 => (0, u64::MAX),
        IntFormat::I64 => (i64::MIN as u64, i64::MAX as u64),
        IntFormat::U64 => (0, u64::MAX),
    }
}

impl<'ctx> Lifter<'_, 'ctx> {
    /// Converts a double, on a short path if it is in the range where SSE and RISC-V agree.
    pub(super) fn double_to_int(
        &mut self,
        to: IntFormat,
        rounding: Rounding,
        value: FloatValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let [fast, slow, done] = ["fast", "slow", "done"].map(|name| self.new_block(name));
        let inside = self.is_between(value, common_range(to));
        ir.branch(inside, fast, slow, Likely::Taken);

        ir.position(slow);
        let other = match self.unit.features.rounds_to_integers() {
            true => self.any_to_int(to, rounding, value),
            false => self.interpret_aside(),
        };
        let after_slow = ir.current();
        ir.jump(done);

        ir.position(fast);
        let integer = self.truncate_double(self.rounded(rounding, value));
        let converted = self.as_register(to, integer);
        let after_fast = ir.current();
        ir.jump(done);

        ir.position(done);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&other, after_slow), (&converted, after_fast)]);
        phi.as_basic_value().into_int_value()
    }

    /// Converts any double, with saturation.
    fn any_to_int(
        &mut self,
        to: IntFormat,
        rounding: Rounding,
        value: FloatValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let [valid, invalid, done] =
            ["valid", "invalid", "converted"].map(|name| self.new_block(name));
        let integral = self.rounded_quietly(rounding, value);
        let inside = self.is_between(integral, range(to));
        ir.branch(inside, valid, invalid, Likely::Unknown);

        ir.position(valid);
        let integer = match to {
            IntFormat::U64 => self.positive_to_int(value, integral),
            _ => {
                self.note_inexact(value);
                self.truncate_double(integral)
            }
        };
        let converted = self.as_register(to, integer);
        let after_valid = ir.current();
        ir.jump(done);

        ir.position(invalid);
        self.raise_invalid();
        let negative = ir.compare_float(FloatPredicate::OLT, value, ir.double.const_zero());
        let (low, high) = limits(to);
        let saturated = ir
            .select(negative, ir.constant(low), ir.constant(high))
            .into_int_value();
        let after_invalid = ir.current();
        ir.jump(done);

        ir.position(done);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&converted, after_valid), (&saturated, after_invalid)]);
        phi.as_basic_value().into_int_value()
    }

    /// Converts `value`, rounded to `integral`, which is in the range of `u64`.
    fn positive_to_int(
        &self,
        value: FloatValue<'ctx>,
        integral: FloatValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let half = ir.double.const_float(2f64.powi(63));
        let zero = ir.double.const_zero();
        let is_high = ir.compare_float(FloatPredicate::OGE, integral, half);
        // Values from 2^63 on are integers.
        let inexact = ir.select(is_high, zero, value).into_float_value();
        self.note_inexact(inexact);
        let subtrahend = ir.select(is_high, half, zero).into_float_value();
        let types = [ir.double.into()];
        let low = ir.constrained("fsub", &types, &[integral.into(), subtrahend.into()], true);
        let low = self.truncate_double(low.into_float_value());
        let bit = ir.select(is_high, ir.constant(1 << 63), ir.constant(0));
        ir.built(ir.builder().build_xor(low, bit.into_int_value(), ""))
    }

    /// Sets NV, and no other flag.
    fn raise_invalid(&self) {
        let ir = self.ir;
        let slot = ir.hart_slot(offset::FFLAGS);
        let flags = ir.load_int(32, slot, Memory::Hart);
        let invalid = flags.get_type().const_int(fflags::NV.into(), false);
        let flags = ir.built(ir.builder().build_or(flags, invalid, ""));
        ir.store(slot, flags, Memory::Hart);
    }

    /// Whether a value is at least the first limit and less than the second.
    fn is_between(&self, value: FloatValue<'ctx>, (low, high): (f64, f64)) -> IntValue<'ctx> {
        let ir = self.ir;
        let [low, high] = [low, high].map(|limit| ir.double.const_float(limit));
        let above = ir.compare_float(FloatPredicate::OGE, value, low);
        let below = ir.compare_float(FloatPredicate::OLT, value, high);
        ir.built(ir.builder().build_and(above, below, ""))
    }

    /// Returns the register image of an integer.
    fn as_register(&self, to: IntFormat, integer: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        match to {
            IntFormat::I32 | IntFormat::U32 => ir.sign_extend(ir.truncate(integer, 32), 64),
            IntFormat::I64 | IntFormat::U64 => integer,
        }
    }

    /// Makes the interpreter execute the current instruction, on a rarely taken path, and returns
    /// the integer that it wrote. Other paths join after it.
    fn interpret_aside(&mut self) -> IntValue<'ctx> {
        let ir = self.ir;
        self.call_runtime_aside(Service::InterpretOne);
        let destination = self
            .instruction
            .decoded
            .map(|instruction| instruction.operation());
        match destination {
            Some(Operation::FloatToInt { rd, .. }) if rd.index() != 0 => {
                self.registers.x(ir, rd.index())
            }
            _ => ir.constant(0),
        }
    }

    /// Rounds to an integral value; sets NX if that changes it. Rounding towards zero is left to
    /// the conversion.
    fn rounded(&self, rounding: Rounding, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        match rounding {
            Rounding::Rtz => value,
            Rounding::Dyn => {
                let types = [self.ir.double.into()];
                self.ir
                    .constrained("rint", &types, &[value.into()], true)
                    .into_float_value()
            }
            _ => {
                self.note_inexact(value);
                self.rounded_quietly(rounding, value)
            }
        }
    }

    /// Rounds to an integral value. It does not set NX.
    fn rounded_quietly(&self, rounding: Rounding, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let (name, by_mxcsr) = match rounding {
            Rounding::Rtz => ("trunc", false),
            Rounding::Rne => ("roundeven", false),
            Rounding::Rdn => ("floor", false),
            Rounding::Rup => ("ceil", false),
            Rounding::Dyn => ("nearbyint", true),
            Rounding::Rmm => return self.rounded_half_away(value),
        };
        let types = [self.ir.double.into()];
        self.ir
            .constrained(name, &types, &[value.into()], by_mxcsr)
            .into_float_value()
    }

    /// Rounds to the nearest integral value, and values between two of them away from zero.
    fn rounded_half_away(&self, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let ir = self.ir;
        let types = [ir.double.into()];
        let binary = |name, a: FloatValue<'ctx>, b: FloatValue<'ctx>| {
            ir.constrained(name, &types, &[a.into(), b.into()], true)
                .into_float_value()
        };
        let truncated = self.rounded_quietly(Rounding::Rtz, value);
        // Both operations are exact.
        let fraction = binary("fsub", value, truncated);
        let magnitude = ir.intrinsic("llvm.fabs", &types, &[fraction.into()]);
        let half = ir.double.const_float(0.5);
        let away = ir.compare_float(FloatPredicate::OGE, magnitude.into_float_value(), half);
        let one = ir.double.const_float(1.0);
        let one = ir.intrinsic("llvm.copysign", &types, &[one.into(), value.into()]);
        let zero = ir.double.const_zero();
        let addend = ir.select(away, one.into_float_value(), zero);
        binary("fadd", truncated, addend.into_float_value())
    }

    /// Sets NX if a value, which is in the range of `i64`, is not an integer.
    fn note_inexact(&self, value: FloatValue<'ctx>) {
        self.truncate_double(value);
    }

    /// Rounds towards zero. It sets NX, so it stays even if the integer is not used.
    fn truncate_double(&self, value: FloatValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let types = [ir.int.into(), ir.double.into()];
        ir.constrained("fptosi", &types, &[value.into()], false)
            .into_int_value()
    }
}
