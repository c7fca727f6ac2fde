//! Decoded instructions.

use crate::{
    AmoOp, Cmp, CsrOp, FBinOp, FCmp, FMinMax, FReg, Fence, Fma, Format, ImmediateOp, IntFormat,
    Ordering, RegisterOp, Rounding, ShiftOp, UnaryOp, Width, XReg,
};

/// One instruction: its operation, and the bits it was decoded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instruction {
    raw: u32,
    operation: Operation,
}

impl Instruction {
    pub(crate) const fn new(raw: u32, operation: Operation) -> Self {
        Self { raw, operation }
    }

    /// The encoding; the upper half is zero if it is a 16-bit one.
    #[must_use]
    pub const fn raw(&self) -> u32 {
        self.raw
    }

    /// Returns its operation. A compressed instruction has the operation of the 32-bit instruction
    /// that it expands to.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// Length in bytes: 2 or 4.
    #[must_use]
    pub const fn length(&self) -> u8 {
        if self.is_compressed() { 2 } else { 4 }
    }

    /// Whether the encoding is a 16-bit one (C extension).
    #[must_use]
    pub const fn is_compressed(&self) -> bool {
        self.raw & 3 != 3
    }
}

/// Effect of `fsgnj*` on the sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignOp {
    /// `fsgnj`: the sign of the second operand.
    Copy,
    /// `fsgnjn`: the opposite of the second operand's sign.
    Negate,
    /// `fsgnjx`: the exclusive or of both signs.
    Xor,
}

/// Operand of a CSR instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CsrSource {
    /// `csrrw`, `csrrs`, `csrrc`.
    Register(XReg),
    /// `csrrwi`, `csrrsi`, `csrrci`: 0–31.
    Immediate(u8),
}

/// Operation and operands. Offsets and immediates are sign-extended, in bytes
/// where they count bytes, and within the range of the 32-bit encoding.
#[allow(missing_docs, reason = "operands are named as in the specification")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `lui`: `rd` = `immediate`, whose low 12 bits are zero.
    Lui { rd: XReg, immediate: i32 },
    /// `auipc`: `rd` = pc + `immediate`, whose low 12 bits are zero.
    Auipc { rd: XReg, immediate: i32 },
    /// `jal`.
    Jal { rd: XReg, offset: i32 },
    /// `jalr`.
    Jalr { rd: XReg, rs1: XReg, offset: i32 },
    /// `beq` … `bgeu`.
    Branch {
        condition: Cmp,
        rs1: XReg,
        rs2: XReg,
        offset: i32,
    },
    /// `lb` … `ld`.
    Load {
        width: Width,
        signed: bool,
        rd: XReg,
        rs1: XReg,
        offset: i32,
    },
    /// `sb` … `sd`.
    Store {
        width: Width,
        rs1: XReg,
        rs2: XReg,
        offset: i32,
    },
    /// `addi` and the like.
    Immediate {
        op: ImmediateOp,
        rd: XReg,
        rs1: XReg,
        immediate: i32,
    },
    /// `slli` and the like; `amount` is 0–63, 0–31 for words.
    Shift {
        op: ShiftOp,
        rd: XReg,
        rs1: XReg,
        amount: u8,
    },
    /// `clz` and the like.
    Unary { op: UnaryOp, rd: XReg, rs1: XReg },
    /// `add` and the like.
    Register {
        op: RegisterOp,
        rd: XReg,
        rs1: XReg,
        rs2: XReg,
    },
    /// `fence`, `fence.tso`.
    Fence(Fence),
    /// `fence.i`.
    FenceI,
    /// `ecall`.
    Ecall,
    /// `ebreak`.
    Ebreak,
    /// `csrrw` … `csrrci`; `csr` is 0–4095.
    Csr {
        op: CsrOp,
        rd: XReg,
        csr: u16,
        source: CsrSource,
    },
    /// `lr.w`, `lr.d`.
    LoadReserved {
        width: Width,
        order: Ordering,
        rd: XReg,
        rs1: XReg,
    },
    /// `sc.w`, `sc.d`.
    StoreConditional {
        width: Width,
        order: Ordering,
        rd: XReg,
        rs1: XReg,
        rs2: XReg,
    },
    /// `amo*.w`, `amo*.d`.
    Amo {
        op: AmoOp,
        width: Width,
        order: Ordering,
        rd: XReg,
        rs1: XReg,
        rs2: XReg,
    },
    /// `flw`, `fld`.
    LoadFloat {
        format: Format,
        rd: FReg,
        rs1: XReg,
        offset: i32,
    },
    /// `fsw`, `fsd`.
    StoreFloat {
        format: Format,
        rs1: XReg,
        rs2: FReg,
        offset: i32,
    },
    /// `fadd`, `fsub`, `fmul`, `fdiv`.
    FloatBinary {
        op: FBinOp,
        format: Format,
        rounding: Rounding,
        rd: FReg,
        rs1: FReg,
        rs2: FReg,
    },
    /// `fsqrt`.
    FloatSqrt {
        format: Format,
        rounding: Rounding,
        rd: FReg,
        rs1: FReg,
    },
    /// `fmadd`, `fmsub`, `fnmsub`, `fnmadd`.
    FloatFma {
        fma: Fma,
        format: Format,
        rounding: Rounding,
        rd: FReg,
        rs1: FReg,
        rs2: FReg,
        rs3: FReg,
    },
    /// `fsgnj`, `fsgnjn`, `fsgnjx`.
    FloatSign {
        op: SignOp,
        format: Format,
        rd: FReg,
        rs1: FReg,
        rs2: FReg,
    },
    /// `fmin`, `fmax`.
    FloatMinMax {
        op: FMinMax,
        format: Format,
        rd: FReg,
        rs1: FReg,
        rs2: FReg,
    },
    /// `feq`, `flt`, `fle`.
    FloatCompare {
        op: FCmp,
        format: Format,
        rd: XReg,
        rs1: FReg,
        rs2: FReg,
    },
    /// `fclass`.
    FloatClass { format: Format, rd: XReg, rs1: FReg },
    /// `fcvt.{w,wu,l,lu}.{s,d}`.
    FloatToInt {
        to: IntFormat,
        format: Format,
        rounding: Rounding,
        rd: XReg,
        rs1: FReg,
    },
    /// `fcvt.{s,d}.{w,wu,l,lu}`.
    IntToFloat {
        from: IntFormat,
        format: Format,
        rounding: Rounding,
        rd: FReg,
        rs1: XReg,
    },
    /// `fcvt.s.d` (`to` single), `fcvt.d.s` (`to` double).
    FloatConvert {
        to: Format,
        rounding: Rounding,
        rd: FReg,
        rs1: FReg,
    },
    /// `fmv.x.w`, `fmv.x.d`.
    FloatToBits { format: Format, rd: XReg, rs1: FReg },
    /// `fmv.w.x`, `fmv.d.x`.
    BitsToFloat { format: Format, rd: FReg, rs1: XReg },
}

const _: () = assert!(core::mem::size_of::<Instruction>() <= 20);
