//! Guest memory: loads, stores, atomics and fences.

use hartline_abi::hart::{NO_RESERVATION, offset};
use hartline_isa::{AmoOp, Fence, Format, Ordering, Width};
use inkwell::values::{IntValue, PointerValue};
use inkwell::{AtomicOrdering, AtomicRMWBinOp, IntPredicate};

use super::ir::{Likely, Memory};
use super::lifter::Lifter;
use super::register_image::RegisterImage;
use crate::technique::Technique;

impl<'ctx> Lifter<'_, 'ctx> {
    /// The program's memory at `address`.
    pub(super) fn memory_at(&self, address: IntValue<'ctx>) -> PointerValue<'ctx> {
        let address = self.seen_with(Technique::AddressModes, address);
        self.ir.guest_pointer(address)
    }

    pub(super) fn load_integer(
        &mut self,
        width: Width,
        signed: bool,
        address: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
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

    pub(super) fn store_integer(
        &mut self,
        width: Width,
        address: IntValue<'ctx>,
        value: IntValue<'ctx>,
    ) {
        let low = self.ir.truncate(value, width.bits());
        self.ir.store(self.memory_at(address), low, Memory::Guest);
    }

    pub(super) fn load_image(
        &mut self,
        format: Format,
        address: IntValue<'ctx>,
    ) -> RegisterImage<'ctx> {
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

    pub(super) fn store_image(
        &mut self,
        format: Format,
        address: IntValue<'ctx>,
        value: RegisterImage<'ctx>,
    ) {
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

    /// Goes on only if `address` is a multiple of the width of an atomic access; the
    /// interpreter takes the trap otherwise.
    pub(super) fn require_alignment(&mut self, width: Width, address: IntValue<'ctx>) {
        let ir = self.ir;
        let [misaligned, aligned] = ["misaligned", "aligned"].map(|name| self.new_block(name));
        let mask = ir.constant(u64::from(width.bytes()) - 1);
        let low = ir.built(ir.builder().build_and(address, mask, ""));
        let condition = ir.compare(IntPredicate::NE, low, ir.constant(0));
        ir.branch(condition, misaligned, aligned, Likely::NotTaken);
        ir.position(misaligned);
        self.trap_at(self.instruction.pc);
        ir.position(aligned);
    }

    pub(super) fn atomic(
        &mut self,
        op: AmoOp,
        width: Width,
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

    /// `lr`: the value and its address are what `sc` compares with.
    ///
    /// Later accesses come after it on x86, as after any load, and LLVM keeps that order. Earlier
    /// stores come before it only by a fence.
    pub(super) fn reserve(
        &mut self,
        width: Width,
        order: Ordering,
        address: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
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

    /// `sc`: stores if the reserved address still holds the reserved value.
    pub(super) fn store_reserved(
        &mut self,
        width: Width,
        address: IntValue<'ctx>,
        value: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        let ir = self.ir;
        let [attempt, done] = ["attempt", "done"].map(|name| self.new_block(name));
        let reservation = ir.load_hart(offset::RESERVATION);
        ir.store_hart(offset::RESERVATION, ir.constant(NO_RESERVATION));
        let held = ir.compare(IntPredicate::EQ, reservation, address);
        let before = ir.current();
        ir.branch(held, attempt, done, Likely::Taken);

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

    /// A fence. x86 orders everything but a store before a later load, and LLVM keeps all
    /// accesses to guest memory in order.
    pub(super) fn memory_fence(&mut self, fence: Fence) {
        const READ_OR_INPUT: u8 = 0b1010;
        const WRITE_OR_OUTPUT: u8 = 0b0101;
        let store_before_load = !fence.tso
            && fence.predecessor & WRITE_OR_OUTPUT != 0
            && fence.successor & READ_OR_INPUT != 0;
        if store_before_load {
            self.full_fence();
        }
    }

    fn full_fence(&self) {
        let order = AtomicOrdering::SequentiallyConsistent;
        self.ir
            .built(self.ir.builder().build_fence(order, false, ""));
    }
}
