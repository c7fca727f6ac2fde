//! Random operations and operands.

use crate::convert::{low_u8, low_u32, to_usize};
use hartline_isa::{
    AmoOp, CSR_FCSR, CSR_FFLAGS, CSR_FRM, Cmp, CsrOp, CsrSource, FBinOp, FCmp, FMinMax, FReg,
    Fence, Fma, Format, ImmediateOp, IntFormat, IntegerOp, MulDivOp, Operation, Ordering,
    RegisterOp, Rounding, ShiftOp, SignOp, UnaryOp, Width, XReg, ZbaOp, ZbbOp, ZbcOp, ZbsOp,
    ZicondOp,
};

use crate::exec::interp::softfloat::tests::operand;
use crate::exec::interp::tests::Random;

/// Middle of the buffer; never written by a random operation, like the other two.
pub(super) const BUFFER_POINTER: XReg = XReg::T0;

pub(super) fn x(number: u8) -> XReg {
    XReg::new(number).unwrap()
}

pub(super) fn input_pointer() -> XReg {
    x(6)
}

pub(super) fn output_pointer() -> XReg {
    x(7)
}

/// Registers that random operations write: all except `x0` and the pointers.
pub(super) fn general() -> impl Iterator<Item = XReg> {
    XReg::all().filter(|r| !matches!(r.number(), 0 | 5..=7))
}

/// Draws operands and operations.
pub(super) struct Generator {
    pub(super) random: Random,
    pub(super) code: Vec<Operation>,
}

impl Generator {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[to_usize(self.random.below(from.len() as u64))]
    }

    fn source(&mut self) -> XReg {
        x(low_u8(self.random.below(32)))
    }

    fn destination(&mut self) -> XReg {
        let all: Vec<XReg> = general().chain([XReg::ZERO]).collect();
        self.pick(&all)
    }

    fn float(&mut self) -> FReg {
        FReg::new(low_u8(self.random.below(32))).unwrap()
    }

    fn format(&mut self) -> Format {
        self.pick(&[Format::Single, Format::Double])
    }

    fn rounding(&mut self) -> Rounding {
        use Rounding::*;
        self.pick(&[Rne, Rtz, Rdn, Rup, Rmm, Dyn, Dyn, Dyn])
    }

    fn below(&mut self, limit: i64) -> i32 {
        low_u32(self.random.below(limit.cast_unsigned())).cast_signed()
    }

    /// `nop`.
    pub(super) fn no_operation(&mut self) {
        let (op, rd) = (ImmediateOp::Addi, XReg::ZERO);
        self.code.push(Operation::Immediate {
            op,
            rd,
            rs1: rd,
            immediate: 0,
        });
    }

    /// Appends a random operation, or a short sequence.
    pub(super) fn random_operation(&mut self) {
        let operation = match self.random.below(12) {
            0 => self.register(),
            1 => self.immediate(),
            2 => self.bit_manipulation(),
            3 | 4 => self.memory(),
            5 => return self.atomic(),
            6 => self.control(),
            7 => self.float_arithmetic(),
            8 => self.float_fused(),
            9 => self.float_bits(),
            10 => self.conversion(),
            _ => self.csr(),
        };
        self.code.push(operation);
    }

    fn register(&mut self) -> Operation {
        let op = match self.random.below(2) {
            0 => RegisterOp::I(self.pick(IntegerOp::ALL)),
            _ => RegisterOp::M(self.pick(MulDivOp::ALL)),
        };
        Operation::Register {
            op,
            rd: self.destination(),
            rs1: self.source(),
            rs2: self.source(),
        }
    }

    fn bit_manipulation(&mut self) -> Operation {
        let (rd, rs1, rs2) = (self.destination(), self.source(), self.source());
        let op = match self.random.below(6) {
            0 => RegisterOp::Zba(self.pick(ZbaOp::ALL)),
            1 => RegisterOp::Zbb(self.pick(ZbbOp::ALL)),
            2 => RegisterOp::Zbc(self.pick(ZbcOp::ALL)),
            3 => RegisterOp::Zbs(self.pick(ZbsOp::ALL)),
            4 => RegisterOp::Zicond(self.pick(ZicondOp::ALL)),
            _ => {
                return Operation::Unary {
                    op: self.pick(UnaryOp::ALL),
                    rd,
                    rs1,
                };
            }
        };
        Operation::Register { op, rd, rs1, rs2 }
    }

    fn immediate(&mut self) -> Operation {
        let (rd, rs1) = (self.destination(), self.source());
        if self.random.below(2) == 0 {
            let op = self.pick(ImmediateOp::ALL);
            return Operation::Immediate {
                op,
                rd,
                rs1,
                immediate: self.below(4096) - 2048,
            };
        }
        let op = self.pick(ShiftOp::ALL);
        let amount = low_u8(self.random.below(1 << op.amount_bits()));
        Operation::Shift {
            op,
            rd,
            rs1,
            amount,
        }
    }

    fn memory(&mut self) -> Operation {
        let (rs1, offset) = (BUFFER_POINTER, self.below(4080) - 2048);
        let width = self.pick(&[Width::Byte, Width::Half, Width::Word, Width::Double]);
        match self.random.below(4) {
            0 => {
                let signed = width == Width::Double || self.random.below(2) == 0;
                Operation::Load {
                    width,
                    signed,
                    rd: self.destination(),
                    rs1,
                    offset,
                }
            }
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

    /// Appends an AMO, or a pair of LR and SC, on an aligned address.
    fn atomic(&mut self) {
        use AmoOp::*;
        let width = self.pick(&[Width::Word, Width::Double]);
        let order = Ordering {
            acquire: self.random.below(2) == 0,
            release: self.random.below(2) == 0,
        };
        let (rs1, immediate) = (x(3), (self.below(510) - 256) * 8);
        let op = ImmediateOp::Addi;
        // A preceding branch may skip the first of the next two operations.
        self.no_operation();
        self.code.push(Operation::Immediate {
            op,
            rd: rs1,
            rs1: BUFFER_POINTER,
            immediate,
        });
        let (rd, rs2) = (self.destination(), self.source());
        if self.random.below(2) == 0 {
            let op = self.pick(&[Swap, Add, Xor, And, Or, Min, Max, MinU, MaxU]);
            self.code.push(Operation::Amo {
                op,
                width,
                order,
                rd,
                rs1,
                rs2,
            });
            return;
        }
        if self.random.below(4) != 0 {
            self.code.push(Operation::LoadReserved {
                width,
                order,
                rd: x(4),
                rs1,
            });
        }
        self.code.push(Operation::StoreConditional {
            width,
            order,
            rd,
            rs1,
            rs2,
        });
    }

    /// Control flow within the block, and operations that depend on the pc.
    fn control(&mut self) -> Operation {
        let (rd, immediate) = (
            self.destination(),
            low_u32(self.random.next()).cast_signed() & !0xfff,
        );
        let fence = Fence {
            predecessor: 15,
            successor: 15,
            tso: false,
        };
        match self.random.below(5) {
            0 => Operation::Lui { rd, immediate },
            1 => Operation::Auipc { rd, immediate },
            2 => Operation::Jal { rd, offset: 4 },
            3 => Operation::Fence(fence),
            _ => Operation::Branch {
                condition: self.pick(&[Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Ge, Cmp::LtU, Cmp::GeU]),
                rs1: self.source(),
                rs2: self.source(),
                offset: 8,
            },
        }
    }

    fn float_arithmetic(&mut self) -> Operation {
        let (format, rounding) = (self.format(), self.rounding());
        let (rd, rs1, rs2) = (self.float(), self.float(), self.float());
        if self.random.below(5) == 0 {
            return Operation::FloatSqrt {
                format,
                rounding,
                rd,
                rs1,
            };
        }
        let op = self.pick(&[FBinOp::Add, FBinOp::Sub, FBinOp::Mul, FBinOp::Div]);
        Operation::FloatBinary {
            op,
            format,
            rounding,
            rd,
            rs1,
            rs2,
        }
    }

    fn float_fused(&mut self) -> Operation {
        let fma = Fma {
            negate_product: self.random.below(2) == 0,
            negate_addend: self.random.below(2) == 0,
        };
        Operation::FloatFma {
            fma,
            format: self.format(),
            rounding: self.rounding(),
            rd: self.float(),
            rs1: self.float(),
            rs2: self.float(),
            rs3: self.float(),
        }
    }

    fn float_bits(&mut self) -> Operation {
        let (format, x_rd, x_rs1) = (self.format(), self.destination(), self.source());
        let (rd, rs1, rs2) = (self.float(), self.float(), self.float());
        match self.random.below(6) {
            0 => {
                let op = self.pick(&[SignOp::Copy, SignOp::Negate, SignOp::Xor]);
                Operation::FloatSign {
                    op,
                    format,
                    rd,
                    rs1,
                    rs2,
                }
            }
            1 => {
                let op = self.pick(&[FMinMax::Min, FMinMax::Max]);
                Operation::FloatMinMax {
                    op,
                    format,
                    rd,
                    rs1,
                    rs2,
                }
            }
            2 => {
                let op = self.pick(&[FCmp::Eq, FCmp::Lt, FCmp::Le]);
                Operation::FloatCompare {
                    op,
                    format,
                    rd: x_rd,
                    rs1,
                    rs2,
                }
            }
            3 => Operation::FloatClass {
                format,
                rd: x_rd,
                rs1,
            },
            4 => Operation::FloatToBits {
                format,
                rd: x_rd,
                rs1,
            },
            _ => Operation::BitsToFloat {
                format,
                rd,
                rs1: x_rs1,
            },
        }
    }

    fn conversion(&mut self) -> Operation {
        use IntFormat::*;
        let (format, rounding) = (self.format(), self.rounding());
        let integer = self.pick(&[I32, U32, I64, U64]);
        let (rd, rs1) = (self.float(), self.float());
        match self.random.below(3) {
            0 => Operation::FloatConvert {
                to: format,
                rounding,
                rd,
                rs1,
            },
            1 => Operation::FloatToInt {
                to: integer,
                format,
                rounding,
                rd: self.destination(),
                rs1,
            },
            _ => Operation::IntToFloat {
                from: integer,
                format,
                rounding,
                rd,
                rs1: self.source(),
            },
        }
    }

    /// Reads of all three CSRs, and writes that leave no reserved value in `frm`.
    fn csr(&mut self) -> Operation {
        let (rd, op) = (
            self.destination(),
            self.pick(&[CsrOp::Write, CsrOp::Set, CsrOp::Clear]),
        );
        let immediate = |value| CsrSource::Immediate(value);
        let (op, csr, source) = match self.random.below(4) {
            0 => (
                CsrOp::Set,
                self.pick(&[CSR_FCSR, CSR_FRM]),
                CsrSource::Register(XReg::ZERO),
            ),
            1 => (op, CSR_FFLAGS, CsrSource::Register(self.source())),
            2 => (op, CSR_FFLAGS, immediate(low_u8(self.random.below(32)))),
            _ => (
                CsrOp::Write,
                CSR_FRM,
                immediate(low_u8(self.random.below(5))),
            ),
        };
        Operation::Csr {
            op,
            rd,
            csr,
            source,
        }
    }

    /// A register value: integer, double or (mostly boxed) single.
    pub(super) fn value(&mut self) -> u64 {
        match self.random.below(6) {
            0 => self.random.next(),
            1 => self.random.next() >> self.random.below(64),
            2 => self.pick(&[
                0,
                1,
                u64::MAX,
                1 << 63,
                i64::MAX.cast_unsigned(),
                1 << 31,
                i64::from(i32::MIN).cast_unsigned(),
            ]),
            3 | 4 => operand(&mut self.random, Format::Double),
            _ => operand(&mut self.random, Format::Single),
        }
    }

    /// An image of a floating-point register.
    pub(super) fn float_value(&mut self) -> u64 {
        match self.random.below(20) {
            0 => self.random.next(),
            1..10 => operand(&mut self.random, Format::Double),
            _ => operand(&mut self.random, Format::Single) | 0xffff_ffff_0000_0000,
        }
    }
}
