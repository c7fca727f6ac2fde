//! Operands, and their encoding: prefixes, ModRM, SIB and displacement.

use super::{Assembler, Gpr, Xmm};

/// Size of an integer operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Half,
    /// 32 bits; the upper half of a destination register becomes zero.
    Word,
    /// 64 bits.
    Double,
}

/// A memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mem {
    /// `gs:[offset]`.
    Gs(u32),
    /// `[base + displacement]`.
    Base(Gpr, i32),
    /// `[base + index * scale + displacement]`; the scale is 1, 2, 4 or 8 and the index not `rsp`.
    Index(Gpr, Gpr, u8, i32),
    /// `[rip + displacement]`, a field that a relocation fills in.
    Rip,
}

/// A register or memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rm {
    /// A register.
    Reg(Gpr),
    /// Memory.
    Mem(Mem),
}

impl From<Gpr> for Rm {
    fn from(register: Gpr) -> Self {
        Self::Reg(register)
    }
}

impl From<Mem> for Rm {
    fn from(memory: Mem) -> Self {
        Self::Mem(memory)
    }
}

/// An SSE register or memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XmmRm {
    /// A register.
    Reg(Xmm),
    /// Memory.
    Mem(Mem),
}

impl From<Xmm> for XmmRm {
    fn from(register: Xmm) -> Self {
        Self::Reg(register)
    }
}

impl From<Mem> for XmmRm {
    fn from(memory: Mem) -> Self {
        Self::Mem(memory)
    }
}

/// Condition of a jump, `setcc` or `cmovcc`, with its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// OF.
    Overflow = 0,
    /// CF.
    Below = 2,
    /// Not CF.
    AboveOrEqual = 3,
    /// ZF.
    Equal = 4,
    /// Not ZF.
    NotEqual = 5,
    /// CF or ZF.
    BelowOrEqual = 6,
    /// Neither CF nor ZF.
    Above = 7,
    /// SF.
    Sign = 8,
    /// Not SF.
    NotSign = 9,
    /// PF: after `ucomis`, the operands are unordered.
    Parity = 10,
    /// Not PF.
    NoParity = 11,
    /// SF ≠ OF.
    Less = 12,
    /// SF = OF.
    GreaterOrEqual = 13,
    /// ZF, or SF ≠ OF.
    LessOrEqual = 14,
    /// Not ZF, and SF = OF.
    Greater = 15,
}

impl Condition {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Self; 15] = [
        Self::Overflow,
        Self::Below,
        Self::AboveOrEqual,
        Self::Equal,
        Self::NotEqual,
        Self::BelowOrEqual,
        Self::Above,
        Self::Sign,
        Self::NotSign,
        Self::Parity,
        Self::NoParity,
        Self::Less,
        Self::GreaterOrEqual,
        Self::LessOrEqual,
        Self::Greater,
    ];

    /// Its code in an encoding.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// A mandatory or operand-size prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    None,
    Lock,
    P66,
    F2,
    F3,
}

/// Opcode maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    One,
    F,
    F38,
    F3A,
}

/// The parts of an instruction before ModRM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opcode {
    pub prefix: Prefix,
    /// REX.W or VEX.W.
    pub wide: bool,
    pub map: Map,
    pub byte: u8,
    /// A REX prefix is needed even if it is empty: an operand is `spl`, `bpl`, `sil` or `dil`.
    pub rex: bool,
}

impl Opcode {
    pub const fn new(map: Map, byte: u8) -> Self {
        Self {
            prefix: Prefix::None,
            wide: false,
            map,
            byte,
            rex: false,
        }
    }

    pub const fn prefix(self, prefix: Prefix) -> Self {
        Self { prefix, ..self }
    }

    pub const fn wide(self, wide: bool) -> Self {
        Self { wide, ..self }
    }

    /// The opcode for operands of `size`, where bit 0 distinguishes bytes from other sizes.
    pub const fn sized(self, size: Size) -> Self {
        match size {
            Size::Byte => self,
            Size::Half => Self {
                prefix: Prefix::P66,
                byte: self.byte | 1,
                ..self
            },
            Size::Word => Self {
                byte: self.byte | 1,
                ..self
            },
            Size::Double => Self {
                wide: true,
                byte: self.byte | 1,
                ..self
            },
        }
    }

    /// Forces a REX prefix if a byte register needs one to be named.
    pub fn byte_register(self, size: Size, register: Gpr) -> Self {
        let rex = self.rex || size == Size::Byte && (4..8).contains(&register.number());
        Self { rex, ..self }
    }
}

/// The r/m operand as numbers.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Register(u8),
    Memory(Mem),
}

impl From<Rm> for Place {
    fn from(rm: Rm) -> Self {
        match rm {
            Rm::Reg(register) => Self::Register(register.number()),
            Rm::Mem(memory) => Self::Memory(memory),
        }
    }
}

impl From<XmmRm> for Place {
    fn from(rm: XmmRm) -> Self {
        match rm {
            XmmRm::Reg(register) => Self::Register(register.number()),
            XmmRm::Mem(memory) => Self::Memory(memory),
        }
    }
}

impl Place {
    /// Bits 3 of the base (or register) and of the index: REX.B and REX.X.
    fn high_bits(self) -> (u8, u8) {
        match self {
            Self::Register(number) => (number >> 3, 0),
            Self::Memory(Mem::Base(base, _)) => (base.number() >> 3, 0),
            Self::Memory(Mem::Index(base, index, ..)) => (base.number() >> 3, index.number() >> 3),
            Self::Memory(Mem::Gs(_) | Mem::Rip) => (0, 0),
        }
    }
}

impl Assembler {
    /// Appends an instruction with a ModRM byte, without its immediate.
    pub(super) fn modrm(&mut self, opcode: Opcode, reg: u8, rm: impl Into<Place>) {
        let rm = rm.into();
        if let Place::Memory(Mem::Gs(_)) = rm {
            self.byte(0x65);
        }
        match opcode.prefix {
            Prefix::None => {}
            Prefix::Lock => self.byte(0xf0),
            Prefix::P66 => self.byte(0x66),
            Prefix::F2 => self.byte(0xf2),
            Prefix::F3 => self.byte(0xf3),
        }
        let (b, x) = rm.high_bits();
        let rex = u8::from(opcode.wide) << 3 | reg >> 3 << 2 | x << 1 | b;
        if rex != 0 || opcode.rex {
            self.byte(0x40 | rex);
        }
        match opcode.map {
            Map::One => {}
            Map::F => self.byte(0x0f),
            Map::F38 => self.bytes(&[0x0f, 0x38]),
            Map::F3A => self.bytes(&[0x0f, 0x3a]),
        }
        self.byte(opcode.byte);
        self.operands(reg, rm);
    }

    /// Appends a VEX-encoded instruction of 128 bits or of general-purpose registers, with the
    /// additional source `second`.
    pub(super) fn vex(&mut self, opcode: Opcode, reg: u8, second: u8, rm: impl Into<Place>) {
        let rm = rm.into();
        if let Place::Memory(Mem::Gs(_)) = rm {
            self.byte(0x65);
        }
        let (b, x) = rm.high_bits();
        let map = match opcode.map {
            Map::One | Map::F => 1,
            Map::F38 => 2,
            Map::F3A => 3,
        };
        let prefix = match opcode.prefix {
            Prefix::None | Prefix::Lock => 0,
            Prefix::P66 => 1,
            Prefix::F3 => 2,
            Prefix::F2 => 3,
        };
        let first = (reg >> 3 ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | map;
        let last = u8::from(opcode.wide) << 7 | (!second & 15) << 3 | prefix;
        self.bytes(&[0xc4, first, last, opcode.byte]);
        self.operands(reg, rm);
    }

    fn operands(&mut self, reg: u8, rm: Place) {
        let reg = (reg & 7) << 3;
        match rm {
            Place::Register(number) => self.byte(0xc0 | reg | number & 7),
            Place::Memory(Mem::Gs(offset)) => {
                self.bytes(&[reg | 4, 0x25]);
                self.bytes(&offset.to_le_bytes());
            }
            Place::Memory(Mem::Rip) => {
                self.byte(reg | 5);
                self.bytes(&[0; 4]);
            }
            Place::Memory(Mem::Base(base, displacement)) => {
                let base = base.number();
                let sib = (base & 7 == 4).then_some(0x24);
                self.displaced(reg, base, sib, displacement);
            }
            Place::Memory(Mem::Index(base, index, scale, displacement)) => {
                let scale = scale.trailing_zeros() as u8 & 3;
                let sib = scale << 6 | (index.number() & 7) << 3 | base.number() & 7;
                self.displaced(reg, base.number(), Some(sib), displacement);
            }
        }
    }

    /// Appends ModRM, SIB and the shortest displacement.
    fn displaced(&mut self, reg: u8, base: u8, sib: Option<u8>, displacement: i32) {
        let short = i8::try_from(displacement);
        let mode = match (displacement, short) {
            // `rbp` and `r13` without a displacement mean something else.
            (0, _) if base & 7 != 5 => 0,
            (_, Ok(_)) => 0x40,
            _ => 0x80,
        };
        let rm = if sib.is_some() { 4 } else { base & 7 };
        self.byte(mode | reg | rm);
        if let Some(sib) = sib {
            self.byte(sib);
        }
        match (mode, short) {
            (0, _) => {}
            (0x40, Ok(short)) => self.byte(short as u8),
            _ => self.bytes(&displacement.to_le_bytes()),
        }
    }
}
