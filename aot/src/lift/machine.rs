//! The lifter as a [`Machine`]: converts instruction semantics to LLVM IR.

use hartline_abi::hart::{NO_RESERVATION, offset};
use hartline_isa::{
    AmoOp, BinOp, CSR_FFLAGS, Cmp, CsrOp, DivOp, FBinOp, FCmp, FMinMax, FReg, Fence, Fma, Format,
    Instruction, IntFormat, Machine, Ordering, Rounding, Trap, UnOp, Width, XReg,
};
use inkwell::values::{FloatValue, IntValue};
use inkwell::{AtomicOrdering, AtomicRMWBinOp, FloatPredicate, IntPredicate};

use super::ir::{Likely, Memory};
use super::lifter::{Control, Lifter};
use super::register_image::RegisterImage;
use super::service::Service;

impl<'ctx> Machine for Lifter<'_, 'ctx> {
    type Int = IntValue<'ctx>;
    type Bool = IntValue<'ctx>;
    type Float = RegisterImage<'ctx>;

    fn int(&mut self, value: u64) -> IntValue<'ctx> {
        self.ir.constant(value)
    }

    fn pc_relative(&mut self, offset: i64) -> IntValue<'ctx> {
        let link = self.instruction.pc.wrapping_add_signed(offset);
        let address = self.guest_address(link);
        self.note_address(address, link);
        address
    }

    fn read_x(&mut self, register: XReg) -> IntValue<'ctx> {
        match register.index() {
            0 => self.ir.constant(0),
            number => {
                let value = self.registers.x(self.ir, number);
                self.note_base(number, value);
                value
            }
        }
    }

    fn write_x(&mut self, register: XReg, value: IntValue<'ctx>) {
        if register != XReg::ZERO {
            self.note_written(register.index(), value);
            let value = self.written(value);
            self.registers.set_x(self.ir, register.index(), value);
        }
    }

    fn read_f(&mut self, register: FReg) -> RegisterImage<'ctx> {
        let number = register.index();
        RegisterImage {
            bits: self.registers.f(self.ir, number),
            single: self.block.singles[number],
            raw: self.block.raw[number],
        }
    }

    fn write_f(&mut self, register: FReg, value: RegisterImage<'ctx>) {
        self.registers.set_f(self.ir, register.index(), value.bits);
        self.block.singles[register.index()] = value.single;
        self.block.raw[register.index()] = value.raw;
    }

    fn bin(&mut self, op: BinOp, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let builder = ir.builder();
        match op {
            BinOp::Add => match self.sum_of_link(a, b) {
                Some(link) => self.guest_address(link),
                None => ir.built(builder.build_int_add(a, b, "")),
            },
            BinOp::Sub => ir.built(builder.build_int_sub(a, b, "")),
            BinOp::And => ir.built(builder.build_and(a, b, "")),
            BinOp::Or => ir.built(builder.build_or(a, b, "")),
            BinOp::Xor => ir.built(builder.build_xor(a, b, "")),
            BinOp::Mul => ir.built(builder.build_int_mul(a, b, "")),
            BinOp::Shl => ir.built(builder.build_left_shift(a, self.amount(b), "")),
            BinOp::Shr => ir.built(builder.build_right_shift(a, self.amount(b), false, "")),
            BinOp::Sar => ir.built(builder.build_right_shift(a, self.amount(b), true, "")),
            BinOp::Rol => self.integer_intrinsic("llvm.fshl", &[a, a, b]),
            BinOp::Ror => self.integer_intrinsic("llvm.fshr", &[a, a, b]),
            BinOp::Min => self.integer_intrinsic("llvm.smin", &[a, b]),
            BinOp::MinU => self.integer_intrinsic("llvm.umin", &[a, b]),
            BinOp::Max => self.integer_intrinsic("llvm.smax", &[a, b]),
            BinOp::MaxU => self.integer_intrinsic("llvm.umax", &[a, b]),
            BinOp::MulHigh | BinOp::MulHighU | BinOp::MulHighSU => self.high_product(op, a, b),
            BinOp::ClMul => self.carryless(a, b, 0),
            BinOp::ClMulHigh => self.carryless(a, b, 64),
            BinOp::ClMulReversed => self.carryless(a, b, 63),
        }
    }

    fn un(&mut self, op: UnOp, a: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        match op {
            UnOp::SignExtend(width) => ir.sign_extend(ir.truncate(a, width.bits()), 64),
            UnOp::ZeroExtend(width) => ir.zero_extend(ir.truncate(a, width.bits()), 64),
            UnOp::CountLeadingZeros(width) => self.count_zeros("llvm.ctlz", width, a),
            UnOp::CountTrailingZeros(width) => self.count_zeros("llvm.cttz", width, a),
            UnOp::PopCount(width) => {
                let low = ir.truncate(a, width.bits());
                ir.zero_extend(self.integer_intrinsic("llvm.ctpop", &[low]), 64)
            }
            UnOp::ByteReverse => self.integer_intrinsic("llvm.bswap", &[a]),
            UnOp::OrCombine => self.or_combine(a),
        }
    }

    fn div(
        &mut self,
        op: DivOp,
        width: Width,
        a: IntValue<'ctx>,
        b: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let bits = width.bits();
        let (a, b) = (ir.truncate(a, bits), ir.truncate(b, bits));
        let builder = ir.builder();
        match op {
            DivOp::Div => ir.sign_extend(ir.built(builder.build_int_signed_div(a, b, "")), 64),
            DivOp::Rem => ir.sign_extend(ir.built(builder.build_int_signed_rem(a, b, "")), 64),
            DivOp::DivU => ir.zero_extend(ir.built(builder.build_int_unsigned_div(a, b, "")), 64),
            DivOp::RemU => ir.zero_extend(ir.built(builder.build_int_unsigned_rem(a, b, "")), 64),
        }
    }

    fn cmp(&mut self, op: Cmp, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        let predicate = match op {
            Cmp::Eq => IntPredicate::EQ,
            Cmp::Ne => IntPredicate::NE,
            Cmp::Lt => IntPredicate::SLT,
            Cmp::LtU => IntPredicate::ULT,
            Cmp::Ge => IntPredicate::SGE,
            Cmp::GeU => IntPredicate::UGE,
        };
        self.ir.compare(predicate, a, b)
    }

    fn and(&mut self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        self.ir.built(self.ir.builder().build_and(a, b, ""))
    }

    fn bool_to_int(&mut self, a: IntValue<'ctx>) -> IntValue<'ctx> {
        self.ir.zero_extend(a, 64)
    }

    fn select(
        &mut self,
        condition: IntValue<'ctx>,
        a: IntValue<'ctx>,
        b: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        self.ir.select(condition, a, b).into_int_value()
    }

    fn load(&mut self, width: Width, signed: bool, address: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let value = match self.instruction.constant {
            Some(number) => ir.int_of(width.bits()).const_int(number, false),
            None => {
                let value = ir.load_int(width.bits(), self.memory_at(address), Memory::Guest);
                self.instruction.loaded = Some(value);
                value
            }
        };
        if signed {
            ir.sign_extend(value, 64)
        } else {
            ir.zero_extend(value, 64)
        }
    }

    fn store(&mut self, width: Width, address: IntValue<'ctx>, value: IntValue<'ctx>) {
        let low = self.ir.truncate(value, width.bits());
        self.ir.store(self.memory_at(address), low, Memory::Guest);
    }

    fn load_f(&mut self, format: Format, address: IntValue<'ctx>) -> RegisterImage<'ctx> {
        let ir = self.ir;
        let (r#type, bits) = match format {
            Format::Single => (ir.single, 32),
            Format::Double => (ir.double, 64),
        };
        let value = match self.instruction.constant {
            Some(number) => ir.bitcast(ir.int_of(bits).const_int(number, false), r#type),
            None => ir.load(r#type, self.memory_at(address), Memory::Guest),
        };
        match format {
            Format::Single => self.boxed(value.into_float_value()),
            Format::Double => RegisterImage::of_bits(value.into_float_value()),
        }
    }

    fn store_f(&mut self, format: Format, address: IntValue<'ctx>, value: RegisterImage<'ctx>) {
        let ir = self.ir;
        let pointer = self.memory_at(address);
        match (format, value.single) {
            (Format::Double, _) => ir.store(pointer, value.bits, Memory::Guest),
            (Format::Single, Some(single)) => ir.store(pointer, single, Memory::Guest),
            (Format::Single, None) => {
                ir.store(pointer, self.low_lane(value.bits), Memory::Guest);
            }
        }
    }

    fn is_aligned(&mut self, width: Width, _stores: bool, address: IntValue<'ctx>) -> bool {
        // The interpreter raises the trap.
        let ir = self.ir;
        let [misaligned, aligned] = ["misaligned", "aligned"].map(|name| self.new_block(name));
        let mask = ir.constant(u64::from(width.bytes()) - 1);
        let low = ir.built(ir.builder().build_and(address, mask, ""));
        let condition = ir.compare(IntPredicate::NE, low, ir.constant(0));
        ir.branch(condition, misaligned, aligned, Likely::NotTaken);
        ir.position(misaligned);
        self.trap_at(self.instruction.pc);
        ir.position(aligned);
        true
    }

    fn amo(
        &mut self,
        op: AmoOp,
        width: Width,
        _order: Ordering,
        address: IntValue<'ctx>,
        value: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let op = match op {
            AmoOp::Swap => AtomicRMWBinOp::Xchg,
            AmoOp::Add => AtomicRMWBinOp::Add,
            AmoOp::Xor => AtomicRMWBinOp::Xor,
            AmoOp::And => AtomicRMWBinOp::And,
            AmoOp::Or => AtomicRMWBinOp::Or,
            AmoOp::Min => AtomicRMWBinOp::Min,
            AmoOp::Max => AtomicRMWBinOp::Max,
            AmoOp::MinU => AtomicRMWBinOp::UMin,
            AmoOp::MaxU => AtomicRMWBinOp::UMax,
        };
        let pointer = self.memory_at(address);
        let value = ir.truncate(value, width.bits());
        let order = AtomicOrdering::SequentiallyConsistent;
        let old = ir.built(ir.builder().build_atomicrmw(op, pointer, value, order));
        ir.order_atomic(old);
        ir.sign_extend(old, 64)
    }

    fn load_reserved(
        &mut self,
        width: Width,
        order: Ordering,
        address: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        // `lr`: `sc` compares with the value and its address.
        //
        // Later accesses come after it on x86, as after any load, and LLVM keeps that order.
        // Earlier stores come before it only with a fence.
        let ir = self.ir;
        if order.release {
            self.full_fence();
        }
        let value = ir.load_int(width.bits(), self.memory_at(address), Memory::Guest);
        let value = ir.sign_extend(value, 64);
        ir.store_hart(offset::RESERVATION, address);
        ir.store_hart(offset::RESERVED_VALUE, value);
        value
    }

    fn store_conditional(
        &mut self,
        width: Width,
        _order: Ordering,
        address: IntValue<'ctx>,
        value: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        // `sc`: stores if the reserved address still holds the reserved value.
        let ir = self.ir;
        let [attempt, done] = ["attempt", "done"].map(|name| self.new_block(name));
        let reservation = ir.load_hart(offset::RESERVATION);
        ir.store_hart(offset::RESERVATION, ir.constant(NO_RESERVATION));
        let valid = ir.compare(IntPredicate::EQ, reservation, address);
        let before = ir.current();
        ir.branch(valid, attempt, done, Likely::Taken);

        ir.position(attempt);
        let expected = ir.truncate(ir.load_hart(offset::RESERVED_VALUE), width.bits());
        let value = ir.truncate(value, width.bits());
        let order = AtomicOrdering::SequentiallyConsistent;
        let pointer = self.memory_at(address);
        let exchange = ir.built(
            ir.builder()
                .build_cmpxchg(pointer, expected, value, order, order),
        );
        ir.order_atomic(exchange);
        let success = ir.extract(exchange, 1).into_int_value();
        let failure = ir.zero_extend(ir.built(ir.builder().build_not(success, "")), 64);
        ir.jump(done);

        ir.position(done);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&ir.constant(1), before), (&failure, attempt)]);
        phi.as_basic_value().into_int_value()
    }

    fn fence(&mut self, fence: Fence) {
        // x86 orders everything except a store before a later load, and LLVM keeps all accesses to
        // guest memory in order.
        const READ_OR_INPUT: u8 = 0b1010;
        const WRITE_OR_OUTPUT: u8 = 0b0101;
        let store_before_load = !fence.tso
            && fence.predecessor & WRITE_OR_OUTPUT != 0
            && fence.successor & READ_OR_INPUT != 0;
        if store_before_load {
            self.full_fence();
        }
    }

    fn fence_i(&mut self) {
        self.interpret();
    }

    fn f_bin(
        &mut self,
        op: FBinOp,
        format: Format,
        _rounding: Rounding,
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

    fn f_sqrt(
        &mut self,
        format: Format,
        _rounding: Rounding,
        a: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        let result = self.arithmetic("sqrt", format, &[self.operand(format, a)]);
        self.result(format, result)
    }

    fn f_fma(
        &mut self,
        fma: Fma,
        format: Format,
        _rounding: Rounding,
        a: RegisterImage<'ctx>,
        b: RegisterImage<'ctx>,
        c: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        let [a, b, c] = [a, b, c].map(|image| self.operand(format, image));
        let negate = |yes: bool, value: FloatValue<'ctx>| {
            if yes {
                self.ir.built(self.ir.builder().build_float_neg(value, ""))
            } else {
                value
            }
        };
        let product_a = negate(fma.negate_product, a);
        // The addend is subtracted from the signed product.
        let addend = negate(fma.negate_addend, c);
        let result = self.arithmetic("fma", format, &[product_a, b, addend]);
        // ∞ × 0 is invalid even if the addend is a quiet NaN; x86 does not raise the flag then.
        self.canonical(format, result, || self.invalid_product(format, a, b))
    }

    fn f_min_max(
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

    fn f_cmp(
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

    fn f_class(&mut self, format: Format, a: RegisterImage<'ctx>) -> IntValue<'ctx> {
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

    fn f_to_int(
        &mut self,
        to: IntFormat,
        format: Format,
        rounding: Rounding,
        a: RegisterImage<'ctx>,
    ) -> IntValue<'ctx> {
        let value = self.as_double(format, self.operand(format, a));
        self.double_to_int(to, rounding, value)
    }

    fn f_from_int(
        &mut self,
        format: Format,
        from: IntFormat,
        rounding: Rounding,
        a: IntValue<'ctx>,
    ) -> RegisterImage<'ctx> {
        let ir = self.ir;
        let (name, operand) = match from {
            IntFormat::I32 => ("sitofp", ir.truncate(a, 32)),
            IntFormat::U32 => ("sitofp", ir.zero_extend(ir.truncate(a, 32), 64)),
            IntFormat::I64 => ("sitofp", a),
            IntFormat::U64 => ("uitofp", a),
        };
        let by_mxcsr = matches!(rounding, Rounding::Dyn | Rounding::Rne);
        if !by_mxcsr && !from.is_exact_in(format) {
            self.check_exact(format, from, operand);
        }
        let types = [self.float_type(format).into(), operand.get_type().into()];
        let value = ir
            .constrained(name, &types, &[operand.into()], true)
            .into_float_value();
        self.image(format, value)
    }

    fn f_convert(
        &mut self,
        to: Format,
        _rounding: Rounding,
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

    fn f_bits(&mut self, a: RegisterImage<'ctx>) -> IntValue<'ctx> {
        self.ir.bitcast(a.bits, self.ir.int).into_int_value()
    }

    fn f_from_bits(&mut self, a: IntValue<'ctx>) -> RegisterImage<'ctx> {
        RegisterImage::of_bits(self.ir.bitcast(a, self.ir.double).into_float_value())
    }

    fn csr(
        &mut self,
        csr: u16,
        op: CsrOp,
        write: Option<IntValue<'ctx>>,
        destination: XReg,
        raw: &Instruction,
    ) {
        if self.unit.features.interprets(raw) {
            return self.interpret();
        }
        debug_assert_eq!(csr, CSR_FFLAGS, "the only one that is not interpreted");
        let old = self.exception_flags();
        if let Some(operand) = write {
            let builder = self.ir.builder();
            let new = match op {
                CsrOp::Write => operand,
                CsrOp::Set => self.ir.built(builder.build_or(old, operand, "")),
                CsrOp::Clear => {
                    let rest = self.ir.built(builder.build_not(operand, ""));
                    self.ir.built(builder.build_and(old, rest, ""))
                }
            };
            self.set_exception_flags(old, new);
        }
        self.write_x(destination, old);
    }

    fn jump(&mut self, _link: XReg, _offset: i64) {
        self.block.control = Control::Direct;
    }

    fn branch(&mut self, condition: IntValue<'ctx>, _offset: i64) {
        self.block.control = Control::Condition(self.branch_condition(condition));
    }

    fn jump_register(&mut self, _link: XReg, _base: XReg, target: IntValue<'ctx>) {
        let even = self.ir.constant(!1);
        let target = self.ir.built(self.ir.builder().build_and(target, even, ""));
        self.block.control = Control::Register(target);
    }

    fn trap(&mut self, trap: Trap) {
        if trap == Trap::EnvironmentCall {
            self.call_runtime(Service::Ecall);
        }
    }
}
