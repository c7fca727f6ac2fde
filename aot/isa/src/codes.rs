//! Codes of the fields that select an operation, with their names in mnemonics. The decoder, the
//! encoder and the disassembler share these tables.

use crate::opcode::major;
use crate::{
    AmoOp, Cmp, CsrOp, FBinOp, FCmp, FMinMax, Fma, Format, IntFormat, Rounding, SignOp, Width,
};

/// Gives an enumeration the codes and names of its values.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $code:literal $text:literal,)* }) => {
        impl $name {
            /// All of them, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            $(#[$meta])*
            pub(crate) const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The code that [`from_code`](Self::from_code) reads.
            pub(crate) const fn code(self) -> u32 {
                match self { $(Self::$variant => $code,)* }
            }

            /// The name in mnemonics or operands.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

codes! {
    /// From funct3 of a branch.
    Cmp {
        Eq = 0 "beq",
        Ne = 1 "bne",
        Lt = 4 "blt",
        Ge = 5 "bge",
        LtU = 6 "bltu",
        GeU = 7 "bgeu",
    }
}

codes! {
    /// From the low bits of funct3 of a load, store or atomic instruction.
    Width {
        Byte = 0 "b",
        Half = 1 "h",
        Word = 2 "w",
        Double = 3 "d",
    }
}

codes! {
    /// From the fmt field of a floating-point instruction; the other formats belong to unsupported
    /// extensions.
    Format {
        Single = 0 "s",
        Double = 1 "d",
    }
}

codes! {
    /// From the rm field; 5 and 6 are reserved.
    Rounding {
        Rne = 0 "rne",
        Rtz = 1 "rtz",
        Rdn = 2 "rdn",
        Rup = 3 "rup",
        Rmm = 4 "rmm",
        Dyn = 7 "dyn",
    }
}

codes! {
    /// From funct5 of an AMO.
    AmoOp {
        Add = 0x00 "amoadd",
        Swap = 0x01 "amoswap",
        Xor = 0x04 "amoxor",
        Or = 0x08 "amoor",
        And = 0x0c "amoand",
        Min = 0x10 "amomin",
        Max = 0x14 "amomax",
        MinU = 0x18 "amominu",
        MaxU = 0x1c "amomaxu",
    }
}

codes! {
    /// From the low bits of funct3 of a CSR instruction.
    CsrOp {
        Write = 1 "csrrw",
        Set = 2 "csrrs",
        Clear = 3 "csrrc",
    }
}

codes! {
    /// From funct5 of an OP-FP instruction.
    FBinOp {
        Add = 0 "fadd",
        Sub = 1 "fsub",
        Mul = 2 "fmul",
        Div = 3 "fdiv",
    }
}

codes! {
    /// From funct3 of an instruction of [`funct5::SIGN`].
    SignOp {
        Copy = 0 "fsgnj",
        Negate = 1 "fsgnjn",
        Xor = 2 "fsgnjx",
    }
}

codes! {
    /// From funct3 of an instruction of [`funct5::MIN_MAX`].
    FMinMax {
        Min = 0 "fmin",
        Max = 1 "fmax",
    }
}

codes! {
    /// From funct3 of an instruction of [`funct5::COMPARE`].
    FCmp {
        Le = 0 "fle",
        Lt = 1 "flt",
        Eq = 2 "feq",
    }
}

codes! {
    /// From the rs2 field of a conversion.
    IntFormat {
        I32 = 0 "w",
        U32 = 1 "wu",
        I64 = 2 "l",
        U64 = 3 "lu",
    }
}

impl Format {
    /// From funct3 of a floating-point load or store.
    pub(crate) const fn from_memory_code(code: u32) -> Option<Self> {
        match code {
            2 | 3 => Self::from_code(code - 2),
            _ => None,
        }
    }

    /// The code that [`from_memory_code`](Self::from_memory_code) reads.
    pub(crate) const fn memory_code(self) -> u32 {
        self.code() + 2
    }

    /// The name of the width in mnemonics of loads, stores and moves of bits.
    pub(crate) const fn memory_name(self) -> &'static str {
        match self {
            Self::Single => "w",
            Self::Double => "d",
        }
    }
}

/// The fused multiply-add instructions: major opcode, negated operands, mnemonic.
const FUSED: [(u32, Fma, &str); 4] = [
    (major::MADD, Fma::negating(false, false), "fmadd"),
    (major::MSUB, Fma::negating(false, true), "fmsub"),
    (major::NMSUB, Fma::negating(true, false), "fnmsub"),
    (major::NMADD, Fma::negating(true, true), "fnmadd"),
];

impl Fma {
    const fn negating(negate_product: bool, negate_addend: bool) -> Self {
        Self {
            negate_product,
            negate_addend,
        }
    }

    /// From the major opcode.
    pub(crate) fn from_opcode(opcode: u32) -> Option<Self> {
        let found = FUSED.iter().find(|fused| fused.0 == opcode);
        found.map(|fused| fused.1)
    }

    fn fused(self) -> (u32, Self, &'static str) {
        FUSED[usize::from(self.negate_product) << 1 | usize::from(self.negate_addend)]
    }

    /// The major opcode.
    pub(crate) fn opcode(self) -> u32 {
        self.fused().0
    }

    /// The mnemonic without the format.
    pub(crate) fn name(self) -> &'static str {
        self.fused().2
    }
}

/// Bits 31..27 of AMO and OP-FP instructions that [`AmoOp`] and [`FBinOp`] do not cover.
pub(crate) mod funct5 {
    pub const LOAD_RESERVED: u32 = 0x02;
    pub const STORE_CONDITIONAL: u32 = 0x03;

    pub const SIGN: u32 = 0x04;
    pub const MIN_MAX: u32 = 0x05;
    pub const CONVERT: u32 = 0x08;
    pub const SQRT: u32 = 0x0b;
    pub const COMPARE: u32 = 0x14;
    pub const TO_INT: u32 = 0x18;
    pub const FROM_INT: u32 = 0x1a;
    pub const TO_BITS_OR_CLASS: u32 = 0x1c;
    pub const FROM_BITS: u32 = 0x1e;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_operations_are_where_they_are_looked_for() {
        for (opcode, fma, name) in FUSED {
            assert_eq!((fma.opcode(), fma.name()), (opcode, name));
            assert_eq!(Fma::from_opcode(opcode), Some(fma));
        }
        assert_eq!(Fma::from_opcode(major::OP_FP), None);
    }
}
