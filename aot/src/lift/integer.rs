//! Integer operations.

use hartline_isa::{BinOp, IntegerOp, Operation, RegisterOp, Width};
use inkwell::IntPredicate;
use inkwell::values::IntValue;

use super::lifter::Lifter;
use crate::technique::Technique;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Reduces a shift amount modulo 64; LLVM's shifts are undefined for larger amounts.
    pub(super) fn amount(&self, b: IntValue<'ctx>) -> IntValue<'ctx> {
        let mask = self.ir.constant(63);
        self.ir.built(self.ir.builder().build_and(b, mask, ""))
    }

    pub(super) fn integer_intrinsic(
        &self,
        name: &str,
        operands: &[IntValue<'ctx>],
    ) -> IntValue<'ctx> {
        let arguments: Vec<_> = operands.iter().map(|&value| value.into()).collect();
        self.ir
            .intrinsic(name, &[operands[0].get_type().into()], &arguments)
            .into_int_value()
    }

    pub(super) fn high_product(
        &self,
        op: BinOp,
        a: IntValue<'ctx>,
        b: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        // `mul` uses the operands directly.
        let [a, b] = [a, b].map(|operand| self.seen_with(Technique::ProductPairs, operand));
        let (a, b) = match op {
            BinOp::MulHigh => (ir.sign_extend(a, 128), ir.sign_extend(b, 128)),
            BinOp::MulHighSU => (ir.sign_extend(a, 128), ir.zero_extend(b, 128)),
            _ => (ir.zero_extend(a, 128), ir.zero_extend(b, 128)),
        };
        let product = ir.built(ir.builder().build_int_mul(a, b, ""));
        self.bits_from(product, 64)
    }

    /// Returns `value`. If the technique is disabled, LLVM does not see its origin, so that LLVM
    /// cannot combine the instructions before and after.
    pub(super) fn seen_with(&self, technique: Technique, value: IntValue<'ctx>) -> IntValue<'ctx> {
        match self.unit.disabled.allows(technique) {
            true => value,
            false => self.ir.opaque(value),
        }
    }

    /// Returns the value that the current instruction writes to its destination.
    pub(super) fn written(&self, value: IntValue<'ctx>) -> IntValue<'ctx> {
        match self.instruction.decoded.map(|i| i.operation()) {
            Some(Operation::Lui { .. } | Operation::Auipc { .. }) => {
                self.seen_with(Technique::WideConstants, value)
            }
            Some(Operation::Register {
                op: RegisterOp::I(IntegerOp::Sltu),
                ..
            }) => self.seen_with(Technique::CarryChains, value),
            _ => value,
        }
    }

    /// Returns the condition of a branch. Without the technique it goes through a byte, so that it
    /// is not the flags of a comparison.
    pub(super) fn branch_condition(&self, condition: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        if self.unit.disabled.allows(Technique::CompareAndBranch) {
            return condition;
        }
        let byte = ir.opaque(ir.zero_extend(condition, 8));
        ir.compare(IntPredicate::NE, byte, byte.get_type().const_zero())
    }

    /// Returns 64 bits of a 128-bit value, from bit `from` on.
    fn bits_from(&self, value: IntValue<'ctx>, from: u64) -> IntValue<'ctx> {
        let amount = value.get_type().const_int(from, false);
        let builder = self.ir.builder();
        let shifted = self
            .ir
            .built(builder.build_right_shift(value, amount, false, ""));
        self.ir.truncate(shifted, 64)
    }

    /// Returns 64 bits of the carry-less product, from bit `from` on.
    pub(super) fn carryless(
        &self,
        a: IntValue<'ctx>,
        b: IntValue<'ctx>,
        from: u64,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let pair = ir.int.vec_type(2);
        let zero = ir.context.i32_type().const_zero();
        let lanes = [a, b].map(|value| {
            ir.built(
                ir.builder()
                    .build_insert_element(pair.const_zero(), value, zero, ""),
            )
        });
        let selector = ir.context.i8_type().const_zero();
        let product = ir.intrinsic(
            "llvm.x86.pclmulqdq",
            &[],
            &[lanes[0].into(), lanes[1].into(), selector.into()],
        );
        let wide = ir.bitcast(product, ir.int_of(128)).into_int_value();
        self.bits_from(wide, from)
    }

    pub(super) fn count_zeros(
        &self,
        name: &str,
        width: Width,
        a: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let low = ir.truncate(a, width.bits());
        let defined = ir.context.bool_type().const_zero();
        let count = ir.intrinsic(
            name,
            &[low.get_type().into()],
            &[low.into(), defined.into()],
        );
        ir.zero_extend(count.into_int_value(), 64)
    }

    /// `orc.b`: bit 7 of each byte shows whether the byte is not zero; the bit is then spread over
    /// the byte.
    pub(super) fn or_combine(&self, a: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let builder = ir.builder();
        let low = ir.constant(0x7f7f_7f7f_7f7f_7f7f);
        let high = ir.constant(0x8080_8080_8080_8080);
        let masked = ir.built(builder.build_and(a, low, ""));
        let carried = ir.built(builder.build_int_add(masked, low, ""));
        let any = ir.built(builder.build_or(carried, a, ""));
        let flags = ir.built(builder.build_and(any, high, ""));
        let ones = ir.built(builder.build_right_shift(flags, ir.constant(7), false, ""));
        ir.built(builder.build_int_mul(ones, ir.constant(0xff), ""))
    }
}
