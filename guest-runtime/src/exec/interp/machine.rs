//! The operations of the instruction semantics, performed on a [`Hart`].

use crate::convert::{low_u32, low_u64};
use core::sync::atomic::{self, compiler_fence, fence};

use hartline_abi::hart::{Hart, NO_RESERVATION};
use hartline_isa::{
    AmoOp, BinOp, CSR_CYCLE, CSR_FCSR, CSR_FFLAGS, CSR_FRM, CSR_INSTRET, CSR_TIME, Cmp, CsrOp,
    DivOp, FBinOp, FCmp, FMinMax, FReg, Fence, Fma, Format, Instruction, IntFormat, JumpKind,
    Machine, Ordering, Rounding, Trap, UnOp, Width, XReg,
};

use super::Step;
use super::fcsr;
use super::memory::{self, GuestMemory};
use super::softfloat::{Environment, canonical_nan, classify};

/// One instruction in execution.
pub(super) struct Execution<'a, M> {
    pub hart: &'a Hart,
    pub memory: &'a mut M,
    /// Address of the instruction.
    pub pc: u64,
    /// Address after the instruction.
    pub next_pc: u64,
    /// Kind of the instruction.
    pub step: Step,
    /// Set by `fence.i`.
    pub flush: bool,
}

/// The upper half of a NaN-boxed single.
const BOX: u64 = 0xffff_ffff_0000_0000;

/// Operand of the given format from a register image.
fn unbox(format: Format, image: u64) -> u64 {
    match format {
        Format::Double => image,
        Format::Single if image >= BOX => image & !BOX,
        Format::Single => canonical_nan(Format::Single),
    }
}

/// Register image of a value of the given format.
fn into_box(format: Format, value: u64) -> u64 {
    match format {
        Format::Double => value,
        Format::Single => value | BOX,
    }
}

fn width(format: Format) -> Width {
    match format {
        Format::Single => Width::Word,
        Format::Double => Width::Double,
    }
}

impl<M: GuestMemory> Execution<'_, M> {
    /// Performs a floating-point operation and accrues its flags.
    fn float<T>(&mut self, rounding: Rounding, f: impl FnOnce(&mut Environment) -> T) -> T {
        let Some(rounding) = fcsr::resolve(rounding, self.hart.frm.get()) else {
            unreachable!("checked before the instruction is executed");
        };
        let mut environment = Environment::new(rounding);
        let value = f(&mut environment);
        self.hart
            .fflags
            .set(self.hart.fflags.get() | environment.flags);
        value
    }

    fn read_csr(&self, csr: u16, writes: bool) -> Option<u64> {
        match csr {
            CSR_FFLAGS => Some(fcsr::read_fflags(self.hart).into()),
            CSR_FRM => Some((self.hart.frm.get() & 7).into()),
            CSR_FCSR => Some(fcsr::fcsr_read(self.hart).into()),
            CSR_CYCLE | CSR_TIME | CSR_INSTRET if !writes => {
                // SAFETY: the instruction exists on every x86-64 processor.
                Some(unsafe { core::arch::x86_64::_rdtsc() })
            }
            _ => None,
        }
    }
}

impl<M: GuestMemory> Machine for Execution<'_, M> {
    type Int = u64;
    type Bool = bool;
    type Float = u64;

    #[inline(always)]
    fn int(&mut self, value: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn pc_relative(&mut self, offset: i64) -> u64 {
        self.pc.wrapping_add_signed(offset)
    }

    #[inline(always)]
    fn read_x(&mut self, register: XReg) -> u64 {
        self.hart.x(register.index())
    }

    #[inline(always)]
    fn write_x(&mut self, register: XReg, value: u64) {
        self.hart.set_x(register.index(), value);
        self.hart.set_x(0, 0);
    }

    #[inline(always)]
    fn read_f(&mut self, register: FReg) -> u64 {
        self.hart.f(register.index())
    }

    #[inline(always)]
    fn write_f(&mut self, register: FReg, value: u64) {
        self.hart.set_f(register.index(), value);
    }

    #[inline(always)]
    fn bin(&mut self, op: BinOp, a: u64, b: u64) -> u64 {
        let signed_product = |b: i128| {
            let product = i128::from(a.cast_signed()) * b;
            low_u64((product >> 64).cast_unsigned())
        };
        match op {
            BinOp::Add => a.wrapping_add(b),
            BinOp::Sub => a.wrapping_sub(b),
            BinOp::And => a & b,
            BinOp::Or => a | b,
            BinOp::Xor => a ^ b,
            BinOp::Shl => a.wrapping_shl(low_u32(b)),
            BinOp::Shr => a.wrapping_shr(low_u32(b)),
            BinOp::Sar => a.cast_signed().wrapping_shr(low_u32(b)).cast_unsigned(),
            BinOp::Rol => a.rotate_left(low_u32(b) & 63),
            BinOp::Ror => a.rotate_right(low_u32(b) & 63),
            BinOp::Mul => a.wrapping_mul(b),
            BinOp::MulHigh => signed_product(i128::from(b.cast_signed())),
            BinOp::MulHighU => low_u64((u128::from(a) * u128::from(b)) >> 64),
            BinOp::MulHighSU => signed_product(i128::from(b)),
            BinOp::Min => a.cast_signed().min(b.cast_signed()).cast_unsigned(),
            BinOp::MinU => a.min(b),
            BinOp::Max => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
            BinOp::MaxU => a.max(b),
            BinOp::ClMul => low_u64(carry_less_product(a, b)),
            BinOp::ClMulHigh => low_u64(carry_less_product(a, b) >> 64),
            BinOp::ClMulReversed => low_u64(carry_less_product(a, b) >> 63),
        }
    }

    #[inline(always)]
    fn un(&mut self, op: UnOp, a: u64) -> u64 {
        match op {
            UnOp::SignExtend(width) => memory::sign_extend(width, a),
            UnOp::ZeroExtend(Width::Byte) => a & 0xff,
            UnOp::ZeroExtend(Width::Half) => a & 0xffff,
            UnOp::ZeroExtend(Width::Word) => a & 0xffff_ffff,
            UnOp::ZeroExtend(Width::Double) => a,
            UnOp::CountLeadingZeros(Width::Double) => a.leading_zeros().into(),
            UnOp::CountLeadingZeros(_) => low_u32(a).leading_zeros().into(),
            UnOp::CountTrailingZeros(Width::Double) => a.trailing_zeros().into(),
            UnOp::CountTrailingZeros(_) => low_u32(a).trailing_zeros().into(),
            UnOp::PopCount(Width::Double) => a.count_ones().into(),
            UnOp::PopCount(_) => low_u32(a).count_ones().into(),
            UnOp::ByteReverse => a.swap_bytes(),
            UnOp::OrCombine => {
                u64::from_le_bytes(a.to_le_bytes().map(|byte| if byte == 0 { 0 } else { 0xff }))
            }
        }
    }

    #[inline(always)]
    fn div(&mut self, op: DivOp, _width: Width, a: u64, b: u64) -> u64 {
        // Operands of word operations are extended to 64 bits, which does not change the quotient.
        match op {
            DivOp::Div => a
                .cast_signed()
                .wrapping_div(b.cast_signed())
                .cast_unsigned(),
            DivOp::DivU => a / b,
            DivOp::Rem => a
                .cast_signed()
                .wrapping_rem(b.cast_signed())
                .cast_unsigned(),
            DivOp::RemU => a % b,
        }
    }

    #[inline(always)]
    fn cmp(&mut self, op: Cmp, a: u64, b: u64) -> bool {
        match op {
            Cmp::Eq => a == b,
            Cmp::Ne => a != b,
            Cmp::Lt => a.cast_signed() < b.cast_signed(),
            Cmp::LtU => a < b,
            Cmp::Ge => a.cast_signed() >= b.cast_signed(),
            Cmp::GeU => a >= b,
        }
    }

    #[inline(always)]
    fn and(&mut self, a: bool, b: bool) -> bool {
        a && b
    }

    #[inline(always)]
    fn bool_to_int(&mut self, a: bool) -> u64 {
        a.into()
    }

    #[inline(always)]
    fn select(&mut self, condition: bool, a: u64, b: u64) -> u64 {
        if condition { a } else { b }
    }

    #[inline(always)]
    fn load(&mut self, width: Width, signed: bool, address: u64) -> u64 {
        // SAFETY: `Interpreter::step` has the contract that guest memory needs.
        let value = unsafe { self.memory.load(width, address) };
        if signed {
            memory::sign_extend(width, value)
        } else {
            value
        }
    }

    #[inline(always)]
    fn store(&mut self, width: Width, address: u64, value: u64) {
        // SAFETY: `Interpreter::step` has the contract that guest memory needs.
        unsafe { self.memory.store(width, address, value) };
    }

    #[inline(always)]
    fn load_f(&mut self, format: Format, address: u64) -> u64 {
        into_box(format, self.load(width(format), false, address))
    }

    #[inline(always)]
    fn store_f(&mut self, format: Format, address: u64, value: u64) {
        self.store(width(format), address, value);
    }

    fn is_aligned(&mut self, width: Width, stores: bool, address: u64) -> bool {
        let aligned = address.is_multiple_of(u64::from(width.bytes()));
        if !aligned {
            self.trap(match stores {
                true => Trap::StoreMisaligned(address),
                false => Trap::LoadMisaligned(address),
            });
        }
        aligned
    }

    fn amo(&mut self, op: AmoOp, width: Width, _: Ordering, address: u64, value: u64) -> u64 {
        // SAFETY: `Interpreter::step` has the contract that guest memory needs.
        unsafe { self.memory.amo(op, width, address, value) }
    }

    fn load_reserved(&mut self, width: Width, _: Ordering, address: u64) -> u64 {
        // Loads are acquire loads on x86; release orders earlier stores before it.
        fence(atomic::Ordering::SeqCst);
        let value = self.load(width, true, address);
        self.hart.reservation.set(address);
        self.hart.reserved_value.set(value);
        value
    }

    fn store_conditional(&mut self, width: Width, _: Ordering, address: u64, value: u64) -> u64 {
        let reserved = self.hart.reservation.get() == address;
        let expected = self.hart.reserved_value.get();
        // SAFETY: `Interpreter::step` has the contract that guest memory needs.
        let done = reserved && unsafe { self.memory.replace(width, address, expected, value) };
        self.hart.reservation.set(NO_RESERVATION);
        u64::from(!done)
    }

    fn fence(&mut self, operands: Fence) {
        // x86 keeps every order except a store before a later load.
        let (stores, loads) = (operands.predecessor & 0b0101, operands.successor & 0b1010);
        if stores != 0 && loads != 0 && !operands.tso {
            fence(atomic::Ordering::SeqCst);
        } else {
            compiler_fence(atomic::Ordering::SeqCst);
        }
    }

    fn fence_i(&mut self) {
        self.flush = true;
    }

    fn f_bin(&mut self, op: FBinOp, format: Format, rounding: Rounding, a: u64, b: u64) -> u64 {
        let (a, b) = (unbox(format, a), unbox(format, b));
        into_box(
            format,
            self.float(rounding, |env| env.binary(op, format, a, b)),
        )
    }

    fn f_sqrt(&mut self, format: Format, rounding: Rounding, a: u64) -> u64 {
        let a = unbox(format, a);
        into_box(
            format,
            self.float(rounding, |env| env.square_root(format, a)),
        )
    }

    fn f_fma(
        &mut self,
        fma: Fma,
        format: Format,
        rounding: Rounding,
        a: u64,
        b: u64,
        c: u64,
    ) -> u64 {
        let [a, b, c] = [a, b, c].map(|image| unbox(format, image));
        into_box(
            format,
            self.float(rounding, |env| env.multiply_add(fma, format, a, b, c)),
        )
    }

    fn f_min_max(&mut self, op: FMinMax, format: Format, a: u64, b: u64) -> u64 {
        let (a, b) = (unbox(format, a), unbox(format, b));
        into_box(
            format,
            self.float(Rounding::Rne, |env| env.min_max(op, format, a, b)),
        )
    }

    fn f_cmp(&mut self, op: FCmp, format: Format, a: u64, b: u64) -> bool {
        let (a, b) = (unbox(format, a), unbox(format, b));
        self.float(Rounding::Rne, |env| env.compare(op, format, a, b))
    }

    fn f_class(&mut self, format: Format, a: u64) -> u64 {
        classify(format, unbox(format, a))
    }

    fn f_to_int(&mut self, to: IntFormat, format: Format, rounding: Rounding, a: u64) -> u64 {
        let a = unbox(format, a);
        self.float(rounding, |env| env.float_to_int(to, format, a))
    }

    fn f_from_int(&mut self, format: Format, from: IntFormat, rounding: Rounding, a: u64) -> u64 {
        into_box(
            format,
            self.float(rounding, |env| env.int_to_float(format, from, a)),
        )
    }

    fn f_convert(&mut self, to: Format, rounding: Rounding, a: u64) -> u64 {
        let from = match to {
            Format::Single => Format::Double,
            Format::Double => Format::Single,
        };
        let a = unbox(from, a);
        into_box(to, self.float(rounding, |env| env.convert(to, a)))
    }

    #[inline(always)]
    fn f_bits(&mut self, a: u64) -> u64 {
        a
    }

    #[inline(always)]
    fn f_from_bits(&mut self, a: u64) -> u64 {
        a
    }

    fn csr(
        &mut self,
        csr: u16,
        op: CsrOp,
        write: Option<u64>,
        destination: XReg,
        _raw: &Instruction,
    ) {
        let Some(old) = self.read_csr(csr, write.is_some()) else {
            return self.trap(Trap::IllegalInstruction);
        };
        if let Some(operand) = write {
            let new = low_u32(match op {
                CsrOp::Write => operand,
                CsrOp::Set => old | operand,
                CsrOp::Clear => old & !operand,
            });
            match csr {
                CSR_FFLAGS => fcsr::write_fflags(self.hart, new),
                CSR_FRM => fcsr::write_frm(self.hart, new),
                _ => fcsr::fcsr_write(self.hart, new),
            }
        }
        self.write_x(destination, old);
    }

    #[inline(always)]
    fn jump(&mut self, link: XReg, offset: i64) {
        self.next_pc = self.pc.wrapping_add_signed(offset);
        self.step = Step::Jump(JumpKind::of(link, XReg::ZERO));
    }

    #[inline(always)]
    fn branch(&mut self, condition: bool, offset: i64) {
        if condition {
            self.next_pc = self.pc.wrapping_add_signed(offset);
        }
    }

    #[inline(always)]
    fn jump_register(&mut self, link: XReg, base: XReg, target: u64) {
        self.next_pc = target & !1;
        self.step = Step::Jump(JumpKind::of(link, base));
    }

    #[inline(always)]
    fn trap(&mut self, trap: Trap) {
        self.next_pc = self.pc;
        self.step = Step::Trap(trap);
    }
}

fn carry_less_product(a: u64, b: u64) -> u128 {
    (0..64)
        .filter(|bit| b >> bit & 1 == 1)
        .fold(0, |sum, bit| sum ^ (u128::from(a) << bit))
}
