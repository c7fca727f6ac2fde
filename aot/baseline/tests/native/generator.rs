//! Random operations: each kind of instruction with random registers.

use hartline_isa::{
    AmoOp, CSR_FCSR, CSR_FFLAGS, CSR_FRM, Cmp, CsrOp, CsrSource, FBinOp, FCmp, FMinMax, FReg,
    Fence, Fma, Format, ImmediateOp, IntFormat, IntegerOp, MulDivOp, Operation, Ordering,
    RegisterOp, Rounding, ShiftOp, SignOp, UnaryOp, Width, XReg, ZbaOp, ZbbOp, ZbcOp, ZbsOp,
    ZicondOp,
};

use crate::input::Random;

/// Registers that point to the middle of the data and are never written: one is in a host
/// register.
pub const POINTERS: [u8; 2] = [5, 12];
/// As these, aligned to 8 bytes.
pub const ALIGNED: [u8; 2] = [6, 13];
/// Counts the rounds of a loop; never written by random operations either.
pub const COUNTER: u8 = 4;

pub fn x(number: u8) -> XReg {
    XReg::new(number).expect("below 32")
}

pub fn f(number: u8) -> FReg {
    FReg::new(number).expect("below 32")
}

/// Draws operations.
pub struct Generator<'a> {
    pub random: &'a mut Random,
}

/// All register-register operations.
pub fn register_operations() -> Vec<RegisterOp> {
    let mut all = Vec::new();
    all.extend(IntegerOp::ALL.iter().map(|&op| RegisterOp::I(op)));
    all.extend(MulDivOp::ALL.iter().map(|&op| RegisterOp::M(op)));
    all.extend(ZbaOp::ALL.iter().map(|&op| RegisterOp::Zba(op)));
    all.extend(ZbbOp::ALL.iter().map(|&op| RegisterOp::Zbb(op)));
    all.extend(ZbcOp::ALL.iter().map(|&op| RegisterOp::Zbc(op)));
    all.extend(ZbsOp::ALL.iter().map(|&op| RegisterOp::Zbs(op)));
    all.extend(ZicondOp::ALL.iter().map(|&op| RegisterOp::Zicond(op)));
    all
}

impl Generator<'_> {
    pub fn source(&mut self) -> XReg {
        x(self.random.below(32) as u8)
    }

    /// Any register but the pointers; often one of those that instructions use implicitly.
    pub fn destination(&mut self) -> XReg {
        loop {
            let number = match self.random.below(4) {
                0 => self.random.pick(&[10, 15, 1]),
                _ => self.random.below(32) as u8,
            };
            let is_pointer = POINTERS.contains(&number) || ALIGNED.contains(&number);
            if !is_pointer && number != COUNTER {
                return x(number);
            }
        }
    }

    pub fn float(&mut self) -> FReg {
        f(self.random.below(32) as u8)
    }

    fn format(&mut self) -> Format {
        self.random.pick(&[Format::Single, Format::Double])
    }

    fn rounding(&mut self) -> Rounding {
        self.random.pick(&[
            Rounding::Dyn,
            Rounding::Dyn,
            Rounding::Dyn,
            Rounding::Dyn,
            Rounding::Rne,
            Rounding::Rtz,
            Rounding::Rdn,
            Rounding::Rup,
            Rounding::Rmm,
        ])
    }

    /// One of all register-register operations.
    pub fn register(&mut self, op: RegisterOp) -> Operation {
        Operation::Register {
            op,
            rd: self.destination(),
            rs1: self.source(),
            rs2: self.source(),
        }
    }

    pub fn unary(&mut self, op: UnaryOp) -> Operation {
        let (rd, rs1) = (self.destination(), self.source());
        Operation::Unary { op, rd, rs1 }
    }

    pub fn immediate(&mut self, op: ImmediateOp) -> Operation {
        Operation::Immediate {
            op,
            rd: self.destination(),
            rs1: self.source(),
            immediate: self.offset(12),
        }
    }

    pub fn shift(&mut self, op: ShiftOp) -> Operation {
        Operation::Shift {
            op,
            rd: self.destination(),
            rs1: self.source(),
            amount: self.random.below(1 << op.amount_bits()) as u8,
        }
    }

    /// A signed number of some bits, often 0.
    fn offset(&mut self, bits: u32) -> i32 {
        match self.random.below(4) {
            0 => 0,
            _ => (self.random.next() as i32) >> (32 - bits),
        }
    }

    pub fn upper(&mut self) -> Operation {
        let (rd, immediate) = (self.destination(), self.random.next() as i32 & !0xfff);
        match self.random.below(2) {
            0 => Operation::Lui { rd, immediate },
            _ => Operation::Auipc { rd, immediate },
        }
    }

    /// A load or store.
    pub fn memory(&mut self) -> Operation {
        let (rs1, offset) = (x(self.random.pick(&POINTERS)), self.offset(12));
        let widths = [Width::Byte, Width::Half, Width::Word, Width::Double];
        let width = self.random.pick(&widths);
        match self.random.below(4) {
            0 => Operation::Load {
                width,
                signed: width == Width::Double || self.random.below(2) == 0,
                rd: self.destination(),
                rs1,
                offset,
            },
            1 => Operation::Store {
                width,
                rs1,
                rs2: self.source(),
                offset,
            },
            2 => Operation::LoadFloat {
                format: self.format(),
                rd: self.float(),
                rs1,
                offset,
            },
            _ => Operation::StoreFloat {
                format: self.format(),
                rs1,
                rs2: self.float(),
                offset,
            },
        }
    }

    /// An instruction of the A extension, or a fence.
    pub fn atomic(&mut self) -> Operation {
        use AmoOp::*;
        let width = self.random.pick(&[Width::Word, Width::Double]);
        let order = Ordering {
            acquire: self.random.below(2) == 0,
            release: self.random.below(2) == 0,
        };
        let (rd, rs2) = (self.destination(), self.source());
        let rs1 = x(self.random.pick(&ALIGNED));
        match self.random.below(8) {
            0 => {
                let sets = self.random.next();
                Operation::Fence(Fence {
                    predecessor: sets as u8 & 15,
                    successor: (sets >> 4) as u8 & 15,
                    tso: sets >> 8 & 3 == 0,
                })
            }
            1 | 2 => Operation::LoadReserved {
                width,
                order,
                rd,
                rs1,
            },
            3 | 4 => Operation::StoreConditional {
                width,
                order,
                rd,
                rs1,
                rs2,
            },
            _ => Operation::Amo {
                op: self
                    .random
                    .pick(&[Swap, Add, Xor, And, Or, Min, Max, MinU, MaxU]),
                width,
                order,
                rd,
                rs1,
                rs2,
            },
        }
    }

    /// An arithmetic instruction of the F and D extensions.
    pub fn float_arithmetic(&mut self) -> Operation {
        let (format, rounding) = (self.format(), self.rounding());
        let (rd, rs1, rs2, rs3) = (self.float(), self.float(), self.float(), self.float());
        match self.random.below(6) {
            0 => Operation::FloatSqrt {
                format,
                rounding,
                rd,
                rs1,
            },
            1 => Operation::FloatFma {
                fma: Fma {
                    negate_product: self.random.below(2) == 0,
                    negate_addend: self.random.below(2) == 0,
                },
                format,
                rounding,
                rd,
                rs1,
                rs2,
                rs3,
            },
            2 => Operation::FloatMinMax {
                op: self.random.pick(&[FMinMax::Min, FMinMax::Max]),
                format,
                rd,
                rs1,
                rs2,
            },
            _ => Operation::FloatBinary {
                op: self
                    .random
                    .pick(&[FBinOp::Add, FBinOp::Sub, FBinOp::Mul, FBinOp::Div]),
                format,
                rounding,
                rd,
                rs1,
                rs2: if self.random.below(4) == 0 { rd } else { rs2 },
            },
        }
    }

    /// Another instruction of the F and D extensions.
    pub fn float_other(&mut self) -> Operation {
        use IntFormat::*;
        let (format, rounding) = (self.format(), self.rounding());
        let (rd, rs1, rs2) = (self.float(), self.float(), self.float());
        let integer = self.random.pick(&[I32, U32, I64, U64]);
        let (x_rd, x_rs1) = (self.destination(), self.source());
        match self.random.below(8) {
            0 => Operation::FloatSign {
                op: self
                    .random
                    .pick(&[SignOp::Copy, SignOp::Negate, SignOp::Xor]),
                format,
                rd,
                rs1,
                rs2: if self.random.below(2) == 0 { rs1 } else { rs2 },
            },
            1 => Operation::FloatCompare {
                op: self.random.pick(&[FCmp::Eq, FCmp::Lt, FCmp::Le]),
                format,
                rd: x_rd,
                rs1,
                rs2,
            },
            2 => Operation::FloatClass {
                format,
                rd: x_rd,
                rs1,
            },
            3 => Operation::FloatToBits {
                format,
                rd: x_rd,
                rs1,
            },
            4 => Operation::BitsToFloat {
                format,
                rd,
                rs1: x_rs1,
            },
            5 => Operation::FloatConvert {
                to: format,
                rounding,
                rd,
                rs1,
            },
            6 => Operation::FloatToInt {
                to: integer,
                format,
                rounding,
                rd: x_rd,
                rs1,
            },
            _ => Operation::IntToFloat {
                from: integer,
                format,
                rounding,
                rd,
                rs1: x_rs1,
            },
        }
    }

    /// An access to `fcsr` or a part of it. `frm` stays a mode that SSE has.
    pub fn csr(&mut self) -> Operation {
        let rd = self.destination();
        let ops = [CsrOp::Write, CsrOp::Set, CsrOp::Clear];
        let op = self.random.pick(&ops);
        let flags = self.random.below(32) as u8;
        let (op, csr, source) = match self.random.below(5) {
            0 => (CsrOp::Set, CSR_FCSR, CsrSource::Register(XReg::ZERO)),
            1 => (op, CSR_FFLAGS, CsrSource::Register(self.source())),
            2 => (op, CSR_FFLAGS, CsrSource::Immediate(flags)),
            3 => (CsrOp::Set, CSR_FFLAGS, CsrSource::Register(XReg::ZERO)),
            _ => (CsrOp::Write, CSR_FRM, CsrSource::Immediate(flags & 3)),
        };
        Operation::Csr {
            op,
            rd,
            csr,
            source,
        }
    }

    /// Any operation that does not jump.
    pub fn any(&mut self) -> Operation {
        match self.random.below(12) {
            0 | 1 => {
                let op = self.random.pick(&register_operations());
                self.register(op)
            }
            2 | 3 => {
                let op = self.random.pick(ImmediateOp::ALL);
                self.immediate(op)
            }
            4 => {
                let op = self.random.pick(ShiftOp::ALL);
                self.shift(op)
            }
            5 => {
                let op = self.random.pick(UnaryOp::ALL);
                self.unary(op)
            }
            6 => self.upper(),
            7 => self.memory(),
            8 => self.atomic(),
            9 => self.float_arithmetic(),
            10 => self.float_other(),
            _ => match self.random.below(4) {
                0 => self.csr(),
                _ => self.float_arithmetic(),
            },
        }
    }

    /// Returns a condition of a branch.
    pub fn condition(&mut self) -> Cmp {
        self.random
            .pick(&[Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::LtU, Cmp::Ge, Cmp::GeU])
    }
}
