//! Products of 128 bits, carry-less products, and division: their instructions have implicit
//! operands, or need SSE registers.

use hartline_isa::{BinOp, DivOp, Width};

use super::Emitter;
use super::integer::size;
use super::values::Int;
use crate::encoder::{Alu, Gpr, Rm, Shift, Size, Unary};

impl Emitter<'_> {
    /// The upper half of a product.
    pub(super) fn high_product(&mut self, op: BinOp, a: Int, b: Int, into: Gpr) {
        if op == BinOp::MulHighU && self.unsigned_high_product(a, b, into) {
            return;
        }
        let result = self.acquire();
        let scratch = match self.value_location(b) {
            Some(_) => None,
            None => self.in_register(b).1,
        };
        self.displace(Gpr::Rax);
        self.displace(Gpr::Rdx);
        // Operands that are pinned to the displaced registers are in memory now.
        let factor = match scratch {
            Some(register) => Some(Rm::Reg(register)),
            None => self.value_location(b),
        };
        let Some(factor) = factor else {
            return self.give_up();
        };
        self.compute(a, Gpr::Rax);
        let multiply = match op {
            BinOp::MulHigh => Unary::Imul,
            _ => Unary::Mul,
        };
        self.asm.unary(multiply, Size::Double, factor);
        if op == BinOp::MulHighSU {
            // A negative first factor counted as 2^64 more.
            self.compute(a, Gpr::Rax);
            self.asm.shift_imm(Shift::Sar, Size::Double, Gpr::Rax, 63);
            self.asm.alu(Alu::And, Size::Double, Gpr::Rax, factor);
            self.asm.alu(Alu::Sub, Size::Double, Gpr::Rdx, Gpr::Rax);
        }
        self.asm.mov(Size::Double, result, Gpr::Rdx);
        self.replace(Gpr::Rdx);
        self.replace(Gpr::Rax);
        self.release_scratch(scratch);
        self.asm.mov(Size::Double, into, result);
        self.release(result);
    }

    /// The upper half of an unsigned product, if the CPU has `mulx` and a factor needs no code. Only rdx is an
    /// implicit operand, and a register keeps its value: long products would wait for a word of memory each time.
    fn unsigned_high_product(&mut self, a: Int, b: Int, into: Gpr) -> bool {
        let (first, factor) = match (self.value_location(a), self.value_location(b)) {
            _ if !self.features.bmi2 => return false,
            (_, Some(factor)) => (a, factor),
            (Some(factor), None) => (b, factor),
            (None, None) => return false,
        };
        let rdx = Rm::Reg(Gpr::Rdx);
        let before = self.in_use.x;
        self.in_use.x |= Gpr::Rdx.mask();
        let kept = (into != Gpr::Rdx || factor == rdx).then(|| self.acquire());
        if let Some(kept) = kept {
            self.asm.mov(Size::Double, kept, Gpr::Rdx);
        }
        self.compute(first, Gpr::Rdx);
        let factor = match kept {
            Some(kept) if factor == rdx => Rm::Reg(kept),
            _ => factor,
        };
        self.asm.mulx(Size::Double, into, into, factor);
        if let Some(kept) = kept {
            if into != Gpr::Rdx {
                self.asm.mov(Size::Double, Gpr::Rdx, kept);
            }
            self.release(kept);
        }
        self.in_use.x &= before | !Gpr::Rdx.mask();
        true
    }

    /// A quotient or remainder. The divisor is valid.
    pub(super) fn divide(&mut self, op: DivOp, width: Width, a: Int, b: Int, into: Gpr) {
        let size = size(width);
        let divisor = self.acquire();
        self.compute(b, divisor);
        self.displace(Gpr::Rax);
        self.displace(Gpr::Rdx);
        self.compute(a, Gpr::Rax);
        if matches!(op, DivOp::Div | DivOp::Rem) {
            self.asm.sign_into_rdx(size);
            self.asm.unary(Unary::Idiv, size, divisor);
        } else {
            self.asm.mov_imm(Gpr::Rdx, 0);
            self.asm.unary(Unary::Div, size, divisor);
        }
        let result = match op {
            DivOp::Div | DivOp::DivU => Gpr::Rax,
            DivOp::Rem | DivOp::RemU => Gpr::Rdx,
        };
        match (width, op) {
            (Width::Word, DivOp::Div | DivOp::Rem) => {
                self.asm.movsx(Size::Word, divisor, result);
            }
            _ => self.asm.mov(size, divisor, result),
        }
        self.replace(Gpr::Rdx);
        self.replace(Gpr::Rax);
        self.asm.mov(Size::Double, into, divisor);
        self.release(divisor);
    }

    /// 64 bits of a carry-less product.
    pub(super) fn carryless_product(&mut self, op: BinOp, a: Int, b: Int, into: Gpr) {
        let (low, high) = (self.acquire(), self.acquire());
        let (product, factor) = (self.acquire_f(), self.acquire_f());
        self.compute(a, low);
        self.asm.mov_to_xmm(Size::Double, product, low);
        self.compute(b, low);
        self.asm.mov_to_xmm(Size::Double, factor, low);
        self.asm.pclmulqdq(product, factor);
        self.asm.mov_from_xmm(Size::Double, low, product);
        self.asm.psrldq_half(product);
        self.asm.mov_from_xmm(Size::Double, high, product);
        self.release_f(factor);
        self.release_f(product);
        let result = match op {
            BinOp::ClMul => low,
            BinOp::ClMulHigh => high,
            _ => {
                self.asm.shift_imm(Shift::Shr, Size::Double, low, 63);
                self.asm.alu(Alu::Add, Size::Double, high, high);
                self.asm.alu(Alu::Or, Size::Double, high, low);
                high
            }
        };
        self.asm.mov(Size::Double, into, result);
        self.release(high);
        self.release(low);
    }
}
