//! Floating point on SSE: MXCSR holds rounding mode and accrued flags; differences between SSE and
//! RISC-V (NaN results, ranges of conversions) are corrected here.

use hartline_abi::hart::offset;
use hartline_isa::{FMinMax, Format, IntFormat, Rounding};
use inkwell::types::{FloatType, VectorType};
use inkwell::values::{BasicMetadataValueEnum, FloatValue, IntValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::ir::{Likely, Memory};
use super::lifter::Lifter;
use super::register_image::RegisterImage;
use crate::analysis::RegisterSet;
use crate::technique::Technique;

/// Canonical NaN of binary32.
const NAN_SINGLE: u64 = 0x7fc0_0000;
/// Canonical NaN of binary64.
const NAN_DOUBLE: u64 = 0x7ff8_0000_0000_0000;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Whether results may stay raw: not if registers must be exact everywhere.
    fn keeps_raw(&self) -> bool {
        !self.unit.precise && self.unit.disabled.allows(Technique::RawNans)
    }

    pub(super) fn float_type(&self, format: Format) -> FloatType<'ctx> {
        match format {
            Format::Single => self.ir.single,
            Format::Double => self.ir.double,
        }
    }

    pub(super) fn canonical_nan(&self, format: Format) -> FloatValue<'ctx> {
        let (bits, nan) = match format {
            Format::Single => (32, NAN_SINGLE),
            Format::Double => (64, NAN_DOUBLE),
        };
        let constant = self.ir.int_of(bits).const_int(nan, false);
        self.ir
            .bitcast(constant, self.float_type(format))
            .into_float_value()
    }

    /// Returns the image of a single-precision value: NaN-boxed.
    pub(super) fn boxed(&self, value: FloatValue<'ctx>) -> RegisterImage<'ctx> {
        let ir = self.ir;
        let word = ir.context.i32_type();
        let ones = ir.bitcast(
            VectorType::const_vector(&[word.const_all_ones(); 2]),
            ir.single.vec_type(2),
        );
        let lanes = ir.built(ir.builder().build_insert_element(
            ones.into_vector_value(),
            value,
            word.const_zero(),
            "",
        ));
        RegisterImage {
            bits: ir.bitcast(lanes, ir.double).into_float_value(),
            single: Some(value),
            raw: None,
        }
    }

    /// Returns the low 32 bits of an image; the other bits are ignored.
    pub(super) fn low_lane(&self, bits: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let ir = self.ir;
        let lanes = ir.bitcast(bits, ir.single.vec_type(2)).into_vector_value();
        let zero = ir.context.i32_type().const_zero();
        ir.built(ir.builder().build_extract_element(lanes, zero, ""))
            .into_float_value()
    }

    /// Returns the value of an operand: the canonical NaN if a single is not NaN-boxed.
    pub(super) fn operand(&self, format: Format, image: RegisterImage<'ctx>) -> FloatValue<'ctx> {
        let ir = self.ir;
        match (format, image.single) {
            (Format::Double, _) => image.bits,
            (Format::Single, Some(single)) => single,
            (Format::Single, None) => {
                let bits = ir.bitcast(image.bits, ir.int).into_int_value();
                let limit = ir.constant(0xffff_ffff_0000_0000);
                let valid = ir.compare(IntPredicate::UGE, bits, limit);
                let value = self.low_lane(image.bits);
                ir.select(valid, value, self.canonical_nan(format))
                    .into_float_value()
            }
        }
    }

    pub(super) fn image(&self, format: Format, value: FloatValue<'ctx>) -> RegisterImage<'ctx> {
        match format {
            Format::Single => self.boxed(value),
            Format::Double => RegisterImage::of_bits(value),
        }
    }

    /// Returns the result of an instruction that propagates NaNs. A NaN that is not canonical
    /// becomes canonical where its bits are visible ([`raw`](super::raw)).
    pub(super) fn result(&self, format: Format, value: FloatValue<'ctx>) -> RegisterImage<'ctx> {
        if !self.keeps_raw() {
            return self.canonical(format, value, || ());
        }
        RegisterImage {
            raw: Some(format),
            ..self.image(format, value)
        }
    }

    /// Returns a result with its NaN made canonical. `on_nan` adds further code for a NaN. The code
    /// has a branch, not a select: the branch is predicted and off the path of the value.
    pub(super) fn canonical(
        &self,
        format: Format,
        value: FloatValue<'ctx>,
        on_nan: impl FnOnce(),
    ) -> RegisterImage<'ctx> {
        let ir = self.ir;
        let [nan, done] = ["nan", "number"].map(|name| self.new_block(name));
        let unordered = ir.compare_float(FloatPredicate::UNO, value, value);
        let before = ir.current();
        ir.branch(unordered, nan, done, Likely::NotTaken);
        ir.position(nan);
        on_nan();
        ir.jump(done);
        ir.position(done);
        let phi = ir.built(ir.builder().build_phi(self.float_type(format), ""));
        phi.add_incoming(&[(&value, before), (&self.canonical_nan(format), nan)]);
        self.image(format, phi.as_basic_value().into_float_value())
    }

    pub(super) fn arithmetic(
        &self,
        name: &str,
        format: Format,
        operands: &[FloatValue<'ctx>],
    ) -> FloatValue<'ctx> {
        let arguments: Vec<BasicMetadataValueEnum> =
            operands.iter().map(|&value| value.into()).collect();
        self.ir
            .constrained(name, &[self.float_type(format).into()], &arguments, true)
            .into_float_value()
    }

    /// Sets NV, and no other flag, if one factor is infinite and the other zero.
    pub(super) fn invalid_product(&self, format: Format, a: FloatValue<'ctx>, b: FloatValue<'ctx>) {
        let ir = self.ir;
        let r#type = self.float_type(format);
        let (zero, one) = (r#type.const_zero(), r#type.const_float(1.0));
        let infinity = r#type.const_float(f64::INFINITY);
        let infinite = |value: FloatValue<'ctx>| {
            let magnitude = ir.intrinsic("llvm.fabs", &[r#type.into()], &[value.into()]);
            self.ordered_compare("oeq", true, format, magnitude.into_float_value(), infinity)
        };
        let is_zero = |value| self.ordered_compare("oeq", true, format, value, zero);
        let builder = ir.builder();
        let first = ir.built(builder.build_and(infinite(a), is_zero(b), ""));
        let second = ir.built(builder.build_and(infinite(b), is_zero(a), ""));
        let invalid = ir.built(builder.build_or(first, second, ""));
        let operand = ir.select(invalid, zero, one).into_float_value();
        // 0 ÷ 0 is invalid, 1 ÷ 1 raises no flag.
        self.arithmetic("fdiv", format, &[operand, operand]);
    }

    /// A comparison that sets NV for signalling NaNs only (`quiet`) or for any NaN.
    pub(super) fn ordered_compare(
        &self,
        predicate: &str,
        quiet: bool,
        format: Format,
        a: FloatValue<'ctx>,
        b: FloatValue<'ctx>,
    ) -> IntValue<'ctx> {
        let name = if quiet { "fcmp" } else { "fcmps" };
        let arguments = [a.into(), b.into(), self.ir.metadata_string(predicate)];
        self.ir
            .constrained(name, &[self.float_type(format).into()], &arguments, false)
            .into_int_value()
    }

    /// A comparison that leaves all flags as `frflags` found them before it.
    pub(super) fn flag_neutral_compare(
        &self,
        predicate: &str,
        format: Format,
        a: FloatValue<'ctx>,
        b: FloatValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let result = self.ordered_compare(predicate, true, format, a, b);
        let [nan, done] = ["nan", "compared"].map(|name| self.new_block(name));
        let unordered = ir.compare_float(FloatPredicate::UNO, a, b);
        ir.branch(unordered, nan, done, Likely::NotTaken);
        ir.position(nan);
        self.restore_flags();
        ir.jump(done);
        ir.position(done);
        result
    }

    /// Returns the minimum or maximum of two numbers. Equal numbers differ at most in the sign of a
    /// zero: then their bits are combined.
    pub(super) fn ordered_min_max(
        &self,
        op: FMinMax,
        format: Format,
        a: FloatValue<'ctx>,
        b: FloatValue<'ctx>,
    ) -> FloatValue<'ctx> {
        let ir = self.ir;
        let bits = match format {
            Format::Single => ir.int_of(32),
            Format::Double => ir.int_of(64),
        };
        let [x, y] = [a, b].map(|value| ir.bitcast(value, bits).into_int_value());
        let (less, greater) = match op {
            FMinMax::Min => (a, b),
            FMinMax::Max => (b, a),
        };
        let combined = match op {
            FMinMax::Min => ir.built(ir.builder().build_or(x, y, "")),
            FMinMax::Max => ir.built(ir.builder().build_and(x, y, "")),
        };
        let combined = ir.bitcast(combined, self.float_type(format));
        // The comparison is constrained. Otherwise LLVM may compare before it is known that both
        // are numbers, with an instruction that sets NV for quiet NaNs.
        let a_below = self.ordered_compare("olt", true, format, a, b);
        let b_below = self.ordered_compare("olt", true, format, b, a);
        let other = ir.select(b_below, greater.into(), combined);
        ir.select(a_below, less.into(), other).into_float_value()
    }

    /// Leaves the function for the interpreter unless `frm` is RNE. The instructions of the block
    /// that follow need not check again, since none of them writes `frm`.
    pub(super) fn check_nearest(&mut self) {
        if self.block.rounds_to_nearest {
            return;
        }
        self.block.rounds_to_nearest = true;
        let ir = self.ir;
        let mode = ir.load_int(32, ir.hart_slot(offset::FRM), Memory::Hart);
        let nearest = mode.get_type().const_int(Rounding::Rne as u64, false);
        self.leave_unless(ir.compare(IntPredicate::EQ, mode, nearest));
    }

    /// Leaves the function for the interpreter, which continues at the current instruction, unless
    /// the condition holds.
    pub(super) fn leave_unless(&mut self, condition: IntValue<'ctx>) {
        let ir = self.ir;
        let [leaving, go_on] = ["leaving", "go_on"].map(|name| self.new_block(name));
        ir.branch(condition, go_on, leaving, Likely::Taken);
        ir.position(leaving);
        let (singles, raw) = (self.block.singles, self.block.raw);
        self.settle(RegisterSet::ALL);
        self.trap_at(self.instruction.pc);
        (self.block.singles, self.block.raw) = (singles, raw);
        ir.position(go_on);
    }

    /// Leaves the function for the interpreter unless the significand of `format` has enough bits
    /// for an integer.
    pub(super) fn check_exact(&mut self, format: Format, from: IntFormat, integer: IntValue<'ctx>) {
        let ir = self.ir;
        let limit = ir.constant(1 << format.precision());
        let magnitude = match from {
            IntFormat::U32 | IntFormat::U64 => integer,
            IntFormat::I32 | IntFormat::I64 => {
                let wide = ir.sign_extend(integer, 64);
                let wraps = ir.context.bool_type().const_zero();
                ir.intrinsic("llvm.abs", &[ir.int.into()], &[wide.into(), wraps.into()])
                    .into_int_value()
            }
        };
        self.leave_unless(ir.compare(IntPredicate::ULE, magnitude, limit));
    }

    pub(super) fn as_double(&self, format: Format, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        match format {
            Format::Double => value,
            Format::Single => self.extend(value),
        }
    }

    pub(super) fn extend(&self, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let ir = self.ir;
        let types = [ir.double.into(), ir.single.into()];
        ir.constrained("fpext", &types, &[value.into()], false)
            .into_float_value()
    }
}
