//! The A extension: locked instructions, and compare-exchange with `rax`, which is displaced.

use hartline_abi::hart::offset;
use hartline_isa::{AmoOp, Ordering, Width};

use super::Emitter;
use super::integer::size;
use super::stubs::StubKind;
use super::values::{Int, Value};
use crate::encoder::{Alu, Condition, Gpr, Mem, Rm, Size};

const RESERVATION: Mem = Mem::Gs(offset::RESERVATION as u32);
const RESERVED_VALUE: Mem = Mem::Gs(offset::RESERVED_VALUE as u32);

impl Emitter<'_> {
    /// Leaves for the trap of the current instruction if the address is misaligned.
    pub(super) fn check_alignment(&mut self, width: Width, address: Int) {
        let (operand, scratch) = self.operand(address);
        let low_bits = width.bytes() as i32 - 1;
        self.asm.test_imm(Size::Word, operand, low_bits);
        self.release_scratch(scratch);
        let trap = self.stub(StubKind::Trap);
        self.asm.jcc(Condition::NotEqual, trap);
    }

    /// Returns a register other than `rax` with a value.
    fn in_other_register(&mut self, value: Int) -> (Gpr, Option<Gpr>) {
        match self.value_location(value) {
            Some(Rm::Reg(register)) if register != Gpr::Rax => (register, None),
            _ => {
                let scratch = self.acquire();
                self.compute(value, scratch);
                (scratch, Some(scratch))
            }
        }
    }

    /// Returns the old value in a scratch register as a value, sign-extended.
    fn old_value(&mut self, width: Width, register: Gpr) -> Int {
        if width == Width::Word {
            self.asm.movsx(Size::Word, register, register);
        }
        self.values.add(Value::Temporary(register))
    }

    /// An AMO.
    pub(super) fn read_modify_write(
        &mut self,
        op: AmoOp,
        width: Width,
        address: Int,
        value: Int,
    ) -> Int {
        self.values.note_use(address);
        self.values.note_use(value);
        let result = self.acquire();
        let (base, scratch) = self.in_other_register(address);
        let memory = Mem::Base(base, 0);
        match op {
            AmoOp::Swap | AmoOp::Add => {
                self.compute(value, result);
                self.note_access();
                match op {
                    AmoOp::Swap => self.asm.xchg(size(width), memory, result),
                    _ => self.asm.lock_xadd(size(width), memory, result),
                }
            }
            _ => self.exchange_loop(op, width, memory, value, result),
        }
        self.release_scratch(scratch);
        self.old_value(width, result)
    }

    /// An AMO that x86 has no instruction for. `result` receives the old value.
    fn exchange_loop(&mut self, op: AmoOp, width: Width, memory: Mem, value: Int, result: Gpr) {
        let size = size(width);
        let (operand, scratch) = self.in_other_register(value);
        self.displace(Gpr::Rax);
        self.note_access();
        self.asm.mov(size, Gpr::Rax, memory);
        let again = self.asm.label();
        self.asm.bind(again);
        self.asm.mov(size, result, Gpr::Rax);
        match op {
            AmoOp::Xor => self.asm.alu(Alu::Xor, size, result, operand),
            AmoOp::And => self.asm.alu(Alu::And, size, result, operand),
            AmoOp::Or => self.asm.alu(Alu::Or, size, result, operand),
            AmoOp::Min => self.pick_operand(Condition::Greater, size, result, operand),
            AmoOp::Max => self.pick_operand(Condition::Less, size, result, operand),
            AmoOp::MinU => self.pick_operand(Condition::Above, size, result, operand),
            AmoOp::MaxU => self.pick_operand(Condition::Below, size, result, operand),
            AmoOp::Swap | AmoOp::Add => self.give_up(),
        }
        self.note_access();
        self.asm.lock_cmpxchg(size, memory, result);
        self.asm.jcc(Condition::NotEqual, again);
        self.asm.mov(Size::Double, result, Gpr::Rax);
        self.replace(Gpr::Rax);
        self.release_scratch(scratch);
    }

    /// Replaces the result by the operand if the condition holds between them.
    fn pick_operand(&mut self, condition: Condition, size: Size, result: Gpr, operand: Gpr) {
        self.asm.alu(Alu::Cmp, size, result, operand);
        self.asm.cmov(condition, size, result, operand);
    }

    /// `lr`: `sc` compares with the value and its address. Later accesses come after it on x86, as
    /// after any load; earlier stores come before it only with a fence.
    pub(super) fn reserve(&mut self, width: Width, order: Ordering, address: Int) -> Int {
        self.values.note_use(address);
        if order.release {
            self.asm.mfence();
        }
        let result = self.acquire();
        let (base, scratch) = self.in_register(address);
        self.note_access();
        let memory = Mem::Base(base, 0);
        match width {
            Width::Word => self.asm.movsx(Size::Word, result, memory),
            _ => self.asm.mov(Size::Double, result, memory),
        }
        self.asm.mov_store(Size::Double, RESERVATION, base);
        self.asm.mov_store(Size::Double, RESERVED_VALUE, result);
        self.release_scratch(scratch);
        self.values.add(Value::Temporary(result))
    }

    /// `sc`: stores if the reserved address still holds the reserved value. Returns whether it
    /// failed.
    pub(super) fn store_if_reserved(&mut self, width: Width, address: Int, value: Int) -> Int {
        self.values.note_use(address);
        self.values.note_use(value);
        let result = self.acquire();
        let (base, scratch) = self.in_other_register(address);
        self.asm.mov_imm(result, 1);
        self.asm.alu(Alu::Cmp, Size::Double, base, RESERVATION);
        let done = self.asm.label();
        self.asm.jcc(Condition::NotEqual, done);
        let (new, new_scratch) = self.in_other_register(value);
        self.displace(Gpr::Rax);
        self.asm.mov(Size::Double, Gpr::Rax, RESERVED_VALUE);
        self.note_access();
        self.asm.lock_cmpxchg(size(width), Mem::Base(base, 0), new);
        self.asm.mov_imm(result, 0);
        self.asm.set(Condition::NotEqual, result);
        self.replace(Gpr::Rax);
        self.release_scratch(new_scratch);
        self.asm.bind(done);
        self.release_scratch(scratch);
        self.asm.mov_store_imm(Size::Double, RESERVATION, -1);
        self.values.add(Value::Temporary(result))
    }
}
