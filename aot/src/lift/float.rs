//! Floating point on SSE: MXCSR holds rounding mode and accrued flags; what SSE
//! does differently (NaN results, ranges of conversions) is put right here.

use hartline_isa::{FBinOp, FCmp, FMinMax, Fma, Format, IntFormat, Operation, Rounding};
use inkwell::types::{FloatType, VectorType};
use inkwell::values::{BasicMetadataValueEnum, FloatValue, IntValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::ir::Likely;
use super::lifter::Lifter;
use super::register_image::RegisterImage;
use super::service::Service;
use crate::technique::Technique;

/// Canonical NaN of binary32.
const NAN_SINGLE: u64 = 0x7fc0_0000;
/// Canonical NaN of binary64.
const NAN_DOUBLE: u64 = 0x7ff8_0000_0000_0000;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Whether results may stay raw: not if registers have to be exact everywhere.
    fn keeps_raw(&self) -> bool {
        !self.unit.precise && self.unit.disabled.allows(Technique::RawNans)
    }

    fn float_type(&self, format: Format) -> FloatType<'ctx> {
        match format {
            Format::Single => self.ir.single,
            Format::Double => self.ir.double,
        }
    }

    fn canonical_nan(&self, format: Format) -> FloatValue<'ctx> {
        let (bits, nan) = match format {
            Format::Single => (32, NAN_SINGLE),
            Format::Double => (64, NAN_DOUBLE),
        };
        let constant = self.ir.int_of(bits).const_int(nan, false);
        self.ir
            .bitcast(constant, self.float_type(format))
            .into_float_value()
    }

    /// The image of a single-precision value: NaN-boxed.
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

    /// The low 32 bits of an image, whatever the others are.
    pub(super) fn low_lane(&self, bits: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let ir = self.ir;
        let lanes = ir.bitcast(bits, ir.single.vec_type(2)).into_vector_value();
        let zero = ir.context.i32_type().const_zero();
        ir.built(ir.builder().build_extract_element(lanes, zero, ""))
            .into_float_value()
    }

    /// The value of an operand: the canonical NaN if a single is not NaN-boxed.
    fn operand(&self, format: Format, image: RegisterImage<'ctx>) -> FloatValue<'ctx> {
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

    fn image(&self, format: Format, value: FloatValue<'ctx>) -> RegisterImage<'ctx> {
        match format {
            Format::Single => self.boxed(value),
            Format::Double => RegisterImage::of_bits(value),
        }
    }

    /// The result of an instruction that propagates NaNs: one that is not canonical
    /// becomes so where it can be seen ([`raw`](super::raw)).
    fn result(&self, format: Format, value: FloatValue<'ctx>) -> RegisterImage<'ctx> {
        if !self.keeps_raw() {
            return self.canonical(format, value, || ());
        }
        RegisterImage {
            raw: Some(format),
            ..self.image(format, value)
        }
    }

    /// A result with NaN made canonical. `on_nan` adds what else a NaN needs. A
    /// branch, not a select: it is predicted and off the path of the value.
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

    fn arithmetic(
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

    pub(super) fn float_binary(
        &mut self,
        op: FBinOp,
        format: Format,
        a: RegisterImage<'ctx>,
        b: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        let name = match op {
            FBinOp::Add => "fadd",
            FBinOp::Sub => "fsub",
            FBinOp::Mul => "fmul",
            FBinOp::Div => "fdiv",
        };
        let operands = [self.operand(format, a), self.operand(format, b)];
        let result = self.arithmetic(name, format, &operands);
        self.result(format, result)
    }

    pub(super) fn float_sqrt(
        &mut self,
        format: Format,
        a: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        let result = self.arithmetic("sqrt", format, &[self.operand(format, a)]);
        self.result(format, result)
    }

    pub(super) fn float_fma(
        &mut self,
        fma: Fma,
        format: Format,
        operands: [RegisterImage<'ctx>; 3],
    ) -> RegisterImage<'ctx> {
        let [a, b, c] = operands.map(|image| self.operand(format, image));
        let negate = |yes: bool, value: FloatValue<'ctx>| {
            if yes {
                self.ir.built(self.ir.builder().build_float_neg(value, ""))
            } else {
                value
            }
        };
        let product_a = negate(fma.negate_product, a);
        // The addend is subtracted from the product with its sign.
        let addend = negate(fma.negate_addend, c);
        let result = self.arithmetic("fma", format, &[product_a, b, addend]);
        // ∞ × 0 is invalid even if the addend is a quiet NaN; x86 thinks otherwise.
        self.canonical(format, result, || self.invalid_product(format, a, b))
    }

    /// Sets NV, and no other flag, if one factor is infinite and the other zero.
    fn invalid_product(&self, format: Format, a: FloatValue<'ctx>, b: FloatValue<'ctx>) {
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
        // 0 ÷ 0 is invalid, 1 ÷ 1 is nothing.
        self.arithmetic("fdiv", format, &[operand, operand]);
    }

    /// A comparison that sets NV for signalling NaNs only (`quiet`) or for any.
    fn ordered_compare(
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

    pub(super) fn float_compare(
        &mut self,
        op: FCmp,
        format: Format,
        a: RegisterImage<'ctx>,
        b: RegisterImage<'ctx>,
    ) -> IntValue<'ctx> {
        let (predicate, quiet) = match op {
            FCmp::Eq => ("oeq", true),
            FCmp::Lt => ("olt", false),
            FCmp::Le => ("ole", false),
        };
        let (a, b) = (self.operand(format, a), self.operand(format, b));
        if self.instruction.flag_neutral {
            return self.flag_neutral_compare(predicate, format, a, b);
        }
        self.ordered_compare(predicate, quiet, format, a, b)
    }

    /// A comparison after which all flags are as `frflags` found them before it.
    fn flag_neutral_compare(
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

    pub(super) fn float_min_max(
        &mut self,
        op: FMinMax,
        format: Format,
        a: RegisterImage<'ctx>,
        b: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        let ir = self.ir;
        let (a, b) = (self.operand(format, a), self.operand(format, b));
        let [nan, ordered, done] = ["nan", "ordered", "done"].map(|name| self.new_block(name));
        let unordered = self.ordered_compare("uno", true, format, a, b);
        ir.branch(unordered, nan, ordered, Likely::NotTaken);

        ir.position(nan);
        let a_nan = ir.compare_float(FloatPredicate::UNO, a, a);
        let b_nan = ir.compare_float(FloatPredicate::UNO, b, b);
        let b_or_nan = ir.select(b_nan, self.canonical_nan(format), b);
        let number = ir.select(a_nan, b_or_nan, a.into()).into_float_value();
        ir.jump(done);

        ir.position(ordered);
        let chosen = self.ordered_min_max(op, format, a, b);
        ir.jump(done);

        ir.position(done);
        let phi = ir.built(ir.builder().build_phi(self.float_type(format), ""));
        phi.add_incoming(&[(&number, nan), (&chosen, ordered)]);
        self.image(format, phi.as_basic_value().into_float_value())
    }

    /// Minimum or maximum of two numbers. Equal ones differ in the sign of a zero at
    /// most: then the bits are combined.
    fn ordered_min_max(
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
        // Constrained, or LLVM may compare before it knows that both are numbers, with
        // an instruction that sets NV for quiet NaNs.
        let a_below = self.ordered_compare("olt", true, format, a, b);
        let b_below = self.ordered_compare("olt", true, format, b, a);
        let other = ir.select(b_below, greater.into(), combined);
        ir.select(a_below, less.into(), other).into_float_value()
    }

    pub(super) fn float_class(&mut self, format: Format, a: RegisterImage<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let builder = ir.builder();
        let (width, mantissa) = match format {
            Format::Single => (32, 23),
            Format::Double => (64, 52),
        };
        let value = self.operand(format, a);
        let bits = ir.bitcast(value, ir.int_of(width)).into_int_value();
        let bits = ir.zero_extend(bits, 64);
        let magnitude = ir.constant(!(u64::MAX << (width - 1)));
        let magnitude = ir.built(builder.build_and(bits, magnitude, ""));
        let negative = ir.compare(IntPredicate::NE, bits, magnitude);
        let infinity = ((1u64 << (width - 1 - mantissa)) - 1) << mantissa;
        let at_least = |limit: u64| ir.compare(IntPredicate::UGE, magnitude, ir.constant(limit));
        let pick = |condition, a: IntValue<'ctx>, b: IntValue<'ctx>| {
            ir.select(condition, a, b).into_int_value()
        };
        // Bits of the result for a negative and a positive number of each class.
        let signed =
            |minus: u32, plus: u32| pick(negative, ir.constant(1 << minus), ir.constant(1 << plus));
        let mut class = signed(3, 4);
        class = pick(at_least(1), signed(2, 5), class);
        class = pick(at_least(1 << mantissa), signed(1, 6), class);
        class = pick(at_least(infinity), signed(0, 7), class);
        class = pick(at_least(infinity + 1), ir.constant(1 << 8), class);
        let quiet = infinity | 1 << (mantissa - 1);
        pick(at_least(quiet), ir.constant(1 << 9), class)
    }

    /// In the range where SSE and RISC-V agree SSE converts; the interpreter does
    /// the rest.
    pub(super) fn float_to_int(
        &mut self,
        to: IntFormat,
        format: Format,
        rounding: Rounding,
        a: RegisterImage<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let value = self.as_double(format, self.operand(format, a));
        let two = |power: i32| ir.double.const_float(2f64.powi(power));
        let (low, high) = match to {
            IntFormat::I32 => (ir.double.const_float(-2147483647.0), two(31)),
            IntFormat::U32 => (ir.double.const_zero(), two(32)),
            IntFormat::I64 => (ir.double.const_float(-9.2233720368547e18), two(63)),
            IntFormat::U64 => (ir.double.const_zero(), two(63)),
        };
        // One below the limit, so that rounding up stays in range.
        let high = match to {
            IntFormat::I32 | IntFormat::U32 => ir.built(ir.builder().build_float_sub(
                high,
                ir.double.const_float(1.0),
                "",
            )),
            IntFormat::I64 | IntFormat::U64 => high,
        };
        let [fast, slow, done] = ["fast", "slow", "done"].map(|name| self.new_block(name));
        let above = ir.compare_float(FloatPredicate::OGE, value, low);
        let below = ir.compare_float(FloatPredicate::OLT, value, high);
        let inside = ir.built(ir.builder().build_and(above, below, ""));
        ir.branch(inside, fast, slow, Likely::Taken);

        ir.position(slow);
        let by_runtime = self.interpret_aside();
        ir.jump(done);

        ir.position(fast);
        let integer = self.truncate_double(self.rounded(rounding, value));
        let converted = match to {
            IntFormat::I32 | IntFormat::U32 => ir.sign_extend(ir.truncate(integer, 32), 64),
            IntFormat::I64 | IntFormat::U64 => integer,
        };
        ir.jump(done);

        ir.position(done);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&by_runtime, slow), (&converted, fast)]);
        phi.as_basic_value().into_int_value()
    }

    /// On a rarely taken way: has the interpreter execute the current instruction
    /// and gives the integer it wrote. Other ways join after it.
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

    fn as_double(&self, format: Format, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        match format {
            Format::Double => value,
            Format::Single => self.extend(value),
        }
    }

    fn extend(&self, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let ir = self.ir;
        let types = [ir.double.into(), ir.single.into()];
        ir.constrained("fpext", &types, &[value.into()], false)
            .into_float_value()
    }

    /// Rounds to an integral value; sets NX if that changes it. Towards zero is
    /// left to the conversion.
    fn rounded(&self, rounding: Rounding, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let (name, by_mxcsr) = match rounding {
            Rounding::Rtz => return value,
            Rounding::Rne => ("roundeven", false),
            Rounding::Rdn => ("floor", false),
            Rounding::Rup => ("ceil", false),
            Rounding::Rmm | Rounding::Dyn => ("rint", true),
        };
        if !by_mxcsr {
            // LLVM's other roundings leave NX alone, a conversion does not.
            self.truncate_double(value);
        }
        let types = [self.ir.double.into()];
        self.ir
            .constrained(name, &types, &[value.into()], by_mxcsr)
            .into_float_value()
    }

    /// Towards zero; sets NX, so it stays even if the integer is not used.
    fn truncate_double(&self, value: FloatValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let types = [ir.int.into(), ir.double.into()];
        ir.constrained("fptosi", &types, &[value.into()], false)
            .into_int_value()
    }

    pub(super) fn float_from_int(
        &mut self,
        format: Format,
        from: IntFormat,
        a: IntValue<'ctx>,
    ) -> RegisterImage<'ctx> {
        let ir = self.ir;
        let (name, operand) = match from {
            IntFormat::I32 => ("sitofp", ir.truncate(a, 32)),
            IntFormat::U32 => ("sitofp", ir.zero_extend(ir.truncate(a, 32), 64)),
            IntFormat::I64 => ("sitofp", a),
            IntFormat::U64 => ("uitofp", a),
        };
        let types = [self.float_type(format).into(), operand.get_type().into()];
        let value = ir
            .constrained(name, &types, &[operand.into()], true)
            .into_float_value();
        self.image(format, value)
    }

    pub(super) fn float_convert(
        &mut self,
        to: Format,
        a: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        let ir = self.ir;
        let value = match to {
            Format::Double => self.extend(self.operand(Format::Single, a)),
            Format::Single => {
                let types = [ir.single.into(), ir.double.into()];
                ir.constrained("fptrunc", &types, &[a.bits.into()], true)
                    .into_float_value()
            }
        };
        self.result(to, value)
    }
}
