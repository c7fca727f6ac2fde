//! Operations of the register-register and register-immediate formats, with
//! their mnemonics and encodings in one table per extension.

/// Major opcodes, bits 6..0 of a 32-bit instruction.
pub(crate) mod major {
    pub const LOAD: u32 = 0x03;
    pub const LOAD_FP: u32 = 0x07;
    pub const MISC_MEM: u32 = 0x0f;
    pub const OP_IMM: u32 = 0x13;
    pub const AUIPC: u32 = 0x17;
    pub const OP_IMM_32: u32 = 0x1b;
    pub const STORE: u32 = 0x23;
    pub const STORE_FP: u32 = 0x27;
    pub const AMO: u32 = 0x2f;
    pub const OP: u32 = 0x33;
    pub const LUI: u32 = 0x37;
    pub const OP_32: u32 = 0x3b;
    pub const MADD: u32 = 0x43;
    pub const MSUB: u32 = 0x47;
    pub const NMSUB: u32 = 0x4b;
    pub const NMADD: u32 = 0x4f;
    pub const OP_FP: u32 = 0x53;
    pub const BRANCH: u32 = 0x63;
    pub const JALR: u32 = 0x67;
    pub const JAL: u32 = 0x6f;
    pub const SYSTEM: u32 = 0x73;
}

/// Defines an enumeration of operations that three fields distinguish.
macro_rules! operations {
    ($(#[$meta:meta])* $name:ident {
        $($variant:ident = $mnemonic:literal ($opcode:ident, $a:literal, $b:literal),)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $mnemonic, "`.")] $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The mnemonic in lower case.
            #[must_use]
            pub const fn mnemonic(self) -> &'static str {
                match self { $(Self::$variant => $mnemonic,)* }
            }

            pub(crate) const fn from_fields(opcode: u32, a: u32, b: u32) -> Option<Self> {
                match (opcode, a, b) {
                    $((major::$opcode, $a, $b) => Some(Self::$variant),)*
                    _ => None,
                }
            }

            pub(crate) const fn fields(self) -> (u32, u32, u32) {
                match self { $(Self::$variant => (major::$opcode, $a, $b),)* }
            }
        }
    };
}

operations! {
    /// Register-register operations of RV64I: (major opcode, funct3, funct7).
    IntegerOp {
        Add = "add" (OP, 0, 0x00),
        Sub = "sub" (OP, 0, 0x20),
        Sll = "sll" (OP, 1, 0x00),
        Slt = "slt" (OP, 2, 0x00),
        Sltu = "sltu" (OP, 3, 0x00),
        Xor = "xor" (OP, 4, 0x00),
        Srl = "srl" (OP, 5, 0x00),
        Sra = "sra" (OP, 5, 0x20),
        Or = "or" (OP, 6, 0x00),
        And = "and" (OP, 7, 0x00),
        Addw = "addw" (OP_32, 0, 0x00),
        Subw = "subw" (OP_32, 0, 0x20),
        Sllw = "sllw" (OP_32, 1, 0x00),
        Srlw = "srlw" (OP_32, 5, 0x00),
        Sraw = "sraw" (OP_32, 5, 0x20),
    }
}

operations! {
    /// M extension.
    MulDivOp {
        Mul = "mul" (OP, 0, 0x01),
        Mulh = "mulh" (OP, 1, 0x01),
        Mulhsu = "mulhsu" (OP, 2, 0x01),
        Mulhu = "mulhu" (OP, 3, 0x01),
        Div = "div" (OP, 4, 0x01),
        Divu = "divu" (OP, 5, 0x01),
        Rem = "rem" (OP, 6, 0x01),
        Remu = "remu" (OP, 7, 0x01),
        Mulw = "mulw" (OP_32, 0, 0x01),
        Divw = "divw" (OP_32, 4, 0x01),
        Divuw = "divuw" (OP_32, 5, 0x01),
        Remw = "remw" (OP_32, 6, 0x01),
        Remuw = "remuw" (OP_32, 7, 0x01),
    }
}

operations! {
    /// Zba, address generation, except `slli.uw`.
    ZbaOp {
        AddUw = "add.uw" (OP_32, 0, 0x04),
        Sh1add = "sh1add" (OP, 2, 0x10),
        Sh2add = "sh2add" (OP, 4, 0x10),
        Sh3add = "sh3add" (OP, 6, 0x10),
        Sh1addUw = "sh1add.uw" (OP_32, 2, 0x10),
        Sh2addUw = "sh2add.uw" (OP_32, 4, 0x10),
        Sh3addUw = "sh3add.uw" (OP_32, 6, 0x10),
    }
}

operations! {
    /// Register-register operations of Zbb.
    ZbbOp {
        Andn = "andn" (OP, 7, 0x20),
        Orn = "orn" (OP, 6, 0x20),
        Xnor = "xnor" (OP, 4, 0x20),
        Min = "min" (OP, 4, 0x05),
        Minu = "minu" (OP, 5, 0x05),
        Max = "max" (OP, 6, 0x05),
        Maxu = "maxu" (OP, 7, 0x05),
        Rol = "rol" (OP, 1, 0x30),
        Ror = "ror" (OP, 5, 0x30),
        Rolw = "rolw" (OP_32, 1, 0x30),
        Rorw = "rorw" (OP_32, 5, 0x30),
    }
}

operations! {
    /// Zbc, carry-less multiplication.
    ZbcOp {
        Clmul = "clmul" (OP, 1, 0x05),
        Clmulr = "clmulr" (OP, 2, 0x05),
        Clmulh = "clmulh" (OP, 3, 0x05),
    }
}

operations! {
    /// Register-register operations of Zbs.
    ZbsOp {
        Bclr = "bclr" (OP, 1, 0x24),
        Bext = "bext" (OP, 5, 0x24),
        Binv = "binv" (OP, 1, 0x34),
        Bset = "bset" (OP, 1, 0x14),
    }
}

operations! {
    /// Zicond.
    ZicondOp {
        CzeroEqz = "czero.eqz" (OP, 5, 0x07),
        CzeroNez = "czero.nez" (OP, 7, 0x07),
    }
}

/// A register-register operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// RV64I.
    I(IntegerOp),
    /// M.
    M(MulDivOp),
    /// Zba.
    Zba(ZbaOp),
    /// Zbb.
    Zbb(ZbbOp),
    /// Zbc.
    Zbc(ZbcOp),
    /// Zbs.
    Zbs(ZbsOp),
    /// Zicond.
    Zicond(ZicondOp),
}

impl RegisterOp {
    /// The mnemonic in lower case.
    #[must_use]
    pub const fn mnemonic(self) -> &'static str {
        match self {
            Self::I(op) => op.mnemonic(),
            Self::M(op) => op.mnemonic(),
            Self::Zba(op) => op.mnemonic(),
            Self::Zbb(op) => op.mnemonic(),
            Self::Zbc(op) => op.mnemonic(),
            Self::Zbs(op) => op.mnemonic(),
            Self::Zicond(op) => op.mnemonic(),
        }
    }

    pub(crate) fn from_fields(opcode: u32, funct3: u32, funct7: u32) -> Option<Self> {
        let (o, a, b) = (opcode, funct3, funct7);
        (IntegerOp::from_fields(o, a, b).map(Self::I))
            .or_else(|| MulDivOp::from_fields(o, a, b).map(Self::M))
            .or_else(|| ZbaOp::from_fields(o, a, b).map(Self::Zba))
            .or_else(|| ZbbOp::from_fields(o, a, b).map(Self::Zbb))
            .or_else(|| ZbcOp::from_fields(o, a, b).map(Self::Zbc))
            .or_else(|| ZbsOp::from_fields(o, a, b).map(Self::Zbs))
            .or_else(|| ZicondOp::from_fields(o, a, b).map(Self::Zicond))
    }

    pub(crate) const fn fields(self) -> (u32, u32, u32) {
        match self {
            Self::I(op) => op.fields(),
            Self::M(op) => op.fields(),
            Self::Zba(op) => op.fields(),
            Self::Zbb(op) => op.fields(),
            Self::Zbc(op) => op.fields(),
            Self::Zbs(op) => op.fields(),
            Self::Zicond(op) => op.fields(),
        }
    }
}

operations! {
    /// Operations with a 12-bit signed immediate: (major opcode, funct3, 0).
    ImmediateOp {
        Addi = "addi" (OP_IMM, 0, 0),
        Slti = "slti" (OP_IMM, 2, 0),
        Sltiu = "sltiu" (OP_IMM, 3, 0),
        Xori = "xori" (OP_IMM, 4, 0),
        Ori = "ori" (OP_IMM, 6, 0),
        Andi = "andi" (OP_IMM, 7, 0),
        Addiw = "addiw" (OP_IMM_32, 0, 0),
    }
}

operations! {
    /// Operations with a shift amount or bit number: (major opcode, funct3, bits 31..25). Bit 25 is
    /// clear where it is part of a 6-bit amount.
    ShiftOp {
        Slli = "slli" (OP_IMM, 1, 0x00),
        Srli = "srli" (OP_IMM, 5, 0x00),
        Srai = "srai" (OP_IMM, 5, 0x20),
        Slliw = "slliw" (OP_IMM_32, 1, 0x00),
        Srliw = "srliw" (OP_IMM_32, 5, 0x00),
        Sraiw = "sraiw" (OP_IMM_32, 5, 0x20),
        SlliUw = "slli.uw" (OP_IMM_32, 1, 0x04),
        Rori = "rori" (OP_IMM, 5, 0x30),
        Roriw = "roriw" (OP_IMM_32, 5, 0x30),
        Bclri = "bclri" (OP_IMM, 1, 0x24),
        Bexti = "bexti" (OP_IMM, 5, 0x24),
        Binvi = "binvi" (OP_IMM, 1, 0x34),
        Bseti = "bseti" (OP_IMM, 1, 0x14),
    }
}

impl ShiftOp {
    /// Number of bits of the amount: 5 for operations on words, otherwise 6.
    #[must_use]
    pub const fn amount_bits(self) -> u32 {
        match self {
            Self::Slliw | Self::Srliw | Self::Sraiw | Self::Roriw => 5,
            _ => 6,
        }
    }
}

operations! {
    /// One-operand operations of Zbb: (major opcode, funct3, bits 31..20).
    UnaryOp {
        Clz = "clz" (OP_IMM, 1, 0x600),
        Ctz = "ctz" (OP_IMM, 1, 0x601),
        Cpop = "cpop" (OP_IMM, 1, 0x602),
        SextB = "sext.b" (OP_IMM, 1, 0x604),
        SextH = "sext.h" (OP_IMM, 1, 0x605),
        Clzw = "clzw" (OP_IMM_32, 1, 0x600),
        Ctzw = "ctzw" (OP_IMM_32, 1, 0x601),
        Cpopw = "cpopw" (OP_IMM_32, 1, 0x602),
        ZextH = "zext.h" (OP_32, 4, 0x080),
        Rev8 = "rev8" (OP_IMM, 5, 0x6b8),
        OrcB = "orc.b" (OP_IMM, 5, 0x287),
    }
}
