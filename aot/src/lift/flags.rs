//! Accrued exception flags: the sticky flags of MXCSR, and the flags in the `Hart` structure that
//! the interpreter raised.

use hartline_abi::hart::offset;
use inkwell::IntPredicate;
use inkwell::values::IntValue;

use super::ir::{Likely, Memory};
use super::lifter::Lifter;

/// Sticky flags of MXCSR: IE DE ZE OE UE PE from bit 0 on.
const STICKY: u64 = 0x3f;
/// Flags of `fflags`: NX UF OF DZ NV from bit 0 on.
const FLAGS: u64 = 31;
/// Bits of MXCSR, and the bits of `fflags` with the same meaning.
const PAIRS: [(u64, u64); 5] = [(0, 4), (2, 3), (3, 2), (4, 1), (5, 0)];

impl<'ctx> Lifter<'_, 'ctx> {
    /// Returns `fflags`.
    pub(super) fn exception_flags(&mut self) -> IntValue<'ctx> {
        let ir = self.ir;
        ir.assembly(&format!("stmxcsr %gs:{}", offset::MXCSR));
        let control = self.load_word(offset::MXCSR);
        let accrued = self.load_word(offset::FFLAGS);
        let mut flags = ir.built(ir.builder().build_and(accrued, ir.constant(FLAGS), ""));
        for (from, to) in PAIRS {
            let flag = ir.built(ir.builder().build_and(control, ir.constant(1 << from), ""));
            let flag = match from > to {
                true => {
                    let by = ir.constant(from - to);
                    ir.built(ir.builder().build_right_shift(flag, by, false, ""))
                }
                false => {
                    let by = ir.constant(to - from);
                    ir.built(ir.builder().build_left_shift(flag, by, ""))
                }
            };
            flags = ir.built(ir.builder().build_or(flags, flag, ""));
        }
        flags
    }

    /// Sets `fflags` to `new`; the current flags are `old`.
    pub(super) fn set_exception_flags(&mut self, old: IntValue<'ctx>, new: IntValue<'ctx>) {
        let ir = self.ir;
        let new = ir.built(ir.builder().build_and(new, ir.constant(FLAGS), ""));
        let [change, done] = ["change", "flags"].map(|name| self.new_block(name));
        let same = ir.compare(IntPredicate::EQ, old, new);
        ir.branch(same, done, change, Likely::Usually);
        ir.position(change);
        ir.store_hart(offset::FFLAGS, ir.truncate(new, 32));
        let control = self.load_word(offset::MXCSR);
        let rest = ir.built(ir.builder().build_and(control, ir.constant(!STICKY), ""));
        ir.store_hart(offset::MXCSR, ir.truncate(rest, 32));
        self.restore_flags();
        ir.jump(done);
        ir.position(done);
    }

    /// Loads MXCSR from the `Hart` structure.
    pub(super) fn restore_flags(&self) {
        self.ir.assembly(&format!("ldmxcsr %gs:{}", offset::MXCSR));
    }

    fn load_word(&self, offset: u64) -> IntValue<'ctx> {
        let ir = self.ir;
        ir.zero_extend(ir.load_int(32, ir.hart_slot(offset), Memory::Hart), 64)
    }
}
