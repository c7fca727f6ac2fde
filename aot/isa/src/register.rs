//! Integer and floating-point register numbers.

use core::fmt;

/// An integer register, `x0`–`x31`. `Display` prints the number form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct XReg(u8);

/// A floating-point register, `f0`–`f31`. `Display` prints the number form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FReg(u8);

const X_NAMES: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];

const F_NAMES: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2",
    "fa3", "fa4", "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9",
    "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];

macro_rules! register {
    ($name:ident, $names:ident, $letter:literal) => {
        impl $name {
            /// The register of this number, if it is below 32.
            #[must_use]
            pub const fn new(number: u8) -> Option<Self> {
                if number < 32 {
                    Some(Self(number))
                } else {
                    None
                }
            }

            /// The register in the five bits of an instruction that start at `shift`.
            pub(crate) const fn at(bits: u32, shift: u32) -> Self {
                Self((bits >> shift & 31) as u8)
            }

            /// Its number, 0–31.
            #[must_use]
            pub const fn number(self) -> u8 {
                self.0
            }

            /// Its number as an array index; below 32.
            #[must_use]
            pub const fn index(self) -> usize {
                (self.0 & 31) as usize
            }

            /// The bit for this register in a register set.
            #[must_use]
            pub const fn mask(self) -> u32 {
                1 << (self.0 & 31)
            }

            /// Its name in the psABI calling convention.
            #[must_use]
            pub const fn abi_name(self) -> &'static str {
                $names[self.index()]
            }

            /// All 32 registers in order.
            pub fn all() -> impl Iterator<Item = Self> {
                (0..32).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    };
}

register!(XReg, X_NAMES, "x");
register!(FReg, F_NAMES, "f");

impl XReg {
    /// `x0`, always zero.
    pub const ZERO: Self = Self(0);
    /// `x1`, return address.
    pub const RA: Self = Self(1);
    /// `x2`, stack pointer.
    pub const SP: Self = Self(2);
    /// `x3`, global pointer.
    pub const GP: Self = Self(3);
    /// `x4`, thread pointer.
    pub const TP: Self = Self(4);
    /// `x5`, alternate link register.
    pub const T0: Self = Self(5);
    /// `x8`, frame pointer.
    pub const S0: Self = Self(8);
    /// `x10`, first argument and result.
    pub const A0: Self = Self(10);
    /// `x17`, system call number.
    pub const A7: Self = Self(17);

    /// Whether the calling-convention hints treat it as a link register: `x1` or `x5`.
    #[must_use]
    pub const fn is_link(self) -> bool {
        self.0 == 1 || self.0 == 5
    }
}
