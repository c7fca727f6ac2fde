//! Instructions of SSE registers.

use super::operand::{Map, Opcode, Prefix};
use super::{Assembler, Gpr, Mem, Rm, Size, Xmm, XmmRm};

/// Precision of a scalar operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits, `ss`.
    Single,
    /// 64 bits, `sd`.
    Double,
}

impl Precision {
    const fn prefix(self) -> Prefix {
        match self {
            Self::Single => Prefix::F3,
            Self::Double => Prefix::F2,
        }
    }

    /// The prefix of instructions that have `ps` and `pd` forms.
    const fn packed(self) -> Prefix {
        match self {
            Self::Single => Prefix::None,
            Self::Double => Prefix::P66,
        }
    }
}

/// Scalar arithmetic, with its opcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum Scalar {
    Sqrt = 0x51,
    Add = 0x58,
    Mul = 0x59,
    Sub = 0x5c,
    Min = 0x5d,
    Div = 0x5e,
    Max = 0x5f,
}

/// Rounding modes of `roundss` and `roundsd`, with their codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RoundMode {
    /// To the nearest integer, ties to the even one.
    Nearest = 0,
    /// Towards −∞.
    Down = 1,
    /// Towards +∞.
    Up = 2,
    /// Towards zero.
    Truncate = 3,
    /// The mode of MXCSR.
    Mxcsr = 4,
}

/// Fused multiply-add of the form `destination = ±(second × third) ± destination`, with its
/// opcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum FmaOp {
    Vfmadd231 = 0xb9,
    Vfmsub231 = 0xbb,
    Vfnmadd231 = 0xbd,
    Vfnmsub231 = 0xbf,
}

const fn f(byte: u8) -> Opcode {
    Opcode::new(Map::F, byte)
}

const fn wide(size: Size) -> bool {
    matches!(size, Size::Double)
}

impl Assembler {
    /// `movss` or `movsd register, [memory]`; the rest of the register becomes zero.
    pub fn movs_load(&mut self, precision: Precision, register: Xmm, memory: Mem) {
        let opcode = f(0x10).prefix(precision.prefix());
        self.modrm(opcode, register.number(), Rm::Mem(memory));
    }

    /// `movss` or `movsd [memory], register`.
    pub fn movs_store(&mut self, precision: Precision, memory: Mem, register: Xmm) {
        let opcode = f(0x11).prefix(precision.prefix());
        self.modrm(opcode, register.number(), Rm::Mem(memory));
    }

    /// `movaps register, source`.
    pub fn movaps(&mut self, register: Xmm, source: Xmm) {
        self.modrm(f(0x28), register.number(), XmmRm::Reg(source));
    }

    /// `movd` or `movq register, source`; the rest of the register becomes zero.
    pub fn mov_to_xmm(&mut self, size: Size, register: Xmm, source: impl Into<Rm>) {
        let opcode = f(0x6e).prefix(Prefix::P66).wide(wide(size));
        self.modrm(opcode, register.number(), source.into());
    }

    /// `movd` or `movq register, source`.
    pub fn mov_from_xmm(&mut self, size: Size, register: Gpr, source: Xmm) {
        let opcode = f(0x7e).prefix(Prefix::P66).wide(wide(size));
        self.modrm(opcode, source.number(), Rm::Reg(register));
    }

    /// `op register, source`.
    pub fn scalar(
        &mut self,
        op: Scalar,
        precision: Precision,
        register: Xmm,
        source: impl Into<XmmRm>,
    ) {
        let opcode = f(op as u8).prefix(precision.prefix());
        self.modrm(opcode, register.number(), source.into());
    }

    /// `ucomis a, b`: a signalling NaN sets the invalid flag.
    pub fn ucomis(&mut self, precision: Precision, a: Xmm, b: impl Into<XmmRm>) {
        self.modrm(f(0x2e).prefix(precision.packed()), a.number(), b.into());
    }

    /// `comis a, b`: any NaN sets the invalid flag.
    pub fn comis(&mut self, precision: Precision, a: Xmm, b: impl Into<XmmRm>) {
        self.modrm(f(0x2f).prefix(precision.packed()), a.number(), b.into());
    }

    /// `xorps register, source`.
    pub fn xorps(&mut self, register: Xmm, source: Xmm) {
        self.modrm(f(0x57), register.number(), XmmRm::Reg(source));
    }

    /// `orps register, source`.
    pub fn orps(&mut self, register: Xmm, source: Xmm) {
        self.modrm(f(0x56), register.number(), XmmRm::Reg(source));
    }

    /// `andps register, source`.
    pub fn andps(&mut self, register: Xmm, source: Xmm) {
        self.modrm(f(0x54), register.number(), XmmRm::Reg(source));
    }

    /// `cvtss2sd` or `cvtsd2ss register, source`; `from` is the precision of the source.
    pub fn cvt(&mut self, from: Precision, register: Xmm, source: impl Into<XmmRm>) {
        self.modrm(
            f(0x5a).prefix(from.prefix()),
            register.number(),
            source.into(),
        );
    }

    /// `cvtsi2ss` or `cvtsi2sd register, source`; the source has 32 or 64 bits.
    pub fn cvt_from_int(
        &mut self,
        to: Precision,
        size: Size,
        register: Xmm,
        source: impl Into<Rm>,
    ) {
        let opcode = f(0x2a).prefix(to.prefix()).wide(wide(size));
        self.modrm(opcode, register.number(), source.into());
    }

    /// `cvtsd2si register, source`, or `cvttsd2si` if it `truncates`; the result has 32 or 64 bits.
    pub fn cvt_to_int(
        &mut self,
        from: Precision,
        truncates: bool,
        size: Size,
        register: Gpr,
        source: impl Into<XmmRm>,
    ) {
        let byte = if truncates { 0x2c } else { 0x2d };
        let opcode = f(byte).prefix(from.prefix()).wide(wide(size));
        self.modrm(opcode, register.number(), source.into());
    }

    /// `roundss` or `roundsd register, source, mode` of SSE4.1. It does not set the precision flag.
    pub fn round(
        &mut self,
        precision: Precision,
        mode: RoundMode,
        register: Xmm,
        source: impl Into<XmmRm>,
    ) {
        const NO_PRECISION_FLAG: u8 = 8;
        let byte = match precision {
            Precision::Single => 0x0a,
            Precision::Double => 0x0b,
        };
        let opcode = Opcode::new(Map::F3A, byte).prefix(Prefix::P66);
        self.modrm(opcode, register.number(), source.into());
        self.byte(mode as u8 | NO_PRECISION_FLAG);
    }

    /// `op register, second, third`.
    pub fn fma(
        &mut self,
        op: FmaOp,
        precision: Precision,
        register: Xmm,
        second: Xmm,
        third: impl Into<XmmRm>,
    ) {
        let opcode = Opcode::new(Map::F38, op as u8)
            .prefix(Prefix::P66)
            .wide(precision == Precision::Double);
        self.vex(opcode, register.number(), second.number(), third.into());
    }

    /// `pclmulqdq register, source, 0`: the product of both low halves.
    pub fn pclmulqdq(&mut self, register: Xmm, source: Xmm) {
        let opcode = Opcode::new(Map::F3A, 0x44).prefix(Prefix::P66);
        self.modrm(opcode, register.number(), XmmRm::Reg(source));
        self.byte(0);
    }

    /// `psrldq register, 8`: moves the high half to the low half.
    pub fn psrldq_half(&mut self, register: Xmm) {
        self.modrm(f(0x73).prefix(Prefix::P66), 3, XmmRm::Reg(register));
        self.byte(8);
    }

    /// `stmxcsr [memory]`.
    pub fn stmxcsr(&mut self, memory: Mem) {
        self.modrm(f(0xae), 3, Rm::Mem(memory));
    }

    /// `ldmxcsr [memory]`.
    pub fn ldmxcsr(&mut self, memory: Mem) {
        self.modrm(f(0xae), 2, Rm::Mem(memory));
    }
}
