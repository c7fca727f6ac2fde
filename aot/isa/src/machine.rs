//! The typed operations from which every instruction's effect is built.
//!
//! [`execute`](crate::execute) describes an instruction by calling these
//! operations; an implementation either performs them (the interpreter, where
//! an [`Machine::Int`] is a `u64`) or records them (the lifter, where it is an
//! LLVM value). No operation traps: guest memory faults are hardware faults,
//! and integer division follows the RISC-V rules inside the semantics.

use crate::{FReg, Instruction, XReg};

/// Width of a memory access or of an atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
}

impl Width {
    /// Size in bytes: 1, 2, 4 or 8.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
            Width::Double => 8,
        }
    }

    /// Size in bits: 8, 16, 32 or 64.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bytes() * 8
    }
}

/// Floating-point format: F (binary32) or D (binary64).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE 754 binary32.
    Single,
    /// IEEE 754 binary64.
    Double,
}

impl Format {
    /// Size in bytes: 4 or 8.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Format::Single => 4,
            Format::Double => 8,
        }
    }

    /// Number of bits of the significand: integers of this many bits are exact.
    #[must_use]
    pub const fn precision(self) -> u8 {
        match self {
            Format::Single => 24,
            Format::Double => 53,
        }
    }
}

/// Rounding mode field of a floating-point instruction (F extension, §"Floating-Point
/// Control and Status Register").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rounding {
    /// Round to nearest, ties to even.
    Rne = 0,
    /// Round towards zero.
    Rtz = 1,
    /// Round down.
    Rdn = 2,
    /// Round up.
    Rup = 3,
    /// Round to nearest, ties to max magnitude.
    Rmm = 4,
    /// The mode in `frm`.
    Dyn = 7,
}

/// Two-operand integer operation on 64-bit values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// Wrapping addition.
    Add,
    /// Wrapping subtraction.
    Sub,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left; the amount is taken modulo 64.
    Shl,
    /// Logical shift right; the amount is taken modulo 64.
    Shr,
    /// Arithmetic shift right; the amount is taken modulo 64.
    Sar,
    /// Rotate left; the amount is taken modulo 64.
    Rol,
    /// Rotate right; the amount is taken modulo 64.
    Ror,
    /// Low 64 bits of the product.
    Mul,
    /// High 64 bits of the signed × signed product.
    MulHigh,
    /// High 64 bits of the unsigned × unsigned product.
    MulHighU,
    /// High 64 bits of the signed × unsigned product.
    MulHighSU,
    /// Signed minimum.
    Min,
    /// Unsigned minimum.
    MinU,
    /// Signed maximum.
    Max,
    /// Unsigned maximum.
    MaxU,
    /// Carry-less product, low 64 bits.
    ClMul,
    /// Carry-less product, bits 127..64.
    ClMulHigh,
    /// Carry-less product, bits 126..63.
    ClMulReversed,
}

/// Division. The semantics never pass a zero divisor, nor the most negative
/// dividend with −1, so that implementations may use the host's instruction.
/// With [`Width::Word`] operands and result are sign-extended (signed) or
/// zero-extended (unsigned) 32-bit values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DivOp {
    /// Signed quotient, rounded towards zero.
    Div,
    /// Unsigned quotient.
    DivU,
    /// Signed remainder, sign of the dividend.
    Rem,
    /// Unsigned remainder.
    RemU,
}

/// One-operand integer operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnOp {
    /// Sign-extend the low 8, 16 or 32 bits.
    SignExtend(Width),
    /// Zero-extend the low 8, 16 or 32 bits.
    ZeroExtend(Width),
    /// Leading zeros of the low `Word` or `Double`; the width when it is zero.
    CountLeadingZeros(Width),
    /// Trailing zeros of the low `Word` or `Double`; the width when it is zero.
    CountTrailingZeros(Width),
    /// Set bits of the low `Word` or `Double`.
    PopCount(Width),
    /// Reverse the eight bytes.
    ByteReverse,
    /// Each byte becomes 0xff if it is not zero (Zbb `orc.b`).
    OrCombine,
}

/// Integer comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Signed less than.
    Lt,
    /// Unsigned less than.
    LtU,
    /// Signed greater or equal.
    Ge,
    /// Unsigned greater or equal.
    GeU,
}

/// Two-operand floating-point arithmetic with rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FBinOp {
    /// Addition.
    Add,
    /// Subtraction.
    Sub,
    /// Multiplication.
    Mul,
    /// Division.
    Div,
}

/// Floating-point minimum or maximum (`minimumNumber`/`maximumNumber` of IEEE 754-2019): −0 < +0, a
/// number is preferred to a quiet NaN, a signalling NaN sets NV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FMinMax {
    /// `fmin`.
    Min,
    /// `fmax`.
    Max,
}

/// Fused multiply-add: which signs are inverted before the single rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fma {
    /// The product is negated (`fnmadd`, `fnmsub`).
    pub negate_product: bool,
    /// The addend is subtracted from the signed product (`fmsub`, `fnmadd`).
    pub negate_addend: bool,
}

/// Floating-point comparison. All are false on an unordered pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FCmp {
    /// `feq`: quiet, only a signalling NaN sets NV.
    Eq,
    /// `flt`: signalling, any NaN sets NV.
    Lt,
    /// `fle`: signalling, any NaN sets NV.
    Le,
}

/// Integer type of a floating-point conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntFormat {
    /// Signed 32 bits; in an X register sign-extended.
    I32,
    /// Unsigned 32 bits; in an X register **sign-extended** from bit 31.
    U32,
    /// Signed 64 bits.
    I64,
    /// Unsigned 64 bits.
    U64,
}

impl IntFormat {
    /// Whether the format represents each value exactly, so that no conversion rounds.
    #[must_use]
    pub const fn is_exact_in(self, format: Format) -> bool {
        matches!((self, format), (Self::I32 | Self::U32, Format::Double))
    }
}

/// Read-modify-write of an `amo*` instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AmoOp {
    /// `amoswap`.
    Swap,
    /// `amoadd`.
    Add,
    /// `amoxor`.
    Xor,
    /// `amoand`.
    And,
    /// `amoor`.
    Or,
    /// `amomin`.
    Min,
    /// `amomax`.
    Max,
    /// `amominu`.
    MinU,
    /// `amomaxu`.
    MaxU,
}

/// The `aq` and `rl` bits of an atomic instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ordering {
    /// Acquire.
    pub acquire: bool,
    /// Release.
    pub release: bool,
}

/// Operand sets of a `fence` (bit 3 = I, 2 = O, 1 = R, 0 = W).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Predecessor set, 4 bits.
    pub predecessor: u8,
    /// Successor set, 4 bits.
    pub successor: u8,
    /// `fence.tso` (fm = 1000).
    pub tso: bool,
}

/// Read-modify-write of a CSR instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CsrOp {
    /// `csrrw`, `csrrwi`.
    Write,
    /// `csrrs`, `csrrsi`.
    Set,
    /// `csrrc`, `csrrci`.
    Clear,
}

/// Why an instruction traps to the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trap {
    /// `ecall`: a system call. Execution continues after it.
    EnvironmentCall,
    /// `ebreak`: SIGTRAP.
    Breakpoint,
    /// An encoding that is not an instruction, or is not allowed in user mode: SIGILL.
    IllegalInstruction,
    /// `lr` from an address that is not a multiple of its width: SIGBUS.
    LoadMisaligned(u64),
    /// `sc` or an AMO to an address that is not a multiple of its width: SIGBUS.
    StoreMisaligned(u64),
}

/// Executes, or records, the operations of one instruction.
///
/// The caller sets the current pc before [`execute`](crate::execute). Unless a control-flow
/// operation is called, execution continues at the next instruction. At most one control-flow
/// operation ([`jump`](Machine::jump), [`branch`](Machine::branch),
/// [`jump_register`](Machine::jump_register), [`trap`](Machine::trap)) is called per instruction,
/// and as its last operation.
pub trait Machine {
    /// A 64-bit integer.
    type Int: Copy;
    /// A truth value.
    type Bool: Copy;
    /// The 64-bit contents of a floating-point register.
    type Float: Copy;

    /// A constant.
    fn int(&mut self, value: u64) -> Self::Int;
    /// The address `pc + offset` of the current instruction, as `auipc` and the
    /// link of `jal` compute it.
    fn pc_relative(&mut self, offset: i64) -> Self::Int;

    /// Reads an integer register; `x0` reads zero.
    fn read_x(&mut self, register: XReg) -> Self::Int;
    /// Writes an integer register; a write to `x0` is dropped.
    fn write_x(&mut self, register: XReg, value: Self::Int);
    /// Reads the raw 64 bits of a floating-point register.
    fn read_f(&mut self, register: FReg) -> Self::Float;
    /// Writes the raw 64 bits of a floating-point register.
    fn write_f(&mut self, register: FReg, value: Self::Float);

    /// Two-operand integer operation.
    fn bin(&mut self, op: BinOp, a: Self::Int, b: Self::Int) -> Self::Int;
    /// One-operand integer operation.
    fn un(&mut self, op: UnOp, a: Self::Int) -> Self::Int;
    /// Division; `width` is `Word` or `Double`.
    fn div(&mut self, op: DivOp, width: Width, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Integer comparison.
    fn cmp(&mut self, op: Cmp, a: Self::Int, b: Self::Int) -> Self::Bool;
    /// Whether both are true.
    fn and(&mut self, a: Self::Bool, b: Self::Bool) -> Self::Bool;
    /// 1 if true, otherwise 0.
    fn bool_to_int(&mut self, a: Self::Bool) -> Self::Int;
    /// `a` if the condition holds, otherwise `b`.
    fn select(&mut self, condition: Self::Bool, a: Self::Int, b: Self::Int) -> Self::Int;

    /// Loads from memory, sign- or zero-extended. Any alignment works. The access takes place even
    /// if the value is unused.
    fn load(&mut self, width: Width, signed: bool, address: Self::Int) -> Self::Int;
    /// Stores the low bits. Any alignment works.
    fn store(&mut self, width: Width, address: Self::Int, value: Self::Int);
    /// Loads a register image: `fld` its 64 bits, `flw` NaN-boxed.
    fn load_f(&mut self, format: Format, address: Self::Int) -> Self::Float;
    /// Stores the register's low 32 or its 64 bits, unchanged.
    fn store_f(&mut self, format: Format, address: Self::Int, value: Self::Float);

    /// Whether the atomic access that follows takes place: its address must be a
    /// multiple of its width. If it is not, the implementation takes the trap itself
    /// ([`Trap::StoreMisaligned`] if it `stores`).
    fn is_aligned(&mut self, width: Width, stores: bool, address: Self::Int) -> bool;

    /// Atomic read-modify-write; returns the old value, sign-extended from `Word`.
    fn amo(
        &mut self,
        op: AmoOp,
        width: Width,
        order: Ordering,
        address: Self::Int,
        value: Self::Int,
    ) -> Self::Int;
    /// Loads (sign-extended) and registers a reservation.
    fn load_reserved(&mut self, width: Width, order: Ordering, address: Self::Int) -> Self::Int;
    /// Stores if the reservation holds; returns 0 on success and 1 on failure. The reservation ends
    /// either way.
    fn store_conditional(
        &mut self,
        width: Width,
        order: Ordering,
        address: Self::Int,
        value: Self::Int,
    ) -> Self::Int;
    /// Orders memory accesses.
    fn fence(&mut self, fence: Fence);
    /// `fence.i`: later fetches see earlier stores.
    fn fence_i(&mut self);

    /// Arithmetic on register images. Operands that are not properly NaN-boxed
    /// count as the canonical NaN; results are NaN-boxed, NaN results canonical;
    /// flags accrue in `fflags`. The same holds for all operations below.
    fn f_bin(
        &mut self,
        op: FBinOp,
        format: Format,
        rounding: Rounding,
        a: Self::Float,
        b: Self::Float,
    ) -> Self::Float;
    /// Square root.
    fn f_sqrt(&mut self, format: Format, rounding: Rounding, a: Self::Float) -> Self::Float;
    /// ±(a × b) ± c with one rounding.
    fn f_fma(
        &mut self,
        fma: Fma,
        format: Format,
        rounding: Rounding,
        a: Self::Float,
        b: Self::Float,
        c: Self::Float,
    ) -> Self::Float;
    /// Minimum or maximum.
    fn f_min_max(
        &mut self,
        op: FMinMax,
        format: Format,
        a: Self::Float,
        b: Self::Float,
    ) -> Self::Float;
    /// Comparison.
    fn f_cmp(&mut self, op: FCmp, format: Format, a: Self::Float, b: Self::Float) -> Self::Bool;
    /// `fclass`: a mask with one of bits 0–9 set. Sets no flags.
    fn f_class(&mut self, format: Format, a: Self::Float) -> Self::Int;
    /// Float to integer, saturating; NaN gives the largest value; NV if out of range.
    fn f_to_int(
        &mut self,
        to: IntFormat,
        format: Format,
        rounding: Rounding,
        a: Self::Float,
    ) -> Self::Int;
    /// Integer to float. Only the low bits of `a` that `from` names count.
    fn f_from_int(
        &mut self,
        format: Format,
        from: IntFormat,
        rounding: Rounding,
        a: Self::Int,
    ) -> Self::Float;
    /// `fcvt.s.d` (`to` single) or `fcvt.d.s` (`to` double).
    fn f_convert(&mut self, to: Format, rounding: Rounding, a: Self::Float) -> Self::Float;
    /// The register image as an integer, all 64 bits, unchanged.
    fn f_bits(&mut self, a: Self::Float) -> Self::Int;
    /// An integer as a register image, all 64 bits, unchanged.
    fn f_from_bits(&mut self, a: Self::Int) -> Self::Float;

    /// Reads and modifies a CSR; the implementation writes the old value to `destination` itself.
    /// `write` is `None` when the instruction must not write (`csrrs`/`csrrc` with `x0` or a zero
    /// immediate). `raw` is the whole instruction, for implementations that hand it to another
    /// implementation. Unknown or forbidden CSRs are an illegal instruction: the implementation
    /// takes the trap itself and the result is discarded.
    fn csr(
        &mut self,
        csr: u16,
        op: CsrOp,
        write: Option<Self::Int>,
        destination: XReg,
        raw: &Instruction,
    );

    /// Jumps to `pc + offset`; `link` is the register that holds the return address (already
    /// written), or `x0`.
    fn jump(&mut self, link: XReg, offset: i64);
    /// Jumps to `pc + offset` if the condition holds.
    fn branch(&mut self, condition: Self::Bool, offset: i64);
    /// Jumps to `target` with bit 0 cleared. `base` and `link` are the registers of the
    /// instruction, which distinguish calls from returns.
    fn jump_register(&mut self, link: XReg, base: XReg, target: Self::Int);
    /// Traps to the operating system.
    fn trap(&mut self, trap: Trap);
}
