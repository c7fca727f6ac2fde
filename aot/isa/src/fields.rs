//! Operand fields of 32-bit encodings.

use crate::{FReg, Fence, Immediate, Operands, Ordering, XReg};

impl Immediate {
    /// Its bits of an encoding. Values are truncated to the field.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::I(value) => (value as u32) << 20,
            Self::S(value) => {
                let v = value as u32;
                (v & 31) << 7 | (v >> 5 & 127) << 25
            }
            Self::B(value) => {
                let v = value as u32;
                (v >> 11 & 1) << 7 | (v >> 1 & 15) << 8 | (v >> 5 & 63) << 25 | (v >> 12 & 1) << 31
            }
            Self::U(value) => value as u32 & !0xfff,
            Self::J(value) => {
                let v = value as u32;
                v & 0xf_f000 | (v >> 11 & 1) << 20 | (v >> 1 & 0x3ff) << 21 | (v >> 20 & 1) << 31
            }
            Self::Amount(amount) => (amount as u32 & 63) << 20,
            Self::Csr(value) => (value as u32 & 31) << 15,
            Self::Fence(fence) => {
                let mode = if fence.tso { FM_TSO << 28 } else { 0 };
                mode | (fence.predecessor as u32 & 15) << 24 | (fence.successor as u32 & 15) << 20
            }
        }
    }
}

/// The `fm` field of `fence.tso`.
const FM_TSO: u32 = 8;

pub(crate) const fn i_immediate(bits: u32) -> i32 {
    bits as i32 >> 20
}

pub(crate) const fn s_immediate(bits: u32) -> i32 {
    (bits as i32 >> 25 << 5) | (bits >> 7 & 0x1f) as i32
}

pub(crate) const fn b_immediate(bits: u32) -> i32 {
    (bits as i32 >> 31 << 12)
        | ((bits >> 7 & 1) << 11 | (bits >> 25 & 0x3f) << 5 | (bits >> 8 & 0xf) << 1) as i32
}

pub(crate) const fn u_immediate(bits: u32) -> i32 {
    (bits & 0xffff_f000) as i32
}

pub(crate) const fn j_immediate(bits: u32) -> i32 {
    (bits as i32 >> 31 << 20)
        | (bits & 0xf_f000 | (bits >> 20 & 1) << 11 | (bits >> 21 & 0x3ff) << 1) as i32
}

pub(crate) const fn amount(bits: u32) -> u8 {
    (bits >> 20 & 0x3f) as u8
}

pub(crate) const fn csr_immediate(bits: u32) -> u8 {
    (bits >> 15 & 31) as u8
}

/// Decodes the fields of a fence. The specification treats reserved values of fm as a normal fence.
pub(crate) const fn fence(bits: u32) -> Fence {
    let (predecessor, successor) = ((bits >> 24 & 15) as u8, (bits >> 20 & 15) as u8);
    Fence {
        predecessor,
        successor,
        tso: bits >> 28 == FM_TSO && predecessor == 3 && successor == 3,
    }
}

pub(crate) const fn csr(bits: u32) -> u16 {
    (bits >> 20) as u16
}

pub(crate) const fn order(bits: u32) -> Ordering {
    Ordering {
        acquire: bits >> AQ & 1 == 1,
        release: bits >> RL & 1 == 1,
    }
}

/// Lowest bits of the register fields.
const RD: u32 = 7;
const RS1: u32 = 15;
const RS2: u32 = 20;
const RS3: u32 = 27;
/// Lowest bit of funct3 and of the rounding mode.
const FUNCT3: u32 = 12;
const AQ: u32 = 26;
const RL: u32 = 25;

pub(crate) const fn funct3(bits: u32) -> u32 {
    bits >> FUNCT3 & 7
}

/// The integer registers of an encoding.
pub(crate) mod x {
    use super::{RD, RS1, RS2, XReg};

    pub const fn rd(bits: u32) -> XReg {
        XReg::at(bits, RD)
    }

    pub const fn rs1(bits: u32) -> XReg {
        XReg::at(bits, RS1)
    }

    pub const fn rs2(bits: u32) -> XReg {
        XReg::at(bits, RS2)
    }
}

/// The floating-point registers of an encoding.
pub(crate) mod f {
    use super::{FReg, RD, RS1, RS2, RS3};

    pub const fn rd(bits: u32) -> FReg {
        FReg::at(bits, RD)
    }

    pub const fn rs1(bits: u32) -> FReg {
        FReg::at(bits, RS1)
    }

    pub const fn rs2(bits: u32) -> FReg {
        FReg::at(bits, RS2)
    }

    pub const fn rs3(bits: u32) -> FReg {
        FReg::at(bits, RS3)
    }
}

impl Operands {
    /// Returns the bits of their fields in an encoding.
    pub(crate) fn bits(&self) -> u32 {
        let registers = [
            (self.rd, RD),
            (self.rs1, RS1),
            (self.rs2, RS2),
            (self.rs3, RS3),
        ];
        let mut bits = 0;
        for (register, shift) in registers {
            bits |= register.map_or(0, |register| u32::from(register.number()) << shift);
        }
        if let Some(order) = self.order {
            bits |= u32::from(order.acquire) << AQ | u32::from(order.release) << RL;
        }
        bits | self.immediate.map_or(0, Immediate::bits)
            | self
                .rounding
                .map_or(0, |rounding| rounding.code() << FUNCT3)
            | self.csr.map_or(0, |csr| u32::from(csr) << 20)
    }
}
