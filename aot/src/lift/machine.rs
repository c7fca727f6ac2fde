//! The lifter as a [`Machine`]: instruction semantics become LLVM IR.

use hartline_isa::{
    AmoOp, BinOp, CSR_FFLAGS, Cmp, CsrOp, DivOp, FBinOp, FCmp, FMinMax, FReg, Fence, Fma, Format,
    Instruction, IntFormat, Machine, Ordering, Rounding, Trap, UnOp, Width, XReg,
};
use inkwell::IntPredicate;
use inkwell::values::IntValue;

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
        self.guest_address(self.instruction.pc.wrapping_add_signed(offset))
    }

    fn read_x(&mut self, register: XReg) -> IntValue<'ctx> {
        match register.index() {
            0 => self.ir.constant(0),
            number => self.registers.x(self.ir, number),
        }
    }

    fn write_x(&mut self, register: XReg, value: IntValue<'ctx>) {
        if register != XReg::ZERO {
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
        self.integer_binary(op, a, b)
    }

    fn un(&mut self, op: UnOp, a: IntValue<'ctx>) -> IntValue<'ctx> {
        self.integer_unary(op, a)
    }

    fn div(
        &mut self,
        op: DivOp,
        width: Width,
        a: IntValue<'ctx>,
        b: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        self.integer_divide(op, width, a, b)
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
        self.load_integer(width, signed, address)
    }

    fn store(&mut self, width: Width, address: IntValue<'ctx>, value: IntValue<'ctx>) {
        self.store_integer(width, address, value);
    }

    fn load_f(&mut self, format: Format, address: IntValue<'ctx>) -> RegisterImage<'ctx> {
        self.load_image(format, address)
    }

    fn store_f(&mut self, format: Format, address: IntValue<'ctx>, value: RegisterImage<'ctx>) {
        self.store_image(format, address, value);
    }

    fn is_aligned(&mut self, width: Width, _stores: bool, address: IntValue<'ctx>) -> bool {
        self.require_alignment(width, address);
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
        self.atomic(op, width, address, value)
    }

    fn load_reserved(
        &mut self,
        width: Width,
        order: Ordering,
        address: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        self.reserve(width, order, address)
    }

    fn store_conditional(
        &mut self,
        width: Width,
        _order: Ordering,
        address: IntValue<'ctx>,
        value: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        self.store_reserved(width, address, value)
    }

    fn fence(&mut self, fence: Fence) {
        self.memory_fence(fence);
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
        self.float_binary(op, format, a, b)
    }

    fn f_sqrt(
        &mut self,
        format: Format,
        _rounding: Rounding,
        a: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        self.float_sqrt(format, a)
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
        self.float_fma(fma, format, [a, b, c])
    }

    fn f_min_max(
        &mut self,
        op: FMinMax,
        format: Format,
        a: RegisterImage<'ctx>,
        b: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        self.float_min_max(op, format, a, b)
    }

    fn f_cmp(
        &mut self,
        op: FCmp,
        format: Format,
        a: RegisterImage<'ctx>,
        b: RegisterImage<'ctx>,
    ) -> IntValue<'ctx> {
        self.float_compare(op, format, a, b)
    }

    fn f_class(&mut self, format: Format, a: RegisterImage<'ctx>) -> IntValue<'ctx> {
        self.float_class(format, a)
    }

    fn f_to_int(
        &mut self,
        to: IntFormat,
        format: Format,
        rounding: Rounding,
        a: RegisterImage<'ctx>,
    ) -> IntValue<'ctx> {
        self.float_to_int(to, format, rounding, a)
    }

    fn f_from_int(
        &mut self,
        format: Format,
        from: IntFormat,
        _rounding: Rounding,
        a: IntValue<'ctx>,
    ) -> RegisterImage<'ctx> {
        self.float_from_int(format, from, a)
    }

    fn f_convert(
        &mut self,
        to: Format,
        _rounding: Rounding,
        a: RegisterImage<'ctx>,
    ) -> RegisterImage<'ctx> {
        self.float_convert(to, a)
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
