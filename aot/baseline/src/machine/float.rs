//! Floating point on SSE: MXCSR holds the rounding mode and accrued flags. Where SSE and RISC-V
//! differ, the interpreter executes the instruction: operands that are not NaN-boxed, and rare
//! cases of NaNs.

use hartline_abi::hart::offset;
use hartline_isa::{FBinOp, FCmp, FMinMax, FReg, Fma, Format, Instruction, Operation, Rounding};

use super::memory::precision;
use super::registers::{host_f, slot_f};
use super::stubs::StubKind;
use super::values::{Bool, Int, Truth, Value};
use super::{Emitter, Float};
use crate::encoder::{
    Alu, Condition, FmaOp, Gpr, Mem, Precision, Rm, Scalar, Shift, Size, Xmm, XmmRm,
};

/// The upper half of a properly NaN-boxed single.
const BOX: u64 = 0xffff_ffff_0000_0000;

impl Emitter<'_> {
    /// Notes whether the register that the instruction wrote contains a boxed single.
    pub(super) fn note_boxed(&mut self, instruction: &Instruction) {
        let written = self.registers.f_written;
        match writes_single(instruction) {
            true => self.known.boxed |= written,
            false => self.known.boxed &= !written,
        }
    }

    /// Whether `a >> b` is the upper half of a register that contains a boxed single.
    pub(super) fn is_upper_half_of_boxed(&self, a: Int, b: Int) -> bool {
        match (self.values.get(a), self.values.constant(b)) {
            (Value::F(register), Some(32)) => self.known.boxed & register.mask() != 0,
            _ => false,
        }
    }

    /// Returns the register that an operand is, and checks that it is NaN-boxed. The check comes
    /// before the instruction has displaced SSE registers.
    pub(super) fn checked(&mut self, format: Format, value: Float) -> Option<FReg> {
        let Float::Register(register) = value else {
            self.give_up();
            return None;
        };
        if format == Format::Single && self.known.boxed & register.mask() == 0 {
            self.check_boxed(register);
        }
        Some(register)
    }

    fn check_boxed(&mut self, register: FReg) {
        match self.location_f(register) {
            XmmRm::Reg(source) => {
                let scratch = self.acquire();
                self.asm.mov_from_xmm(Size::Double, scratch, source);
                self.asm.shift_imm(Shift::Shr, Size::Double, scratch, 32);
                self.asm.alu_imm(Alu::Cmp, Size::Word, scratch, -1);
                self.release(scratch);
            }
            XmmRm::Mem(Mem::Gs(word)) => {
                self.asm
                    .alu_imm(Alu::Cmp, Size::Word, Mem::Gs(word + 4), -1);
            }
            XmmRm::Mem(_) => self.give_up(),
        }
        let slow = self.interpret_aside();
        self.asm.jcc(Condition::NotEqual, slow);
    }

    /// Checks that the mode of MXCSR is to round to the nearest number. If it is not, the
    /// interpreter goes on, so the instructions of the block that follow need not check again. None of
    /// them writes `frm`.
    pub(super) fn check_nearest(&mut self) {
        if self.known.rounds_to_nearest {
            return;
        }
        self.known.rounds_to_nearest = true;
        let nearest = Rounding::Rne as i32;
        let frm = Mem::Gs(offset::FRM as u32);
        self.asm.alu_imm(Alu::Cmp, Size::Word, frm, nearest);
        let other = self.stub(StubKind::Trap);
        self.asm.jcc(Condition::NotEqual, other);
    }

    /// Returns the register of the result: the host register of the destination if it is pinned and
    /// not one of `others`, which are read after the result is begun, or else a scratch register.
    pub(super) fn result_register(&mut self, others: &[FReg]) -> Xmm {
        let destination = self.destination();
        let pinned = destination.and_then(host_f);
        if let Some(pinned) = pinned {
            // The destination is not displaced.
            self.in_use.f |= pinned.mask();
        }
        match (pinned, destination) {
            (Some(pinned), Some(destination)) if !others.contains(&destination) => pinned,
            _ => self.acquire_f(),
        }
    }

    /// Returns the floating-point register that the instruction writes.
    fn destination(&self) -> Option<FReg> {
        FReg::new(self.registers.f_written.trailing_zeros() as u8)
    }

    /// Loads the value of a register into an SSE register.
    pub(super) fn load_float(&mut self, format: Format, into: Xmm, register: FReg) {
        match self.location_f(register) {
            XmmRm::Reg(source) if source == into => {}
            XmmRm::Reg(source) => self.asm.movaps(into, source),
            XmmRm::Mem(word) => self.asm.movs_load(precision(format), into, word),
        }
    }

    /// Returns an SSE register with the value of a register, and whether it must be released.
    pub(super) fn in_xmm(&mut self, format: Format, register: FReg) -> (Xmm, bool) {
        match self.location_f(register) {
            XmmRm::Reg(source) => (source, false),
            XmmRm::Mem(_) => {
                let scratch = self.acquire_f();
                self.load_float(format, scratch, register);
                (scratch, true)
            }
        }
    }

    pub(super) fn release_if(&mut self, register: Xmm, is_scratch: bool) {
        if is_scratch {
            self.release_f(register);
        }
    }

    /// Makes a NaN in `register` canonical and returns the result.
    pub(super) fn canonical(&mut self, format: Format, register: Xmm) -> Float {
        self.asm.ucomis(precision(format), register, register);
        let back = self.asm.label();
        let nan = self.stub(StubKind::CanonicalNan {
            format,
            register,
            back,
        });
        self.asm.jcc(Condition::Parity, nan);
        self.asm.bind(back);
        Float::Result(format, register)
    }

    pub(super) fn arithmetic(&mut self, op: FBinOp, format: Format, a: Float, b: Float) -> Float {
        let (Some(a), Some(b)) = (self.checked(format, a), self.checked(format, b)) else {
            return a;
        };
        let (op, commutes) = match op {
            FBinOp::Add => (Scalar::Add, true),
            FBinOp::Sub => (Scalar::Sub, false),
            FBinOp::Mul => (Scalar::Mul, true),
            FBinOp::Div => (Scalar::Div, false),
        };
        // NaN operands give the same result in both orders, since it becomes canonical.
        let (a, b) = match commutes && self.destination() == Some(b) {
            true => (b, a),
            false => (a, b),
        };
        let others = if a == b { &[][..] } else { &[b][..] };
        let result = self.result_register(others);
        self.load_float(format, result, a);
        let operand = self.location_f(b);
        self.asm.scalar(op, precision(format), result, operand);
        self.canonical(format, result)
    }

    pub(super) fn square_root(&mut self, format: Format, a: Float) -> Float {
        let Some(register) = self.checked(format, a) else {
            return a;
        };
        let result = self.result_register(&[]);
        let operand = self.location_f(register);
        self.asm
            .scalar(Scalar::Sqrt, precision(format), result, operand);
        self.canonical(format, result)
    }

    pub(super) fn multiply_add(&mut self, fma: Fma, format: Format, operands: [Float; 3]) -> Float {
        let [Some(a), Some(b), Some(c)] = operands.map(|value| self.checked(format, value)) else {
            return operands[0];
        };
        let op = match (fma.negate_product, fma.negate_addend) {
            (false, false) => FmaOp::Vfmadd231,
            (false, true) => FmaOp::Vfmsub231,
            (true, false) => FmaOp::Vfnmadd231,
            (true, true) => FmaOp::Vfnmsub231,
        };
        // The operands stay as they are for the interpreter.
        let result = self.result_register(&[a, b, c]);
        self.load_float(format, result, c);
        let (second, scratch) = self.in_xmm(format, a);
        let third = self.location_f(b);
        self.asm.fma(op, precision(format), result, second, third);
        self.release_if(second, scratch);
        // ∞ × 0 is invalid even if the addend is a quiet NaN; x86 does not raise the flag then.
        self.asm.ucomis(precision(format), result, result);
        let nan = self.interpret_aside();
        self.asm.jcc(Condition::Parity, nan);
        Float::Result(format, result)
    }

    pub(super) fn min_max(&mut self, op: FMinMax, format: Format, a: Float, b: Float) -> Float {
        let (Some(a), Some(b)) = (self.checked(format, a), self.checked(format, b)) else {
            return a;
        };
        let precision = precision(format);
        let (first, second) = (self.result_register(&[a, b]), self.acquire_f());
        self.load_float(format, first, a);
        self.load_float(format, second, b);
        self.asm.ucomis(precision, first, second);
        let nan = self.interpret_aside();
        self.asm.jcc(Condition::Parity, nan);
        // If both are zero, SSE gives the second operand: both orders together give the sign.
        let scalar = match op {
            FMinMax::Min => Scalar::Min,
            FMinMax::Max => Scalar::Max,
        };
        let (a, b) = (self.location_f(a), self.location_f(b));
        self.asm.scalar(scalar, precision, first, b);
        self.asm.scalar(scalar, precision, second, a);
        match op {
            FMinMax::Min => self.asm.orps(first, second),
            FMinMax::Max => self.asm.andps(first, second),
        }
        self.release_f(second);
        Float::Result(format, first)
    }

    pub(super) fn compare_floats(&mut self, op: FCmp, format: Format, a: Float, b: Float) -> Bool {
        let (Some(a), Some(b)) = (self.checked(format, a), self.checked(format, b)) else {
            return self.values.add_truth(Truth::Const(false));
        };
        let result = self.acquire();
        // `a < b` is `b > a`, which is false if they are unordered.
        let (first, other) = match op {
            FCmp::Eq => (a, b),
            FCmp::Lt | FCmp::Le => (b, a),
        };
        let (first, scratch) = self.in_xmm(format, first);
        let other = self.location_f(other);
        match op {
            FCmp::Eq => self.asm.ucomis(precision(format), first, other),
            FCmp::Lt | FCmp::Le => self.asm.comis(precision(format), first, other),
        }
        self.release_if(first, scratch);
        match op {
            FCmp::Eq => {
                let ordered = self.acquire();
                self.asm.set(Condition::Equal, result);
                self.asm.set(Condition::NoParity, ordered);
                self.asm.alu(Alu::And, Size::Word, result, ordered);
                self.release(ordered);
            }
            FCmp::Lt => self.asm.set(Condition::Above, result),
            FCmp::Le => self.asm.set(Condition::AboveOrEqual, result),
        }
        self.asm.movzx(Size::Byte, result, result);
        self.values.add_truth(Truth::Temporary(result))
    }

    /// Writes a floating-point register.
    pub(super) fn write_float(&mut self, register: FReg, value: Float) {
        match value {
            Float::Register(source) => self.copy_float(register, source),
            Float::Memory(Format::Double, address) => match host_f(register) {
                Some(host) => self.load_double(address, host),
                None => {
                    let bits = self.load_bits(Format::Double, address);
                    self.write_bits(register, bits);
                    self.release(bits);
                }
            },
            Float::Memory(Format::Single, address) => {
                let bits = self.load_bits(Format::Single, address);
                self.write_boxed(register, bits);
                self.release(bits);
            }
            Float::Bits(bits) => {
                self.values.note_use(bits);
                let (source, scratch) = self.in_register(bits);
                self.write_bits(register, source);
                self.release_scratch(scratch);
            }
            Float::Result(format, result) => self.write_result(register, format, result),
        }
        if let (true, Some(host)) = (self.region.write_through, host_f(register)) {
            self.asm
                .movs_store(Precision::Double, slot_f(register), host);
        }
    }

    fn copy_float(&mut self, register: FReg, source: FReg) {
        match (host_f(register), self.location_f(source)) {
            (Some(host), _) => self.load_float(Format::Double, host, source),
            (None, XmmRm::Reg(source)) => {
                self.asm
                    .movs_store(Precision::Double, slot_f(register), source);
            }
            (None, XmmRm::Mem(word)) => {
                let scratch = self.acquire();
                self.asm.mov(Size::Double, scratch, word);
                self.write_bits(register, scratch);
                self.release(scratch);
            }
        }
    }

    fn write_bits(&mut self, register: FReg, bits: Gpr) {
        match host_f(register) {
            Some(host) => self.asm.mov_to_xmm(Size::Double, host, Rm::Reg(bits)),
            None => self.asm.mov_store(Size::Double, slot_f(register), bits),
        }
    }

    /// Writes a single, which is zero-extended in the scratch register `bits`.
    fn write_boxed(&mut self, register: FReg, bits: Gpr) {
        let upper = self.acquire();
        self.asm.mov_imm(upper, BOX);
        self.asm.alu(Alu::Or, Size::Double, bits, upper);
        self.write_bits(register, bits);
        self.release(upper);
    }

    fn write_result(&mut self, register: FReg, format: Format, result: Xmm) {
        match format {
            Format::Single => {
                let bits = self.acquire();
                self.asm.mov_from_xmm(Size::Word, bits, result);
                self.write_boxed(register, bits);
                self.release(bits);
            }
            Format::Double => match host_f(register) {
                Some(host) if host == result => {}
                Some(host) => self.asm.movaps(host, result),
                None => self
                    .asm
                    .movs_store(Precision::Double, slot_f(register), result),
            },
        }
        self.release_f(result);
    }
}

/// Whether an instruction writes a NaN-boxed single.
fn writes_single(instruction: &Instruction) -> bool {
    match instruction.operation() {
        Operation::LoadFloat { format, .. }
        | Operation::FloatBinary { format, .. }
        | Operation::FloatSqrt { format, .. }
        | Operation::FloatFma { format, .. }
        | Operation::FloatSign { format, .. }
        | Operation::FloatMinMax { format, .. }
        | Operation::IntToFloat { format, .. }
        | Operation::BitsToFloat { format, .. } => format == Format::Single,
        Operation::FloatConvert { to, .. } => to == Format::Single,
        _ => false,
    }
}
