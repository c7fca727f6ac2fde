//! The operands of instructions. [`Operation::operands`] is their only description: register use,
//! operand fields of the encoding and assembly text are derived from it.

use crate::{CsrSource, FReg, Fence, Format, Operation, Ordering, Rounding, XReg};

/// A register operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Register {
    /// An integer register.
    X(XReg),
    /// A floating-point register.
    F(FReg),
}

impl Register {
    /// Its number, 0–31.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::X(register) => register.number(),
            Self::F(register) => register.number(),
        }
    }
}

impl From<XReg> for Register {
    fn from(register: XReg) -> Self {
        Self::X(register)
    }
}

impl From<FReg> for Register {
    fn from(register: FReg) -> Self {
        Self::F(register)
    }
}

/// An immediate operand, by the format of its field. [`I`](Self::I), [`S`](Self::S),
/// [`B`](Self::B), [`U`](Self::U) and [`J`](Self::J) immediates are sign-extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Immediate {
    /// I-type: 12 bits.
    I(i32),
    /// S-type: 12 bits.
    S(i32),
    /// B-type: an offset from the pc, 12 bits and a zero.
    B(i32),
    /// U-type: the upper 20 bits.
    U(i32),
    /// J-type: an offset from the pc, 20 bits and a zero.
    J(i32),
    /// A shift amount or bit number, 5 or 6 bits.
    Amount(u8),
    /// The 5 bits of a CSR instruction, in the rs1 field.
    Csr(u8),
    /// The predecessor and successor sets and the mode of a fence.
    Fence(Fence),
}

/// The form of the operands in assembly text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Syntax {
    /// In the order rd, rs1, rs2, rs3, immediate, rounding mode. Operands that the instruction does
    /// not have are omitted.
    #[default]
    List,
    /// As [`List`](Self::List), without the rounding mode: the result is exact.
    Exact,
    /// rd or rs2, then the immediate and rs1 as `offset(rs1)`.
    Offset,
    /// rd, rs2 if there is one, then rs1 as `(rs1)`.
    Address,
    /// rd, the CSR, then rs1 or the immediate.
    Csr,
}

/// The operands of an instruction, by the fields of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Operands {
    /// The register that is written.
    pub rd: Option<Register>,
    /// The first register that is read.
    pub rs1: Option<Register>,
    /// The second register that is read.
    pub rs2: Option<Register>,
    /// The third register that is read.
    pub rs3: Option<Register>,
    /// The immediate.
    pub immediate: Option<Immediate>,
    /// The rounding mode.
    pub rounding: Option<Rounding>,
    /// The number of the CSR, 0–4095.
    pub csr: Option<u16>,
    /// The `aq` and `rl` bits.
    pub order: Option<Ordering>,
    /// The order and form of the operands in assembly text.
    pub syntax: Syntax,
}

impl Operands {
    /// The registers that are read.
    pub fn sources(&self) -> impl Iterator<Item = Register> {
        [self.rs1, self.rs2, self.rs3].into_iter().flatten()
    }

    fn rd(self, rd: impl Into<Register>) -> Self {
        Self {
            rd: Some(rd.into()),
            ..self
        }
    }

    fn rs1(self, rs1: impl Into<Register>) -> Self {
        Self {
            rs1: Some(rs1.into()),
            ..self
        }
    }

    fn rs2(self, rs2: impl Into<Register>) -> Self {
        Self {
            rs2: Some(rs2.into()),
            ..self
        }
    }

    fn rs3(self, rs3: impl Into<Register>) -> Self {
        Self {
            rs3: Some(rs3.into()),
            ..self
        }
    }

    fn immediate(self, immediate: Immediate) -> Self {
        Self {
            immediate: Some(immediate),
            ..self
        }
    }

    fn rounding(self, rounding: Rounding) -> Self {
        Self {
            rounding: Some(rounding),
            ..self
        }
    }

    fn order(self, order: Ordering) -> Self {
        Self {
            order: Some(order),
            syntax: Syntax::Address,
            ..self
        }
    }

    fn syntax(self, syntax: Syntax) -> Self {
        Self { syntax, ..self }
    }

    /// `offset(rs1)`.
    fn at(self, rs1: XReg, offset: Immediate) -> Self {
        self.rs1(rs1).immediate(offset).syntax(Syntax::Offset)
    }
}

impl Operation {
    /// The operands.
    #[must_use]
    pub fn operands(self) -> Operands {
        use Immediate as I;
        use Operation as O;
        let operands = Operands::default();
        match self {
            O::Lui { rd, immediate } | O::Auipc { rd, immediate } => {
                operands.rd(rd).immediate(I::U(immediate))
            }
            O::Jal { rd, offset } => operands.rd(rd).immediate(I::J(offset)),
            O::Jalr { rd, rs1, offset }
            | O::Load {
                rd, rs1, offset, ..
            } => operands.rd(rd).at(rs1, I::I(offset)),
            O::Branch {
                rs1, rs2, offset, ..
            } => operands.rs1(rs1).rs2(rs2).immediate(I::B(offset)),
            O::Store {
                rs1, rs2, offset, ..
            } => operands.rs2(rs2).at(rs1, I::S(offset)),
            O::Immediate {
                rd, rs1, immediate, ..
            } => operands.rd(rd).rs1(rs1).immediate(I::I(immediate)),
            O::Shift {
                rd, rs1, amount, ..
            } => operands.rd(rd).rs1(rs1).immediate(I::Amount(amount)),
            O::Unary { rd, rs1, .. } => operands.rd(rd).rs1(rs1),
            O::Register { rd, rs1, rs2, .. } => operands.rd(rd).rs1(rs1).rs2(rs2),
            O::Fence(fence) => operands.immediate(I::Fence(fence)),
            O::FenceI | O::Ecall | O::Ebreak => operands,
            O::Csr {
                rd, csr, source, ..
            } => {
                let with_source = match source {
                    CsrSource::Register(rs1) => operands.rd(rd).rs1(rs1),
                    CsrSource::Immediate(value) => operands.rd(rd).immediate(I::Csr(value)),
                };
                Operands {
                    csr: Some(csr),
                    syntax: Syntax::Csr,
                    ..with_source
                }
            }
            O::LoadReserved { order, rd, rs1, .. } => operands.rd(rd).rs1(rs1).order(order),
            O::StoreConditional {
                order,
                rd,
                rs1,
                rs2,
                ..
            }
            | O::Amo {
                order,
                rd,
                rs1,
                rs2,
                ..
            } => operands.rd(rd).rs1(rs1).rs2(rs2).order(order),
            _ => self.float_operands(),
        }
    }

    /// F and D.
    fn float_operands(self) -> Operands {
        use Immediate as I;
        use Operation as O;
        let operands = Operands::default();
        match self {
            O::LoadFloat {
                rd, rs1, offset, ..
            } => operands.rd(rd).at(rs1, I::I(offset)),
            O::StoreFloat {
                rs1, rs2, offset, ..
            } => operands.rs2(rs2).at(rs1, I::S(offset)),
            O::FloatBinary {
                rounding,
                rd,
                rs1,
                rs2,
                ..
            } => operands.rd(rd).rs1(rs1).rs2(rs2).rounding(rounding),
            O::FloatSqrt {
                rounding, rd, rs1, ..
            } => operands.rd(rd).rs1(rs1).rounding(rounding),
            O::FloatFma {
                rounding,
                rd,
                rs1,
                rs2,
                rs3,
                ..
            } => operands
                .rd(rd)
                .rs1(rs1)
                .rs2(rs2)
                .rs3(rs3)
                .rounding(rounding),
            O::FloatSign { rd, rs1, rs2, .. } | O::FloatMinMax { rd, rs1, rs2, .. } => {
                operands.rd(rd).rs1(rs1).rs2(rs2)
            }
            O::FloatCompare { rd, rs1, rs2, .. } => operands.rd(rd).rs1(rs1).rs2(rs2),
            O::FloatClass { rd, rs1, .. } | O::FloatToBits { rd, rs1, .. } => {
                operands.rd(rd).rs1(rs1)
            }
            O::BitsToFloat { rd, rs1, .. } => operands.rd(rd).rs1(rs1),
            O::FloatToInt {
                rounding, rd, rs1, ..
            } => operands.rd(rd).rs1(rs1).rounding(rounding),
            O::IntToFloat {
                from,
                format,
                rounding,
                rd,
                rs1,
            } => {
                let syntax = conversion_syntax(from.is_exact_in(format));
                operands.rd(rd).rs1(rs1).rounding(rounding).syntax(syntax)
            }
            O::FloatConvert {
                to,
                rounding,
                rd,
                rs1,
            } => {
                let syntax = conversion_syntax(to == Format::Double);
                operands.rd(rd).rs1(rs1).rounding(rounding).syntax(syntax)
            }
            _ => unreachable!("`operands` describes everything else"),
        }
    }
}

fn conversion_syntax(is_exact: bool) -> Syntax {
    match is_exact {
        true => Syntax::Exact,
        false => Syntax::List,
    }
}
