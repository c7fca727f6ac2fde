//! Accrued exception flags: the sticky flags of MXCSR, and the flags in the `Hart` structure that
//! the interpreter raised.

use hartline_abi::hart::offset;
use hartline_isa::{CSR_FFLAGS, CsrOp, XReg};

use super::Emitter;
use super::values::{Int, Value};
use crate::encoder::{Alu, Condition, Gpr, Mem, Shift, Size, Unary};

/// Sticky flags of MXCSR: IE DE ZE OE UE PE from bit 0 on.
const STICKY: i32 = 0x3f;
/// Flags of `fflags`: NX UF OF DZ NV from bit 0 on.
const FLAGS: i32 = 31;
/// Bits of MXCSR, and the bits of `fflags` with the same meaning.
const PAIRS: [(u8, u8); 5] = [(0, 4), (2, 3), (3, 2), (4, 1), (5, 0)];

const MXCSR: Mem = Mem::Gs(offset::MXCSR as u32);
const FFLAGS: Mem = Mem::Gs(offset::FFLAGS as u32);

impl Emitter<'_> {
    /// Reads and modifies `fflags`.
    pub(super) fn access_flags(
        &mut self,
        csr: u16,
        op: CsrOp,
        write: Option<Int>,
        destination: XReg,
    ) {
        if csr != CSR_FFLAGS {
            return self.give_up();
        }
        let (old, scratch) = (self.acquire(), self.acquire());
        self.read_flags(old, scratch);
        if let Some(operand) = write {
            self.values.note_use(operand);
            self.compute(operand, scratch);
            match op {
                CsrOp::Write => {}
                CsrOp::Set => self.asm.alu(Alu::Or, Size::Word, scratch, old),
                CsrOp::Clear => {
                    self.asm.unary(Unary::Not, Size::Word, scratch);
                    self.asm.alu(Alu::And, Size::Word, scratch, old);
                }
            }
            self.write_flags(old, scratch);
        }
        self.release(scratch);
        let old = self.values.add(Value::Temporary(old));
        self.write_integer(destination, old);
    }

    fn read_flags(&mut self, flags: Gpr, scratch: Gpr) {
        self.asm.stmxcsr(MXCSR);
        self.asm.mov(Size::Word, flags, FFLAGS);
        self.asm.alu_imm(Alu::And, Size::Word, flags, FLAGS);
        for (from, to) in PAIRS {
            self.asm.mov(Size::Word, scratch, MXCSR);
            self.asm.alu_imm(Alu::And, Size::Word, scratch, 1 << from);
            match from > to {
                true => self
                    .asm
                    .shift_imm(Shift::Shr, Size::Word, scratch, from - to),
                false => self
                    .asm
                    .shift_imm(Shift::Shl, Size::Word, scratch, to - from),
            }
            self.asm.alu(Alu::Or, Size::Word, flags, scratch);
        }
    }

    /// Sets the flags to `new` if they differ from `old`: to load MXCSR takes long.
    fn write_flags(&mut self, old: Gpr, new: Gpr) {
        self.asm.alu_imm(Alu::And, Size::Word, new, FLAGS);
        self.asm.alu(Alu::Cmp, Size::Word, new, old);
        let done = self.asm.label();
        self.asm.jcc(Condition::Equal, done);
        self.asm.mov_store(Size::Word, FFLAGS, new);
        self.asm.alu_imm(Alu::And, Size::Word, MXCSR, !STICKY);
        self.asm.ldmxcsr(MXCSR);
        self.asm.bind(done);
    }
}
