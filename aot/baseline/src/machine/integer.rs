//! Computing integers.

use hartline_isa::{BinOp, UnOp, Width, XReg};

use super::Emitter;
use super::registers::{host, slot};
use super::values::{Bool, Int, Truth, Value, is_commutative, mirrored};
use crate::encoder::{
    Alu, BitOp, Condition, CountOp, Gpr, Mem, Rm, Shift, ShiftX, Size, Unary, XmmRm,
};

/// An instruction with a destination register and a second operand.
#[derive(Debug, Clone, Copy)]
enum TwoOperand {
    Alu(Alu),
    Multiply,
    /// Replaces the destination if the condition holds between both.
    Pick(Condition),
}

impl Emitter<'_> {
    /// Writes an integer register.
    pub(super) fn write_integer(&mut self, register: XReg, value: Int) {
        self.values.note_use(value);
        if register == XReg::ZERO {
            if let Value::Load(..) = self.values.get(value) {
                let scratch = self.acquire();
                self.compute(value, scratch);
                self.release(scratch);
            }
            return;
        }
        while let Some(pending) = self.values.pending(value, register) {
            let scratch = self.acquire();
            self.compute(pending, scratch);
            self.values.replace(pending, scratch);
            if self.failed {
                return;
            }
        }
        match host(register) {
            Some(host) => {
                // The destination is no scratch register from here on.
                self.in_use.x |= host.mask();
                self.compute(value, host);
                if self.region.write_through {
                    self.asm.mov_store(Size::Double, slot(register), host);
                }
            }
            None => self.write_word(register, value),
        }
    }

    /// Writes a register that is not pinned.
    fn write_word(&mut self, register: XReg, value: Int) {
        let word = slot(register);
        if let Value::Bin(op, a, b) = self.values.get(value)
            && self.values.get(a) == Value::X(register)
            && let (Some(op), Some(b)) = (alu(op), self.values.immediate(b))
        {
            match self.known.copies.of(register) {
                Some(copy) => {
                    self.asm.alu_imm(op, Size::Double, copy, b);
                    self.asm.mov_store(Size::Double, word, copy);
                }
                None => self.asm.alu_imm(op, Size::Double, word, b),
            }
            return;
        }
        if let Some(immediate) = self.values.immediate(value) {
            self.known.copies.drop_of(register);
            return self.asm.mov_store_imm(Size::Double, word, immediate);
        }
        let (source, scratch) = self.in_register(value);
        self.asm.mov_store(Size::Double, word, source);
        self.note_written(register, source);
        self.release_scratch(scratch);
    }

    /// Returns the location of a value that needs no code: a register, or a word of the `Hart`
    /// structure.
    pub(super) fn value_location(&self, value: Int) -> Option<Rm> {
        match self.values.get(value) {
            Value::X(register) => Some(self.location(register)),
            Value::Temporary(register) => Some(Rm::Reg(register)),
            Value::F(register) => match self.location_f(register) {
                XmmRm::Mem(word) => Some(Rm::Mem(word)),
                XmmRm::Reg(_) => None,
            },
            _ => None,
        }
    }

    /// Returns a value as an operand, and the scratch register that it may be in.
    pub(super) fn operand(&mut self, value: Int) -> (Rm, Option<Gpr>) {
        match self.value_location(value) {
            Some(location) => (location, None),
            None => {
                let (register, scratch) = self.in_register(value);
                (Rm::Reg(register), scratch)
            }
        }
    }

    /// Returns a register that contains a value, and whether it is a scratch register to release.
    pub(super) fn in_register(&mut self, value: Int) -> (Gpr, Option<Gpr>) {
        if let Some(Rm::Reg(register)) = self.value_location(value) {
            return (register, None);
        }
        let scratch = self.acquire();
        self.compute(value, scratch);
        (scratch, Some(scratch))
    }

    pub(super) fn release_scratch(&mut self, scratch: Option<Gpr>) {
        if let Some(register) = scratch {
            self.release(register);
        }
    }

    /// Computes a value in `into`, a scratch register or the host register of the destination.
    pub(super) fn compute(&mut self, value: Int, into: Gpr) {
        match self.values.get(value) {
            Value::Const(constant) => self.asm.mov_imm(into, constant),
            Value::Address(address) => self.address_constant(address, into),
            Value::X(_) | Value::Temporary(_) => {
                if let Some(location) = self.value_location(value)
                    && location != Rm::Reg(into)
                {
                    self.asm.mov(Size::Double, into, location);
                }
            }
            Value::F(register) => match self.location_f(register) {
                XmmRm::Reg(register) => self.asm.mov_from_xmm(Size::Double, into, register),
                XmmRm::Mem(word) => self.asm.mov(Size::Double, into, word),
            },
            Value::Bin(op, a, b) => self.binary(op, a, b, into),
            Value::Un(op, a) => self.unary(op, a, into),
            Value::Div(op, width, a, b) => self.divide(op, width, a, b, into),
            Value::OfBool(truth) => {
                let condition = self.condition(truth);
                self.asm.set(condition, into);
                self.asm.movzx(Size::Byte, into, into);
            }
            Value::Select(condition, a, b) => self.pick(condition, a, b, into),
            Value::Load(width, signed, address) => self.load_integer(width, signed, address, into),
        }
    }

    /// Computes a link-time address plus the bias.
    pub(super) fn address_constant(&mut self, address: u64, into: Gpr) {
        self.with_bias(|asm, bias| asm.mov(Size::Double, into, bias));
        match i32::try_from(address) {
            Ok(address) => self.asm.alu_imm(Alu::Add, Size::Double, into, address),
            Err(_) => {
                let scratch = self.acquire();
                self.asm.mov_imm(scratch, address);
                self.asm.alu(Alu::Add, Size::Double, into, scratch);
                self.release(scratch);
            }
        }
    }

    fn binary(&mut self, op: BinOp, a: Int, b: Int, into: Gpr) {
        match op {
            BinOp::Add => {
                if !self.add_addresses(a, b, into) {
                    self.two_operands(TwoOperand::Alu(Alu::Add), op, a, b, into);
                }
            }
            BinOp::Sub | BinOp::And | BinOp::Or | BinOp::Xor => {
                if let Some(alu) = alu(op)
                    && !self.single_bit(op, a, b, into)
                {
                    self.two_operands(TwoOperand::Alu(alu), op, a, b, into);
                }
            }
            BinOp::Mul => self.two_operands(TwoOperand::Multiply, op, a, b, into),
            BinOp::Min | BinOp::MinU | BinOp::Max | BinOp::MaxU => {
                let condition = match op {
                    BinOp::Min => Condition::Greater,
                    BinOp::MinU => Condition::Above,
                    BinOp::Max => Condition::Less,
                    _ => Condition::Below,
                };
                self.two_operands(TwoOperand::Pick(condition), op, a, b, into);
            }
            BinOp::Shl => self.shift(Shift::Shl, Some(ShiftX::Shlx), a, b, into),
            BinOp::Shr => self.shift(Shift::Shr, Some(ShiftX::Shrx), a, b, into),
            BinOp::Sar => self.shift(Shift::Sar, Some(ShiftX::Sarx), a, b, into),
            BinOp::Rol => self.shift(Shift::Rol, None, a, b, into),
            BinOp::Ror => self.shift(Shift::Ror, None, a, b, into),
            BinOp::MulHigh | BinOp::MulHighU | BinOp::MulHighSU => {
                self.high_product(op, a, b, into);
            }
            BinOp::ClMul | BinOp::ClMulHigh | BinOp::ClMulReversed => {
                self.carryless_product(op, a, b, into);
            }
        }
    }

    /// Adds with `lea`, if the operands are in registers other than the destination.
    fn add_addresses(&mut self, a: Int, b: Int, into: Gpr) -> bool {
        if let (Some(Rm::Reg(a)), Some(b)) = (self.value_location(a), self.values.immediate(b)) {
            if a == into {
                return false;
            }
            self.asm.lea(into, Mem::Base(a, b));
            return true;
        }
        if let (Value::Bin(BinOp::Shl, index, amount), Some(Rm::Reg(base))) =
            (self.values.get(a), self.value_location(b))
            && let (Some(Rm::Reg(index)), Some(amount @ 1..=3)) =
                (self.value_location(index), self.values.constant(amount))
        {
            self.asm.lea(into, Mem::Index(base, index, 1 << amount, 0));
            return true;
        }
        match (self.value_location(a), self.value_location(b)) {
            (Some(Rm::Reg(a)), Some(Rm::Reg(b))) if a != into && b != into => {
                self.asm.lea(into, Mem::Index(a, b, 1, 0));
                true
            }
            _ => false,
        }
    }

    /// Sets, clears or inverts a single bit whose mask is no immediate.
    fn single_bit(&mut self, op: BinOp, a: Int, b: Int, into: Gpr) -> bool {
        let Some(mask) = self.values.constant(b) else {
            return false;
        };
        if self.values.immediate(b).is_some() {
            return false;
        }
        let (op, bit) = match op {
            BinOp::And => (BitOp::Btr, !mask),
            BinOp::Or => (BitOp::Bts, mask),
            BinOp::Xor => (BitOp::Btc, mask),
            _ => return false,
        };
        if !bit.is_power_of_two() {
            return false;
        }
        self.compute(a, into);
        self.asm.bit(op, into, bit.trailing_zeros() as u8);
        true
    }

    /// Computes `a` in the destination and applies `instruction` with `b`.
    fn two_operands(&mut self, instruction: TwoOperand, op: BinOp, a: Int, b: Int, into: Gpr) {
        if let (TwoOperand::Alu(alu), Some(immediate)) = (instruction, self.values.immediate(b)) {
            self.compute(a, into);
            return self.asm.alu_imm(alu, Size::Double, into, immediate);
        }
        let (a, b) = match (self.value_location(a), self.value_location(b)) {
            // The value that needs code, or is in the destination, comes first.
            (Some(location), None) if is_commutative(op) && location != Rm::Reg(into) => (b, a),
            (_, Some(location)) if is_commutative(op) && location == Rm::Reg(into) => (b, a),
            _ => (a, b),
        };
        match self.value_location(b) {
            Some(location)
                if location != Rm::Reg(into) || self.value_location(a) == Some(location) =>
            {
                self.compute(a, into);
                self.apply(instruction, into, location);
            }
            _ => {
                let scratch = self.acquire();
                self.compute(b, scratch);
                self.compute(a, into);
                self.apply(instruction, into, Rm::Reg(scratch));
                self.release(scratch);
            }
        }
    }

    fn apply(&mut self, instruction: TwoOperand, into: Gpr, operand: Rm) {
        match instruction {
            TwoOperand::Alu(op) => self.asm.alu(op, Size::Double, into, operand),
            TwoOperand::Multiply => self.asm.imul(into, operand),
            TwoOperand::Pick(condition) => {
                self.asm.alu(Alu::Cmp, Size::Double, into, operand);
                self.asm.cmov(condition, Size::Double, into, operand);
            }
        }
    }

    fn shift(&mut self, op: Shift, extended: Option<ShiftX>, a: Int, amount: Int, into: Gpr) {
        if let Some(amount) = self.values.constant(amount) {
            self.compute(a, into);
            self.asm
                .shift_imm(op, Size::Double, into, amount as u8 & 63);
            return;
        }
        match extended {
            Some(op) if self.features.bmi2 => {
                let (amount, scratch) = self.in_register(amount);
                let (source, source_scratch) = self.operand(a);
                self.asm.shift_x(op, Size::Double, into, source, amount);
                self.release_scratch(source_scratch);
                self.release_scratch(scratch);
            }
            _ => {
                let scratch = self.acquire();
                self.compute(a, scratch);
                self.displace(Gpr::Rcx);
                self.compute(amount, Gpr::Rcx);
                self.asm.shift_cl(op, Size::Double, scratch);
                self.replace(Gpr::Rcx);
                self.asm.mov(Size::Double, into, scratch);
                self.release(scratch);
            }
        }
    }

    fn unary(&mut self, op: UnOp, a: Int, into: Gpr) {
        let source = match self.value_location(a) {
            Some(location) => location,
            None => {
                self.compute(a, into);
                Rm::Reg(into)
            }
        };
        match op {
            UnOp::SignExtend(Width::Double) | UnOp::ZeroExtend(Width::Double) => {
                self.asm.mov(Size::Double, into, source);
            }
            UnOp::SignExtend(width) => self.asm.movsx(size(width), into, source),
            UnOp::ZeroExtend(Width::Word) => self.asm.mov(Size::Word, into, source),
            UnOp::ZeroExtend(width) => self.asm.movzx(size(width), into, source),
            UnOp::CountLeadingZeros(width) => {
                self.asm.count(CountOp::Lzcnt, size(width), into, source);
            }
            UnOp::CountTrailingZeros(width) => {
                self.asm.count(CountOp::Tzcnt, size(width), into, source);
            }
            UnOp::PopCount(width) => self.asm.count(CountOp::Popcnt, size(width), into, source),
            UnOp::ByteReverse => {
                self.asm.mov(Size::Double, into, source);
                self.asm.bswap(into);
            }
            UnOp::OrCombine => self.or_combine(source, into),
        }
    }

    /// `orc.b`: bit 7 of each byte shows whether the byte is not zero; then it is spread over the
    /// byte.
    fn or_combine(&mut self, source: Rm, into: Gpr) {
        let (mask, flags) = (self.acquire(), self.acquire());
        self.asm.mov_imm(mask, 0x7f7f_7f7f_7f7f_7f7f);
        self.asm.mov(Size::Double, flags, source);
        self.asm.alu(Alu::And, Size::Double, flags, mask);
        self.asm.alu(Alu::Add, Size::Double, flags, mask);
        self.asm.alu(Alu::Or, Size::Double, flags, source);
        self.asm.unary(Unary::Not, Size::Double, mask);
        self.asm.alu(Alu::And, Size::Double, flags, mask);
        self.asm.mov(Size::Double, mask, flags);
        self.asm.mov(Size::Double, into, flags);
        self.asm.shift_imm(Shift::Shr, Size::Double, mask, 7);
        self.asm.alu(Alu::Sub, Size::Double, flags, mask);
        self.asm.alu(Alu::Or, Size::Double, into, flags);
        self.release(flags);
        self.release(mask);
    }

    /// Computes one of two values.
    fn pick(&mut self, condition: Bool, a: Int, b: Int, into: Gpr) {
        // The condition may read the destination.
        let result = self.acquire();
        self.compute(b, result);
        let (chosen, scratch) = self.operand(a);
        let condition = self.condition(condition);
        self.asm.cmov(condition, Size::Double, result, chosen);
        self.release_scratch(scratch);
        self.asm.mov(Size::Double, into, result);
        self.release(result);
    }

    /// Sets the flags for a truth value, and returns the condition that holds if it is true.
    pub(super) fn condition(&mut self, truth: Bool) -> Condition {
        match self.values.truth(truth) {
            Truth::Compare(condition, a, b) => self.compare(condition, a, b),
            Truth::Temporary(register) => {
                self.asm.test(Size::Double, register, register);
                Condition::NotEqual
            }
            Truth::Const(_) | Truth::And(..) => {
                // Constants are folded, and no instruction branches on two conditions.
                self.give_up();
                Condition::Equal
            }
        }
    }

    fn compare(&mut self, condition: Condition, a: Int, b: Int) -> Condition {
        if let Some(immediate) = self.values.immediate(b) {
            self.compare_constant(condition, a, immediate);
            return condition;
        }
        let (condition, a, b) = match (self.value_location(a), self.value_location(b)) {
            (Some(Rm::Mem(_)) | None, Some(Rm::Reg(_))) => (mirrored(condition), b, a),
            _ => (condition, a, b),
        };
        let (first, scratch) = self.in_register(a);
        let (second, second_scratch) = self.operand(b);
        self.asm.alu(Alu::Cmp, Size::Double, first, second);
        self.note_loaded(a, scratch);
        self.release_scratch(second_scratch);
        self.release_scratch(scratch);
        condition
    }

    fn compare_constant(&mut self, condition: Condition, a: Int, immediate: i32) {
        // The low words compare like the words extended to 64 bits.
        let word = match self.values.get(a) {
            Value::Un(UnOp::SignExtend(Width::Word), word) => Some(word),
            Value::Un(UnOp::ZeroExtend(Width::Word), word)
                if matches!(condition, Condition::Equal | Condition::NotEqual)
                    && immediate >= 0 =>
            {
                Some(word)
            }
            _ => None,
        };
        if let Some(location) = word.and_then(|word| self.value_location(word)) {
            return self.asm.alu_imm(Alu::Cmp, Size::Word, location, immediate);
        }
        let (operand, scratch) = self.operand(a);
        match (operand, immediate) {
            (Rm::Reg(register), 0) => self.asm.test(Size::Double, register, register),
            _ => self.asm.alu_imm(Alu::Cmp, Size::Double, operand, immediate),
        }
        self.release_scratch(scratch);
    }
}

/// The classic instruction of an operation.
const fn alu(op: BinOp) -> Option<Alu> {
    Some(match op {
        BinOp::Add => Alu::Add,
        BinOp::Sub => Alu::Sub,
        BinOp::And => Alu::And,
        BinOp::Or => Alu::Or,
        BinOp::Xor => Alu::Xor,
        _ => return None,
    })
}

/// The operand size of a width.
pub(super) const fn size(width: Width) -> Size {
    match width {
        Width::Byte => Size::Byte,
        Width::Half => Size::Half,
        Width::Word => Size::Word,
        Width::Double => Size::Double,
    }
}
